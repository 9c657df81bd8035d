package shared

import (
	"context"
	"fmt"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/session"
)

// Statements about many locks of one session. None is cancelled, which would cost the
// session: each is waited for as long as the session is valid.

// tryLocks asks for the locks of ask, which the session must not hold already, because the
// server would count them twice. It verifies in pg_locks what was granted, and have, which the
// session holds. held has the keys of both that it does hold, even with an error such as
// ErrLockTableFull. It is nil if the session was lost. offers has the keys of ask whose holder
// offers the lock to this candidate.
func (w *worker) tryLocks(ask, have []int64) (held, offers map[int64]bool, err error) {
	s := w.now
	granted, offers, err := w.tryEach(ask)
	if err != nil && !refused(err) {
		return nil, nil, s.Lose(err) // in doubt, with all that it holds
	}
	for _, key := range have {
		granted[key] = true
	}
	if len(granted) == 0 && err == nil {
		return granted, offers, nil
	}
	all, lost := heldBy(s)
	if lost != nil {
		return nil, nil, s.Lose(lost)
	}
	for key := range granted {
		if !all[key] {
			moved := lock.Moved(s, key) // by a pooler, and the backend has ended
			if moved == nil {
				moved = lock.Missing(context.Background(), s)
			}
			return nil, nil, s.Lose(moved)
		}
	}
	for _, key := range ask {
		if all[key] {
			granted[key] = true
		}
	}
	return granted, offers, err
}

// refused reports whether the server has returned the error, on a connection that goes on.
func refused(err error) bool { return pgerr.State(err) != "" && !pgerr.Broken(err) }

func (w *worker) tryEach(keys []int64) (granted, offers map[int64]bool, err error) {
	granted, offers = map[int64]bool{}, map[int64]bool{}
	if len(keys) == 0 {
		return granted, offers, nil
	}
	offersOf := pairsOf(keys, w.offer)
	rows, err := session.Ask(context.Background(), w.now, (*db.Queries).TryLocks, offersOf)
	if err != nil {
		return granted, offers, fmt.Errorf("elector: try %d locks: %w", len(keys), pgerr.Explain(err))
	}
	for _, row := range rows {
		err = w.now.CheckPID(row.Pid)
		switch {
		case row.Outcome == "granted" && err != nil:
			err = w.now.Lose(err) // first: a heartbeat may fail meanwhile, and not say why
			pooled.Evict(w.source.Pool(), row.Pid, row.Key, row.Key)
			return granted, offers, err
		case row.Outcome == "granted":
			granted[row.Key] = true
		case row.Outcome == "offered":
			offers[row.Key] = true
		}
	}
	return granted, offers, err
}

// heldBy lists the keys of all locks that the session holds.
func heldBy(s *session.Session) (map[int64]bool, error) {
	keys, err := session.Ask(context.Background(), s, (*db.Queries).HeldLocks, s.PID())
	if err != nil {
		return nil, fmt.Errorf("elector: verify the locks: %w", err)
	}
	held := map[int64]bool{}
	for _, key := range keys {
		held[key] = true
	}
	return held, nil
}

// pairsOf are the two integers of one lock of each election, as a parameter of a statement: the
// halves of what of returns.
func pairsOf(keys []int64, of func(key int64) int64) string {
	type pair struct {
		Key  int64 `json:"key"`
		High int32 `json:"high"`
		Low  int32 `json:"low"`
	}
	pairs := make([]pair, 0, len(keys))
	for _, key := range keys {
		high, low := lockkey.Halves(of(key))
		pairs = append(pairs, pair{key, high, low})
	}
	return session.Encode(pairs)
}

// readTokens passes the barriers of the locks and returns the tokens of those passed. The
// others still have a fenced transaction in flight, and are to be asked for again. The
// error wraps ErrLockTableFull if there is no room to pass so many at once, and
// ErrTokenEpoch or ErrNoToken if there is no usable token; one that the server has not returned has lost
// the session.
func readTokens(from *session.Source, s *session.Session, keys []int64, epoch int64) (map[int64]int64, error) {
	guards := pairsOf(keys, func(key int64) int64 { return key })
	rows, err := session.Ask(context.Background(), s, (*db.Queries).Tokens, guards)
	if err != nil {
		err = fmt.Errorf("elector: pass the barriers and read the tokens: %w", pgerr.Explain(err))
		if refused(err) {
			return nil, err
		}
		return nil, s.Lose(err)
	}
	tokens := map[int64]int64{}
	for _, row := range rows {
		if err := s.CheckPID(row.Pid); err != nil {
			return nil, s.Lose(err)
		}
		timeline, token, err := lock.TokenOf(row.Token, epoch, row.Epoch)
		if err == nil {
			err = from.Enter(context.Background(), s, session.Grant{Key: row.Key, Timeline: timeline})
		}
		if err != nil {
			return nil, err
		}
		if row.Passed {
			tokens[row.Key] = token
		}
	}
	return tokens, nil
}

// holdersOf are the holders of those of the locks that are held. It is empty if the server
// cannot be asked, which the next statement on the session finds too.
func holdersOf(s *session.Session, keys []int64) map[int64]lock.Holder {
	if len(keys) == 0 {
		return nil
	}
	rows, _ := session.Ask(context.Background(), s, (*db.Queries).Leaders, db.Keys(keys...))
	holders := map[int64]lock.Holder{}
	for _, row := range rows {
		holders[row.Key] = lock.Holder{PID: row.Pid, CandidateID: row.ApplicationName}
	}
	return holders
}

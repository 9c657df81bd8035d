package lock

import (
	"context"
	"fmt"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
)

// Statements about many locks of one session. None is cancelled, which would cost the
// session: each is waited for as long as the session is valid.

// tryLocks asks for the locks of ask, which the session must not hold already, because the
// server would count them twice. It verifies in pg_locks what was granted, and have, which
// the session holds. held are the keys of both that it does hold, also beside an error (as
// ErrLockTableFull, of a batch that failed half-way); nil if that lost the session. offers
// are the keys of ask whose holder offers the lock to this candidate.
func tryLocks(s *session.Session, ask, have []int64) (held, offers map[int64]bool, err error) {
	granted, offers, err := tryEach(s, ask)
	if err != nil && (pgerr.State(err) == "" || pgerr.Broken(err)) {
		return nil, nil, s.Lose(err) // in doubt, with all that it holds
	}
	for _, key := range have {
		granted[key] = true
	}
	if len(granted) == 0 && err == nil {
		return granted, offers, nil
	}
	all, lost := heldLocks(s)
	if lost != nil {
		return nil, nil, s.Lose(lost)
	}
	for key := range granted {
		if !all[key] {
			return nil, nil, s.Lose(session.ErrNoAdvisoryLocks)
		}
	}
	for _, key := range ask {
		if all[key] {
			granted[key] = true
		}
	}
	return granted, offers, err
}

func tryEach(s *session.Session, keys []int64) (granted, offers map[int64]bool, err error) {
	granted, offers = map[int64]bool{}, map[int64]bool{}
	if len(keys) == 0 {
		return granted, offers, nil
	}
	rows, err := session.Do(context.Background(), s, func(ctx context.Context, q *db.Queries) ([]db.TryLocksRow, error) {
		return q.TryLocks(ctx, db.Keys(keys...))
	})
	if err != nil {
		return granted, offers, fmt.Errorf("elector: try %d locks: %w", len(keys), session.Explain(err))
	}
	for _, row := range rows {
		switch row.Outcome {
		case "granted":
			granted[row.Key] = true
		case "offered":
			offers[row.Key] = true
		}
	}
	return granted, offers, nil
}

func heldLocks(s *session.Session) (map[int64]bool, error) {
	keys, err := session.Do(context.Background(), s, func(ctx context.Context, q *db.Queries) ([]int64, error) { return q.HeldLocks(ctx) })
	if err != nil {
		return nil, fmt.Errorf("elector: verify the locks: %w", err)
	}
	held := map[int64]bool{}
	for _, key := range keys {
		held[key] = true
	}
	return held, nil
}

// HeldBySession lists the keys of all locks that the session holds.
func (l *Lock) HeldBySession() (map[int64]bool, error) { return heldLocks(l.Session) }

// guard is one election's guard lock, for the Tokens query.
type guard struct {
	Key  int64 `json:"key"`
	High int32 `json:"high"`
	Low  int32 `json:"low"`
}

// readTokens passes the barriers of the locks and returns the tokens of those passed. The
// others still have a fenced transaction in flight, and are to be asked for again. The
// error wraps ErrLockTableFull if there is no room to pass so many at once, and
// ErrTokenEpoch if there is no usable token; any other error has lost the session.
func readTokens(s *session.Session, keys []int64, epoch int64) (map[int64]int64, error) {
	guards := make([]guard, 0, len(keys))
	for _, key := range keys {
		high, low := session.Halves(key)
		guards = append(guards, guard{Key: key, High: high, Low: low})
	}
	rows, err := session.Do(context.Background(), s, func(ctx context.Context, q *db.Queries) ([]db.TokensRow, error) {
		return q.Tokens(ctx, session.Encode(guards))
	})
	if err != nil {
		err = fmt.Errorf("elector: pass the barriers and read the tokens: %w", session.Explain(err))
		if pgerr.State(err) == "53200" {
			return nil, err
		}
		return nil, s.Lose(err)
	}
	tokens := map[int64]int64{}
	for _, row := range rows {
		token, err := addEpoch(row.Token, epoch, row.Epoch)
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
func holdersOf(s *session.Session, keys []int64) map[int64]Holder {
	if len(keys) == 0 {
		return nil
	}
	rows, _ := session.Do(context.Background(), s, func(ctx context.Context, q *db.Queries) ([]db.LeadersRow, error) {
		return q.Leaders(ctx, db.Keys(keys...))
	})
	holders := map[int64]Holder{}
	for _, row := range rows {
		holders[row.Key] = Holder{PID: row.Pid, CandidateID: row.ApplicationName}
	}
	return holders
}

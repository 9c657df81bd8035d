package shared

import (
	"context"
	"fmt"
	"slices"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/seat"
	"github.com/pgelector/pgelector/internal/transaction"
)

// Statements is the answerer of a shared session: it asks about many locks in one statement.
type Statements struct {
	election.Direct
	candidateID string
	pid         int32
	offers      map[int64]bool // the keys of the last try whose holder offers the lock to this candidate
	seen        map[int64]bool // the locks that the session holds, if a try has asked
}

// Statements makes the answerer of a session.
func (s *Shared) Statements(from *election.Source) election.Statements {
	return &Statements{candidateID: from.CandidateID}
}

// Open applies the settings, and takes the life lock, by which others know that the session lives.
func (st *Statements) Open(ctx context.Context, c *pin.Conn, settings []election.Setting) (a election.Answer, err error) {
	q := c.Queries()
	row, err := q.PrepareWait(ctx, db.PrepareWaitParams{Settings: election.Encode(seat.Wait{Role: "holder"}.Settings(settings))})
	if err != nil {
		return a, fmt.Errorf("elector: set the session up: %w", pgerr.Explain(err))
	}
	st.pid, a = row.Pid, election.Answer{PID: row.Pid, InRecovery: row.InRecovery}
	if row.InRecovery {
		return a, nil
	}
	left, err := q.InTransaction(ctx)
	if err == nil && left {
		c.Taint()
		err = pgerr.ErrOpenTransaction
	}
	held := false
	if err == nil {
		high, low := lockkey.Halves(LifeKey(st.candidateID, row.Pid))
		held, err = q.TryPair(ctx, db.TryPairParams{High: high, Low: low})
	}
	if err == nil && !held {
		err = transaction.ErrNameTaken
	}
	if err != nil {
		return a, fmt.Errorf("elector: set the session up: %w", pgerr.Explain(err))
	}
	return a, nil
}

// Try tries all locks. If that fails half-way, as when the lock table is full, the session keeps the locks granted so far.
func (st *Statements) Try(ctx context.Context, c *pin.Conn, _ []election.Setting, wants []election.Want) ([]election.Tried, election.Answer, error) {
	keys := make([]int64, len(wants))
	for i, want := range wants {
		keys[i] = want.Key
	}
	st.offers, st.seen = map[int64]bool{}, nil
	offersOf := pairsOf(keys, func(key int64) int64 { return seat.OfferKey(st.candidateID, key) })
	rows, failed := c.Queries().TryLocks(ctx, offersOf)
	a := election.Answer{PID: st.pid}
	granted := map[int64]bool{}
	switch {
	case failed == nil:
		for _, row := range rows {
			a.PID = row.Pid
			granted[row.Key] = row.Outcome == "granted"
			st.offers[row.Key] = row.Outcome == "offered"
		}
	case !pgerr.OfStatement(failed):
		return nil, a, fmt.Errorf("elector: try %d locks: %w", len(keys), pgerr.Explain(failed))
	default:
		failed = fmt.Errorf("elector: try %d locks: %w", len(keys), pgerr.Explain(failed))
		held, err := st.held(ctx, c)
		if err != nil {
			return nil, a, err
		}
		st.seen = held
		granted, a = held, election.Answer{} // HeldLocks does not say who answers
	}
	tried := make([]election.Tried, len(wants))
	for i, key := range keys {
		if tried[i].Granted = granted[key]; !tried[i].Granted {
			tried[i].Err = failed
		}
	}
	return tried, a, nil
}

// held are the keys of all locks that the session holds.
func (st *Statements) held(ctx context.Context, c *pin.Conn) (map[int64]bool, error) {
	keys, err := c.Queries().HeldLocks(ctx, st.pid)
	if err != nil {
		return nil, fmt.Errorf("elector: verify the locks: %w", err)
	}
	held := map[int64]bool{}
	for _, key := range keys {
		held[key] = true
	}
	return held, nil
}

// barriersAtOnce is how many barriers one statement passes: each takes room in the lock
// table, which by default has some 6,400 to 14,400 places.
const barriersAtOnce = 1000

// Confirm looks for all locks in pg_locks. It waits at no barrier: such a wait would delay all other elections.
func (st *Statements) Confirm(ctx context.Context, c *pin.Conn, keys []int64) ([]election.Confirmed, election.Answer, error) {
	held := st.seen
	if st.seen = nil; held == nil {
		var err error
		if held, err = st.held(ctx, c); err != nil { // in doubt, with all that the session holds
			return nil, election.Answer{}, pgerr.Wrap(pgerr.ErrSessionLost, err)
		}
	}
	all, at := make([]election.Confirmed, len(keys)), map[int64]int{}
	for i, key := range keys {
		all[i].Held, at[key] = held[key], i
		if !held[key] {
			a, err := st.missing(ctx, c, key)
			return nil, a, err
		}
	}
	a := election.Answer{}
	for some := range slices.Chunk(keys, barriersAtOnce) {
		rows, refused, err := st.tokens(ctx, c, some)
		if err != nil {
			return nil, a, err
		}
		for key, err := range refused {
			all[at[key]].Err = err
		}
		for _, row := range rows {
			one := &all[at[row.Key]]
			one.Passed, one.Token, one.Epoch = row.Passed, row.Token, row.Epoch
			if a.PID = row.Pid; row.Pid != st.pid {
				return nil, a, nil // which the kernel judges
			}
		}
	}
	return all, a, nil
}

// missing returns why pg_locks does not show a lock that was granted.
func (st *Statements) missing(ctx context.Context, c *pin.Conn, key int64) (a election.Answer, err error) {
	row, err := c.Queries().HoldsLock(ctx, db.HoldsLockParams{Pid: st.pid, Key: key})
	switch {
	case err != nil:
		return a, err
	case row.Pid != st.pid:
		return election.Answer{PID: row.Pid}, nil // a pooler has moved the session, and the backend has ended
	case row.Held: // it is back
		return a, pgerr.ErrSessionPooled
	}
	return a, election.Missing(ctx, c)
}

// tokens passes the barriers, and reads the tokens. If the lock table is full, tokens refuses half of the locks, to make room for
// the other half, which waits.
func (st *Statements) tokens(ctx context.Context, c *pin.Conn, keys []int64) (rows []db.TokensRow, refused map[int64]error, err error) {
	rows, err = c.Queries().Tokens(ctx, pairsOf(keys, func(key int64) int64 { return key }))
	if err == nil {
		return rows, nil, nil
	}
	err = fmt.Errorf("elector: pass the barriers and read the tokens: %w", pgerr.Explain(err))
	if !pgerr.OfStatement(err) {
		return nil, nil, err
	}
	if pgerr.State(err) == "53200" {
		keys = keys[:(len(keys)+1)/2]
	}
	refused = map[int64]error{}
	for _, key := range keys {
		refused[key] = err
	}
	return nil, refused, nil
}

// Holds looks for the lock in pg_locks.
func (st *Statements) Holds(ctx context.Context, c *pin.Conn, key int64) (bool, election.Answer, error) {
	return seat.Holds(ctx, c, st.pid, key)
}

// Unlock releases all locks in one statement.
func (st *Statements) Unlock(ctx context.Context, c *pin.Conn, keys []int64) (released []int64, err error) {
	slices.Sort(keys)
	if len(keys) == 1 {
		return st.Direct.Unlock(ctx, c, keys)
	}
	rows, err := c.Queries().UnlockMany(ctx, db.Keys(keys...))
	for _, row := range rows {
		if row.Released {
			released = append(released, row.Key)
		}
	}
	return released, err
}

// pairsOf returns a parameter of a statement: for each election the two integers of one lock, which
// are the halves of the key that of returns.
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
	return election.Encode(pairs)
}

// LifeKey is the key of a shared session's life lock: a lock of two integers that the
// session holds until it ends.
func LifeKey(candidateID string, pid int32) int64 {
	return lockkey.OfText(fmt.Sprintf("pgelector life:%d:%s", pid, candidateID))
}

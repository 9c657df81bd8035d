package session

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// HoldPair takes a lock of two integers of this session's own. It returns taken if another has it.
func (s *Session) HoldPair(key int64, taken error) error {
	granted, err := s.TryPair(key)
	if err == nil && !granted {
		err = taken
	}
	return err
}

// TryPair tries the lock of two integers, the halves of key. An error does not end the
// session's transaction.
func (s *Session) TryPair(key int64) (granted bool, err error) {
	return s.TryPairBy(s.life.ctx, s.Trial(), key)
}

// TryPairBy is TryPair by another caller.
func (s *Session) TryPairBy(ctx context.Context, by Caller, key int64) (granted bool, err error) {
	return Do(ctx, by, s.pairTry(key, false))
}

// pairTry is the call that tries a lock of two integers, if it may be granted: see TryForNow.
func (s *Session) pairTry(key int64, forNow bool) func(context.Context, *db.Queries) (bool, error) {
	high, low := lockkey.Halves(key)
	return func(ctx context.Context, q *db.Queries) (granted bool, err error) {
		if !s.tx.forNow {
			granted, err = q.TryPair(ctx, db.TryPairParams{Inside: s.tx.inside, High: high, Low: low})
			s.tx.forNow = granted && forNow
		}
		return granted, err
	}
}

// TryForNow tries the lock of two integers, the halves of key, which LetGo releases. Inside a
// transaction only ROLLBACK TO can release a lock, with all that were taken after it. So there can
// be one such lock at a time, and while there is, none of two integers is granted. drop is called
// if ctx ends first and the lock is granted later.
func (s *Session) TryForNow(ctx context.Context, key int64, drop func()) (granted bool, err error) {
	return DoOr(ctx, s.Trial(), s.pairTry(key, s.tx.inside), func(late bool) {
		if late {
			drop()
		}
	})
}

// LetGo releases the lock of TryForNow. It is called within Do, and reports whether the session
// had the lock until then.
func (s *Session) LetGo(ctx context.Context, q *db.Queries, key int64) (held bool, err error) {
	if !s.tx.inside {
		high, low := lockkey.Halves(key)
		return q.UnlockPair(ctx, db.UnlockPairParams{High: high, Low: low})
	}
	if !s.pin.InTx() { // with which it has ended
		return true, nil
	}
	if err = s.pin.Exec(ctx, db.RollBackToIt); err == nil {
		err = s.pin.Exec(ctx, db.ReleaseIt)
	}
	s.tx.forNow = false
	return true, err
}

// PairIsFree reports whether nobody holds the lock of two integers, the halves of key, exclusively.
func (s *Session) PairIsFree(ctx context.Context, key int64) (bool, error) {
	high, low := lockkey.Halves(key)
	row, err := Ask(ctx, s, (*db.Queries).PairIsFree, db.PairIsFreeParams{High: high, Low: low})
	return row.Free, err
}

// LeastWait is what Wait waits at least, unless the server permits no wait.
const LeastWait = 100 * time.Millisecond

// Wait waits for the lock that PrepareWait has named, for a bounded time. pg_locks shows
// whether it was granted.
func (s *Session) Wait(ctx context.Context) error {
	_, err := s.Call(ctx, func(ctx context.Context, q *db.Queries) error { return q.WaitLock(ctx) }, nil)
	if err != nil {
		return fmt.Errorf("elector: wait for the lock: %w", pgerr.Explain(err))
	}
	return nil
}

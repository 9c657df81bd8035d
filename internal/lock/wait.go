package lock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
)

// TryAgain tries the lock by the smallest statement.
func (d *Dedicated) TryAgain(ctx context.Context, s *session.Session) (Attempt, error) {
	row, err := ownerOf(s).TryAgain(ctx, d.Key)
	if err == nil {
		if err = s.CheckPID(row.Pid); err != nil && row.Granted {
			d.Source.Evict(row.Pid, d.Key, d.Pair)
		}
	}
	switch {
	case err != nil:
		err = fmt.Errorf("elector: try the lock: %w", pgerr.Explain(err))
		s.Fail(err)
		return Attempt{}, err
	case row.Granted:
		return d.Confirm(ctx, s, true)
	}
	return Attempt{Outcome: Busy}, nil
}

// LeastWait is what WaitOnce waits at least, unless the server permits no wait.
const LeastWait = 100 * time.Millisecond

// WaitOnce waits once in the server's queue: the server hands the lock over the moment it is
// free. After an error the session is discarded.
func (d *Dedicated) WaitOnce(ctx context.Context, s *session.Session) (Attempt, error) {
	if _, err := s.Call(ctx, func(ctx context.Context, q *db.Queries) error { return q.WaitLock(ctx) }, nil); err != nil {
		err = fmt.Errorf("elector: wait for the lock: %w", pgerr.Explain(err))
		if pgerr.State(err) == "42704" && !s.InTransaction() { // another backend does not know our parameters
			err = pgerr.Wrap(pgerr.ErrSessionPooled, err)
		}
		s.Fail(err)
		return Attempt{}, err
	}
	if s.InTransaction() {
		return d.TryAgain(ctx, s) // the lock is granted again to the transaction that has it
	}
	return d.Confirm(ctx, s, false)
}

// WarmUp prepares and makes the statements of a grant and a release, for a lock that the
// session does not hold. A backend is slow to answer a query for the first time (it loads,
// plans, and drivers prepare), and would be so just when the others wait for a leader:
// warmed up, a hand-over takes half as long. It also shows whether the server's locks are
// real. A transaction is not warmed up: it would keep the trial's lock.
func WarmUp(ctx context.Context, s *session.Session, statements ...string) error {
	if s.InTransaction() {
		return nil
	}
	key := int64(rand.Uint64())
	err := s.Prepare(ctx, statements...)
	if err == nil {
		err = trial(ctx, s, key)
	}
	if err != nil {
		return fmt.Errorf("elector: warm the session up: %w", pgerr.Explain(err))
	}
	_, _, err = confirm(ctx, s, key, 0)
	return err
}

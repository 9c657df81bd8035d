// Package queue is what a candidate does on a session that it keeps for its attempts: it tries a lock by the
// smallest statement, or waits for the lock in the server's queue.
package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/session"
)

// A Role is what a session waits as: db.WaitLock documents the difference.
type Role string

// Holder does not wait.
const Holder Role = "holder"

// Open borrows a connection and prepares it for Wait.
func Open(ctx context.Context, from *session.Source, role Role, key int64, wait time.Duration) (*session.Session, error) {
	s, err := from.LendToLead(ctx)
	if err != nil {
		return nil, err
	}
	if err = Prepare(ctx, from, s, role, key, wait); err != nil {
		s.Discard() // also of a standby: one that is promoted within the statement sets the session up
		return nil, err
	}
	return s, nil
}

// Prepare applies the session settings, and prepares the session for Wait: in the given
// role, for the lock of that key, and for so long at the most.
func Prepare(ctx context.Context, from *session.Source, s *session.Session, role Role, key int64, wait time.Duration) error {
	waiting := append(slices.Clone(from.Settings),
		session.Setting{Name: "pgelector.role", Value: string(role)},
		session.KeySetting(key),
		session.Setting{Name: "pgelector.wait", Value: strconv.FormatInt(wait.Milliseconds(), 10)})
	row, err := session.Ask(ctx, s, (*db.Queries).PrepareWait, db.PrepareWaitParams{Settings: session.Encode(waiting), Inside: s.InTransaction()})
	switch {
	case err != nil:
		return fmt.Errorf("elector: set the session up: %w", pgerr.Explain(err))
	case row.InRecovery:
		return pgerr.ErrServerReadOnly
	case s.PID() == 0:
		s.Backend.SetPID(row.Pid)
	}
	s.Backend.SetMark(row.Started, row.Mark)
	return s.CheckPID(row.Pid)
}

// OpenChecked is Open for a session that waits for no lock, and whose transaction state no
// other statement will check.
func OpenChecked(ctx context.Context, from *session.Source) (*session.Session, error) {
	s, err := Open(ctx, from, Holder, 0, 0)
	if err != nil {
		return nil, err
	}
	inside, err := session.Do(ctx, s, (*db.Queries).InTransaction)
	if err == nil {
		err = s.CheckOutside(inside)
	}
	if err != nil {
		s.Discard()
		return nil, fmt.Errorf("elector: set the session up: %w", pgerr.Explain(err))
	}
	return s, nil
}

// An Owner of a session's locks (session.Owner) tries again by another statement than in session scope.
type Owner interface {
	TryAgain(ctx context.Context, key int64) (db.TryAsDeputyRow, error)
}

// EvictFrom has the backend of the session terminated if the session is moved from it, and the lock stays
// there. A transaction's locks do not.
func EvictFrom(d *lock.Dedicated, s *session.Session) {
	if !s.InTransaction() {
		s.EvictBy(func() { pooled.Evict(d.Source.Pool(), s.PID(), d.Key, d.Pair) })
	}
}

// TryAgain tries the lock by the smallest statement.
func TryAgain(ctx context.Context, d *lock.Dedicated, s *session.Session) (lock.Attempt, error) {
	row, err := tryAgain(ctx, s, d.Key)
	if err == nil {
		if err = s.CheckPID(row.Pid); err != nil && row.Granted {
			pooled.Evict(d.Source.Pool(), row.Pid, d.Key, d.Pair)
		}
	}
	switch {
	case err != nil:
		err = fmt.Errorf("elector: try the lock: %w", pgerr.Explain(err))
		s.Fail(err)
		return lock.Attempt{}, err
	case row.Granted:
		return d.Confirm(ctx, s, true)
	}
	return lock.Attempt{Outcome: lock.Busy}, nil
}

func tryAgain(ctx context.Context, s *session.Session, key int64) (db.TryAsDeputyRow, error) {
	if o, ok := s.Owner().(Owner); ok {
		return o.TryAgain(ctx, key)
	}
	return session.Ask(ctx, s, (*db.Queries).TryAsDeputy, key)
}

// LeastWait is what Wait waits at least, unless the server permits no wait.
const LeastWait = 100 * time.Millisecond

// Wait waits once in the server's queue: the server hands the lock over the moment it is
// free. After an error the session is discarded.
func Wait(ctx context.Context, d *lock.Dedicated, s *session.Session) (lock.Attempt, error) {
	if _, err := s.Call(ctx, func(ctx context.Context, q *db.Queries) error { return q.WaitLock(ctx) }, nil); err != nil {
		err = fmt.Errorf("elector: wait for the lock: %w", pgerr.Explain(err))
		if pgerr.State(err) == "42704" && !s.InTransaction() { // another backend does not know our parameters
			err = pgerr.Wrap(pgerr.ErrSessionPooled, err)
		}
		s.Fail(err)
		return lock.Attempt{}, err
	}
	if s.InTransaction() {
		return TryAgain(ctx, d, s) // the lock is granted again to the transaction that has it
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
		err = lock.Trial(ctx, s, key)
	}
	if err != nil {
		return fmt.Errorf("elector: warm the session up: %w", pgerr.Explain(err))
	}
	_, _, err = lock.Verify(ctx, s, key, 0)
	return err
}

// unhurried is how long a new leader has its session to itself.
const unhurried = 100 * time.Millisecond

// PrepareRelease prepares the release of a lock for which another session will wait in the server.
// Unprepared, it takes one round trip more. Measured: a hand-over then takes 1.9 ms, not 1.6.
func PrepareRelease(s *session.Session) {
	if backoff.Sleep(s.Context(), unhurried) {
		_ = s.Prepare(s.Context(), db.Unlock) // if that fails, so does a heartbeat
	}
}

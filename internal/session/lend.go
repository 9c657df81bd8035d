package session

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/pooled"
)

// Borrow takes a connection from the pool. One that leads to an old primary is closed.
func (from *Source) Borrow(ctx context.Context) (*Session, error) {
	s, err := borrow(ctx, from.pool, from.Lease, func(err error) { from.Report(context.Background(), Calling, err) })
	if err != nil {
		return nil, err
	}
	if err := from.lent(ctx, s); err != nil {
		s.Discard()
		return nil, err
	}
	return s, nil
}

// Lend borrows a connection, and begins a transaction if inside.
func (from *Source) Lend(ctx context.Context, inside bool) (*Session, error) {
	s, err := from.Borrow(ctx)
	if err != nil || !inside {
		return s, err
	}
	if err := from.Anew(ctx, s); err != nil {
		s.Discard()
		return nil, err
	}
	return s, nil
}

// Anew begins a transaction, without the locks of the last one.
func (from *Source) Anew(ctx context.Context, s *Session) error {
	err := from.Inside.Begin(ctx, from, s)
	if err == nil {
		err = from.lent(ctx, s) // it may be on another server than the connection was
	}
	return err
}

// LendToLead lends a connection for a session that may be elected.
func (from *Source) LendToLead(ctx context.Context) (*Session, error) {
	if from.InTransaction() {
		return from.Inside.LendToLead(ctx, from)
	}
	return from.Borrow(ctx)
}

// With lends fn a connection. It goes back to the pool if fn returns nil.
func (from *Source) With(ctx context.Context, fn func(*Session) error) error {
	return from.LendIn(ctx, from.InTransaction(), fn)
}

// LendIn is With for a session inside a transaction, or outside.
func (from *Source) LendIn(ctx context.Context, inside bool, fn func(*Session) error) error {
	s, err := from.Lend(ctx, inside)
	if err != nil {
		return err
	}
	if err := fn(s); err != nil {
		s.Discard()
		return err
	}
	s.GiveBack()
	return nil
}

// A Role is what a session waits as: WaitLock documents the difference.
type Role string

const (
	Holder Role = "holder" // which does not wait
)

// Open borrows a connection and prepares it for Wait.
func (from *Source) Open(ctx context.Context, role Role, key int64, wait time.Duration) (*Session, error) {
	s, err := from.LendToLead(ctx)
	if err != nil {
		return nil, err
	}
	if err = from.PrepareWait(ctx, s, role, key, wait); err != nil {
		s.Discard() // also of a standby: one that is promoted within the statement sets the session up
		return nil, err
	}
	return s, nil
}

// PrepareWait applies the session settings, and prepares the session for Wait: in the given
// role, for the lock of that key, and for so long at the most.
func (from *Source) PrepareWait(ctx context.Context, s *Session, role Role, key int64, wait time.Duration) error {
	waiting := append(slices.Clone(from.Settings),
		Setting{"pgelector.role", string(role)},
		keySetting(key),
		Setting{"pgelector.wait", strconv.FormatInt(wait.Milliseconds(), 10)})
	row, err := Ask(ctx, s, (*db.Queries).PrepareWait, db.PrepareWaitParams{Settings: Encode(waiting), Inside: s.InTransaction()})
	switch {
	case err != nil:
		return fmt.Errorf("elector: set the session up: %w", pgerr.Explain(err))
	case row.InRecovery:
		return pgerr.ErrServerReadOnly
	case s.on.pid == 0:
		s.on.pid = row.Pid
	}
	s.SetMark(row.Started, row.Mark)
	return s.CheckPID(row.Pid)
}

// OpenChecked is Open for a session that waits for no lock, and whose transaction state no
// other statement will check.
func (from *Source) OpenChecked(ctx context.Context) (*Session, error) {
	s, err := from.Open(ctx, Holder, 0, 0)
	if err != nil {
		return nil, err
	}
	inside, err := Ask0(ctx, s, (*db.Queries).InTransaction)
	if err == nil {
		err = s.CheckOutside(inside)
	}
	if err != nil {
		s.Discard()
		return nil, fmt.Errorf("elector: set the session up: %w", pgerr.Explain(err))
	}
	return s, nil
}

// Describe asks the session what its server is. It returns an error if other code has left a
// transaction open.
func Describe(ctx context.Context, s *Session) (db.DescribeServerRow, error) {
	row, err := Ask0(ctx, s.Fresh(), (*db.Queries).DescribeServer)
	if err == nil {
		err = s.CheckOutside(row.InTransaction)
	}
	return row, err
}

// Evict terminates a backend that still holds the lock, or that of two integers, although
// its session was moved to another one: strangers would keep the backend, and the lock,
// alive.
func (from *Source) Evict(pid int32, key, pair int64) {
	ctx, cancel := context.WithTimeout(context.Background(), pin.CloseGrace)
	defer cancel()
	_, _ = backoff.Await(ctx, func(ctx context.Context) ([]bool, error) {
		return pooled.Ask(ctx, from.pool, func(q db.DBTX) ([]bool, error) {
			return db.New(q).EvictHolder(ctx, db.EvictHolderParams{Pid: pid, Key: key, Pair: pair})
		})
	})
}

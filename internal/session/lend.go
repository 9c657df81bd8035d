package session

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
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

// Idle counts the connections that a pool had idle, of which each may be of no use.
type Idle struct{ left int }

// NextIdle counts the idle connections of the pool.
func NextIdle(pool *sql.DB) *Idle { return &Idle{pool.Stats().Idle} }

// More reports whether to try again, with the next connection of the pool: once for each that was idle.
func (i *Idle) More() bool {
	i.left--
	return i.left >= 0
}

// connectTimeout is the least time that opening a connection gets. Nothing is held
// meanwhile, and a driver that tries several hosts in turn needs time for each: a frozen
// one takes all of its connect_timeout.
const connectTimeout = 30 * time.Second

// borrowed counts the sessions of this process.
var borrowed atomic.Int64

// borrow takes a connection from the pool. The session carries the values of ctx but
// outlives it.
func borrow(ctx context.Context, pool *sql.DB, l lease.Lease, onAbandonedCall func(error)) (*Session, error) {
	bound, stats := l.Validity(), pool.Stats()
	full := stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections
	if stats.Idle == 0 && !full {
		bound = max(bound, connectTimeout) // else the pool opens none: it has an idle one, or waits for one that others use
	}
	conn, late, err := pin.Take(ctx, pool, bound)
	if err != nil {
		return nil, noConnection(ctx, late, pool, full, bound, err)
	}
	s := &Session{Proof: lease.NewProof(l, lease.ClockOf(pool.Driver())), pin: conn, life: newLife(ctx), Backend: Backend{Number: borrowed.Add(1)}, onAbandonedCall: onAbandonedCall}
	s.owner = connection{s}
	return s, nil
}

// checkOpen returns ErrPoolClosed if the pool is closed.
func checkOpen(pool *sql.DB) error {
	if err := pin.CheckOpen(pool); err != nil {
		return pgerr.Wrap(pgerr.ErrPoolClosed, err)
	}
	return nil
}

// CheckPoolSize returns ErrPoolTooSmall unless the pool allows one more connection than a
// session pins (0 means 1), and ErrPoolClosed if the pool is closed.
func CheckPoolSize(pool *sql.DB, pins int) error {
	least := max(pins, 1) + 1
	if limit := pool.Stats().MaxOpenConnections; limit > 0 && limit < least {
		return fmt.Errorf("%w: SetMaxOpenConns(%d), want at least %d", pgerr.ErrPoolTooSmall, limit, least)
	}
	return checkOpen(pool)
}

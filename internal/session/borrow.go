package session

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"

	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// Idle counts the connections that a pool had idle, of which each may be of no use.
type Idle struct{ left int }

// NextIdle counts the idle connections of the pool.
func NextIdle(pool *sql.DB) *Idle { return &Idle{pool.Stats().Idle} }

// More reports whether to try again, with the next connection of the pool: once for each that was idle.
func (i *Idle) More() bool {
	i.left--
	return i.left >= 0
}

// borrowed counts the sessions of this process.
var borrowed atomic.Int64

// borrow takes a connection from the pool. The session outlives ctx, and carries none of its values.
func borrow(ctx context.Context, pool *sql.DB, l lease.Lease, onAbandonedCall func(error)) (*Session, error) {
	bound, full := timeToConnect(pool, l)
	conn, late, err := pin.Take(ctx, pool, bound)
	if err != nil {
		return nil, NoConnection(ctx, late, pool, full, bound, err)
	}
	s := &Session{Proof: lease.NewProof(l, lease.ClockOf(pool.Driver())), pin: conn, life: newLife(), Backend: Backend{Number: borrowed.Add(1)}, onAbandonedCall: onAbandonedCall}
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

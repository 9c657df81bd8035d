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

// noConnection says why the pool gave no connection, and what to do about it. full is whether others
// used all that it may open when it was asked.
func noConnection(ctx context.Context, late bool, pool *sql.DB, full bool, bound time.Duration, err error) error {
	if !late {
		return fmt.Errorf("elector: take a connection from the pool: %w", pgerr.Explain(pgerr.CauseOr(ctx, err)))
	}
	why := fmt.Sprintf("is the server reachable? Is connect_timeout set, and at most %v divided by the number of hosts? "+
		"If the driver has a pool of its own below this one (a pgxpool), is its MaxConns large enough?", max(bound, connectTimeout))
	if full {
		why = "all were in use, or did not connect: is MaxOpenConns large enough?"
	}
	stats := pool.Stats()
	return fmt.Errorf("elector: no connection from the pool within %v (%d open, %d in use, at most %d; 0 is no limit): %s %w",
		bound, stats.OpenConnections, stats.InUse, stats.MaxOpenConnections, why, err)
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

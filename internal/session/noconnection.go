package session

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// connectTimeout is the least time that opening a connection gets. Nothing is held
// meanwhile, and a driver that tries several hosts in turn needs time for each: a frozen
// one takes all of its connect_timeout.
const connectTimeout = 30 * time.Second

// timeToConnect is how long a pool gets to give a connection. full is whether others use all that it may open.
func timeToConnect(pool *sql.DB, l lease.Lease) (bound time.Duration, full bool) {
	if full = IsFull(pool); pool.Stats().Idle == 0 && !full {
		return max(l.Validity(), connectTimeout), full
	}
	return l.Validity(), full // the pool opens none: it has an idle one, or waits for one that others use
}

// IsFull reports whether others use all connections that the pool may open.
func IsFull(pool *sql.DB) bool {
	stats := pool.Stats()
	return stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections
}

// NoConnection says why the pool gave no connection, and what to do about it. full is whether others
// used all that it may open when it was asked.
func NoConnection(ctx context.Context, late bool, pool *sql.DB, full bool, bound time.Duration, err error) error {
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

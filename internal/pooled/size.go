package pooled

import (
	"database/sql"
	"fmt"

	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// Idle counts the connections that were idle in a pool. Each of them may be of no use.
type Idle struct{ left int }

// NextIdle counts the idle connections of the pool.
func NextIdle(pool *sql.DB) *Idle { return &Idle{pool.Stats().Idle} }

// More reports whether to try again, with the next connection of the pool: once for each that was idle.
func (i *Idle) More() bool {
	i.left--
	return i.left >= 0
}

// CheckSize returns ErrPoolTooSmall unless the pool allows one more connection than a session pins, and ErrPoolClosed if the
// pool is closed.
func CheckSize(pool *sql.DB, pins int) error {
	if limit := pool.Stats().MaxOpenConnections; limit > 0 && limit <= pins {
		return fmt.Errorf("%w: SetMaxOpenConns(%d), want at least %d", pgerr.ErrPoolTooSmall, limit, pins+1)
	}
	return CheckOpen(pool)
}

// CheckOpen returns ErrPoolClosed if the pool is closed.
func CheckOpen(pool *sql.DB) error {
	if err := pin.CheckOpen(pool); err != nil {
		return pgerr.Wrap(pgerr.ErrPoolClosed, err)
	}
	return nil
}

package session

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/pooled"
)

// Reading makes calls that read, on a connection of the pool and beside any session. It waits for
// the answer until ctx ends, and no longer than timeout. The server has the same bound, for a client
// that dies meanwhile: others choose how many locks a statement reads.
func Reading(pool *sql.DB, timeout time.Duration) Caller {
	bound := db.ApplySettingsParams{OnlyLocal: true, Settings: Encode([]Setting{{"statement_timeout", millis(timeout)}})}
	read := onPool(pool, timeout, pooled.Ask)
	return CallerFunc(func(ctx context.Context, call pin.Call, late func()) (bool, error) {
		return read.Call(ctx, func(ctx context.Context, q *db.Queries) error {
			if _, err := q.ApplySettings(ctx, bound); err != nil {
				return err
			}
			return call(ctx, q)
		}, late)
	})
}

// Looking is Reading without the bound in the server.
func Looking(pool *sql.DB, timeout time.Duration) Caller { return onPool(pool, timeout, pooled.Ask) }

// Writing is Reading for calls that write, without the bound in the server.
func Writing(pool *sql.DB, timeout time.Duration) Caller { return onPool(pool, timeout, pooled.Tell) }

func onPool(pool *sql.DB, timeout time.Duration, ask func(context.Context, pooled.Pool, func(db.DBTX) (any, error)) (any, error)) Caller {
	return CallerFunc(func(ctx context.Context, call pin.Call, late func()) (bool, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w within %v, one lease: %w", pgerr.ErrNoAnswer, timeout, context.DeadlineExceeded))
		defer cancel()
		return backoff.Answer(ctx, func() error {
			_, err := ask(ctx, pool, func(q db.DBTX) (any, error) { return nil, call(ctx, db.New(q)) })
			if ctx.Err() == nil && IsSuspicious(err) {
				Suspect(pool)
			}
			return pgerr.CauseOr(ctx, err)
		}, late)
	})
}

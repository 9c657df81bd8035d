package pooled

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/session"
)

// Reading makes calls that read, on a connection of the pool and beside any session. It waits for
// the answer until ctx ends, and no longer than timeout. The server has the same bound, for a client
// that dies meanwhile: others choose how many locks a statement reads.
func Reading(pool *sql.DB, timeout time.Duration) session.Caller {
	bound := db.ApplySettingsParams{OnlyLocal: true, Settings: session.Encode([]session.Setting{{Name: "statement_timeout", Value: strconv.FormatInt(timeout.Milliseconds(), 10)}})}
	read := onPool(pool, timeout, Ask)
	return session.CallerFunc(func(ctx context.Context, call pin.Call, late func()) (bool, error) {
		return read.Call(ctx, func(ctx context.Context, q *db.Queries) error {
			if _, err := q.ApplySettings(ctx, bound); err != nil {
				return err
			}
			return call(ctx, q)
		}, late)
	})
}

// Looking is Reading without the bound in the server.
func Looking(pool *sql.DB, timeout time.Duration) session.Caller { return onPool(pool, timeout, Ask) }

// Writing is Reading for calls that write, without the bound in the server.
func Writing(pool *sql.DB, timeout time.Duration) session.Caller { return onPool(pool, timeout, Tell) }

func onPool(pool *sql.DB, timeout time.Duration, ask func(context.Context, Pool, func(db.DBTX) (any, error)) (any, error)) session.Caller {
	return session.CallerFunc(func(ctx context.Context, call pin.Call, late func()) (bool, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w within %v, one lease: %w", pgerr.ErrNoAnswer, timeout, context.DeadlineExceeded))
		defer cancel()
		return backoff.Answer(ctx, func() error {
			_, err := ask(ctx, pool, func(q db.DBTX) (any, error) { return nil, call(ctx, db.New(q)) })
			if ctx.Err() == nil && session.IsSuspicious(err) {
				session.Suspect(pool)
			}
			return pgerr.CauseOr(ctx, err)
		}, late)
	})
}

// Evict terminates a backend that still holds the lock, or that of two integers, although
// its session was moved to another one: strangers would keep the backend, and the lock,
// alive.
func Evict(pool *sql.DB, pid int32, key, pair int64) {
	ctx, cancel := context.WithTimeout(context.Background(), pin.CloseGrace)
	defer cancel()
	_, _ = backoff.Await(ctx, func(ctx context.Context) ([]bool, error) {
		return Ask(ctx, pool, func(q db.DBTX) ([]bool, error) {
			return db.New(q).EvictHolder(ctx, db.EvictHolderParams{Pid: pid, Key: key, Pair: pair})
		})
	})
}

package pooled

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/live"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// Read asks on a connection of the pool, beside any session. It waits for the answer until ctx ends, and no longer than
// timeout. The server has the same bound, for a client that dies meanwhile: others choose how many locks a statement reads.
func Read[A, T any](ctx context.Context, pool *sql.DB, timeout time.Duration, statement func(*db.Queries, context.Context, A) (T, error), argument A) (T, error) {
	return Value(statement, argument, func(call pin.Call) error { return onPool(ctx, pool, timeout, reads, call) })
}

// Look is Read without the bound in the server.
func Look[A, T any](ctx context.Context, pool *sql.DB, timeout time.Duration, statement func(*db.Queries, context.Context, A) (T, error), argument A) (T, error) {
	return Value(statement, argument, func(call pin.Call) error { return onPool(ctx, pool, timeout, looks, call) })
}

// Write is Look for a statement that writes.
func Write[A, T any](ctx context.Context, pool *sql.DB, timeout time.Duration, statement func(*db.Queries, context.Context, A) (T, error), argument A) (T, error) {
	return Value(statement, argument, func(call pin.Call) error { return onPool(ctx, pool, timeout, writes, call) })
}

// The ways to ask on a pool.
const (
	reads = iota
	looks
	writes
)

// Value calls a statement by do, and returns the statement's value.
func Value[A, T any](statement func(*db.Queries, context.Context, A) (T, error), argument A, do func(pin.Call) error) (T, error) {
	var value, none T
	err := do(func(ctx context.Context, q *db.Queries) (err error) {
		value, err = statement(q, ctx, argument)
		return err
	})
	if err != nil { // the call may go on, and write the value
		return none, err
	}
	return value, nil
}

func onPool(ctx context.Context, pool *sql.DB, timeout time.Duration, how int, call pin.Call) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w within %v, one lease: %w", pgerr.ErrNoAnswer, timeout, context.DeadlineExceeded))
	defer cancel()
	_, err := backoff.Answer(ctx, func() error {
		err := onceOrTwice(ctx, pool, how == writes, func(under db.DBTX) error {
			q := db.New(under)
			if how == reads {
				bound := election.Encode([]election.Setting{{Name: "statement_timeout", Value: strconv.FormatInt(timeout.Milliseconds(), 10)}})
				if _, err := q.ApplySettings(ctx, db.ApplySettingsParams{OnlyLocal: true, Settings: bound}); err != nil {
					return err
				}
			}
			return call(ctx, q)
		})
		if ctx.Err() == nil && live.IsSuspicious(err) {
			live.Suspect(pool)
		}
		return pgerr.CauseOr(ctx, err)
	}, nil)
	return err
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

// An Evictor is a part that terminates the backends from which a session was moved, with a lock of ours.
type Evictor struct {
	election.NoPart
	Locks func(s *election.Session) (key, pair int64, ok bool) // of the session; a transaction leaves none behind
}

// Ended terminates the backend that the session was moved from, and the one that it was moved to if that has a lock of ours.
func (e Evictor) Ended(s *election.Session, cause error) {
	if !errors.Is(cause, pgerr.ErrSessionPooled) || s.PID() == 0 {
		return
	}
	key, pair, ok := e.Locks(s)
	if !ok {
		return
	}
	if moved, ok := errors.AsType[*election.Moved](cause); ok && len(moved.Granted) > 0 {
		granted := moved.Granted[0]
		if granted == key {
			Evict(s.Source().Pool(), moved.To, key, pair)
		} else {
			Evict(s.Source().Pool(), moved.To, granted, granted)
		}
	}
	Evict(s.Source().Pool(), s.PID(), key, pair)
}

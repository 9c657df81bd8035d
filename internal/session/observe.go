package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// Holder is a session that holds a lock, or waits for it. Its fields are those of
// elector.Leader, which says what they are.
type Holder struct {
	CandidateID string
	PID         int32
	User        string
	Addr        string
	Connected   time.Time
}

// Waiter is a session that is parked in the server for a lock.
type Waiter struct {
	Holder
	Since time.Time // zero before the server told
}

// HolderOf asks who holds the lock, on a connection of the pool. held is false if
// nobody does. The answer is waited for until ctx ends, and no longer than
// patience, whether or not the driver returns.
func HolderOf(ctx context.Context, pool *sql.DB, key int64, patience time.Duration) (holder Holder, held bool, err error) {
	row, err := inquire(ctx, pool, patience, func(ctx context.Context, q *db.Queries) (db.HolderRow, error) { return q.Holder(ctx, key) })
	if errors.Is(err, sql.ErrNoRows) {
		return Holder{}, false, nil
	}
	if err != nil {
		return Holder{}, false, err
	}
	return holderOf(row), true, nil
}

func holderOf(row db.HolderRow) Holder {
	return Holder{CandidateID: row.ApplicationName, PID: row.Pid, User: row.Usename, Addr: row.ClientAddr, Connected: db.Time(row.ConnectedMicros)}
}

// holder asks who holds the lock. It is the zero Holder if nobody does, or if the
// server cannot be asked, which the next statement on the session tells.
func (s *Session) holder(ctx context.Context, key int64) Holder {
	row, _ := do(ctx, s, func(ctx context.Context, q *db.Queries) (db.HolderRow, error) { return q.Holder(ctx, key) })
	return holderOf(row)
}

// WaitersOf asks who is parked in the server for the lock, the longest waiting
// first, as HolderOf does.
func WaitersOf(ctx context.Context, pool *sql.DB, key int64, patience time.Duration) ([]Waiter, error) {
	rows, err := inquire(ctx, pool, patience, func(ctx context.Context, q *db.Queries) ([]db.WaitersRow, error) { return q.Waiters(ctx, key) })
	if err != nil {
		return nil, err
	}
	waiters := make([]Waiter, 0, len(rows))
	for _, row := range rows {
		waiters = append(waiters, Waiter{
			Holder: Holder{CandidateID: row.ApplicationName, PID: row.Pid, User: row.Usename, Addr: row.ClientAddr, Connected: db.Time(row.ConnectedMicros)},
			Since:  db.Time(row.WaitingMicros),
		})
	}
	return waiters, nil
}

// inquire makes one call on a connection of the pool.
func inquire[T any](ctx context.Context, pool *sql.DB, patience time.Duration, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v, one lease: %w", patience, context.DeadlineExceeded))
	defer cancel()
	return backoff.Await(ctx, func(ctx context.Context) (T, error) {
		value, err := call(ctx, db.New(pool))
		if ctx.Err() == nil && isSuspicious(err) {
			live.suspect(pool)
		}
		return value, pgerr.CauseOr(ctx, err)
	})
}

package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// A statement on any connection may show, sooner than the next heartbeat, that a session
// has ended as well: when the server went away, or a proxy has cut all connections, or
// the pool leads to another server now. That is a suspicion, for which a heartbeat is
// sent at once. What it means for the session is told by that heartbeat alone.

// suspectEvery is the shortest time between two heartbeats that a suspicion asks for.
const suspectEvery = 250 * time.Millisecond

// live are the sessions whose life goes on, by the pool whose connections they have.
var live = sessions{of: map[*sql.DB]map[*Session]bool{}}

type sessions struct {
	mu sync.Mutex
	of map[*sql.DB]map[*Session]bool
}

// join adds a session of the pool until leave is called.
func (l *sessions) join(pool *sql.DB, s *Session) (leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[pool] == nil {
		l.of[pool] = map[*Session]bool{}
	}
	l.of[pool][s] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if delete(l.of[pool], s); len(l.of[pool]) == 0 {
			delete(l.of, pool)
		}
	}
}

// suspect raises a suspicion for each session of the pool.
func (l *sessions) suspect(pool *sql.DB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.of[pool] {
		s.raiseSuspicion()
	}
}

// isSuspicious reports whether an error says that the connection has broken or that there
// is no primary behind it: 57P03 is for a server that starts up or shuts down.
func isSuspicious(err error) bool {
	return pgerr.Broken(err) || pgerr.State(err) == "57P03" || errors.Is(err, ErrServerReadOnly)
}

// Inquire makes one call on a connection of the pool, beside any session. It waits for the
// answer until ctx ends, and no longer than timeout.
func Inquire[T any](ctx context.Context, pool *sql.DB, timeout time.Duration, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v, one lease: %w", timeout, context.DeadlineExceeded))
	defer cancel()
	return backoff.Await(ctx, func(ctx context.Context) (T, error) {
		value, err := call(ctx, db.New(pool))
		if ctx.Err() == nil && isSuspicious(err) {
			live.suspect(pool)
		}
		return value, pgerr.CauseOr(ctx, err)
	})
}

// raiseSuspicion asks for a heartbeat at once.
func (s *Session) raiseSuspicion() {
	select {
	case s.suspect <- struct{}{}:
	default:
	}
}

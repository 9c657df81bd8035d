package session

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// ErrUnchecked is why a session is not listened on before the first check of its server.
var ErrUnchecked = errors.New("elector: the server has not been checked yet")

// ListensForLoss returns nil if the connections of sessions are waited on between two
// statements, so that their loss is known at once. Otherwise it says why they cannot be: then
// the loss is looked for each 250 ms. It may be called from any goroutine.
func (from *Source) ListensForLoss() error {
	if why := from.deaf.Load(); why != nil {
		return *why
	}
	return ErrUnchecked
}

// Broke ends the session because of an error of its connection.
func (s *Session) Broke(err error) { s.life.cancel(s.causeOf(err)) }

// lookForLoss sends an empty statement: so a session that the server has ended ends before the
// next heartbeat. An error of the statement says nothing about the session.
func (s *Session) lookForLoss() {
	if _, err := Quiet(s).Call(s.life.ctx, func(ctx context.Context, _ *db.Queries) error { return s.pin.Ping(ctx) }, nil); err != nil && !pgerr.OfStatement(err) {
		s.Broke(err)
	}
}

// A statement on any connection may suggest that a session has ended too: the server went
// away, or a proxy has cut all connections, or the pool leads to another server now. Then a
// heartbeat is sent at once, and its answer alone decides.

// suspectEvery is the shortest time between two heartbeats that suspicions cause.
const suspectEvery = 250 * time.Millisecond

// live are the sessions that are kept alive, by pool.
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

// IsSuspicious reports whether an error says that the connection has broken or that there
// is no primary behind it: 57P03 is for a server that starts up or shuts down.
func IsSuspicious(err error) bool {
	return pgerr.MaybeBroken(err) || pgerr.State(err) == "57P03" || errors.Is(err, pgerr.ErrServerReadOnly)
}

// HeartbeatNow asks for a heartbeat at once.
func (s *Session) HeartbeatNow() {
	select {
	case s.life.suspect <- struct{}{}:
	default:
	}
}

// EachLive calls do for each session of the pool that is kept alive.
func EachLive(pool *sql.DB, do func(*Session)) {
	live.mu.Lock()
	defer live.mu.Unlock()
	for s := range live.of[pool] {
		do(s)
	}
}

// Suspect raises a suspicion for each session of the pool that is kept alive.
func Suspect(pool *sql.DB) { EachLive(pool, (*Session).HeartbeatNow) }

package session

import (
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/pgelector/pgelector/internal/pgerr"
)

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

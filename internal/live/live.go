// Package live knows the sessions of each pool that are kept alive. A statement on any connection of the pool may suggest that
// a session has ended, too: the server went away, or a proxy has cut all connections, or the pool leads to another server now.
// Then each session asks for a heartbeat at once, and the answer to the heartbeat alone decides.
package live

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// sessions are the sessions that are kept alive, by pool.
var sessions = struct {
	sync.Mutex
	of map[*sql.DB]map[*election.Session]bool
}{of: map[*sql.DB]map[*election.Session]bool{}}

// A Part keeps the list.
type Part struct{ election.NoPart }

// Started adds a session, until it ends.
func (Part) Started(s *election.Session) {
	pool := s.Source().Pool()
	sessions.Lock()
	defer sessions.Unlock()
	if sessions.of[pool] == nil {
		sessions.of[pool] = map[*election.Session]bool{}
	}
	sessions.of[pool][s] = true
	context.AfterFunc(s.Context(), func() {
		sessions.Lock()
		defer sessions.Unlock()
		if delete(sessions.of[pool], s); len(sessions.of[pool]) == 0 {
			delete(sessions.of, pool)
		}
	})
}

// IsSuspicious reports whether an error says that the connection has broken or that there is no primary behind it: 57P03 is for
// a server that starts up or shuts down.
func IsSuspicious(err error) bool {
	return pgerr.MaybeBroken(err) || pgerr.State(err) == "57P03" || errors.Is(err, pgerr.ErrServerReadOnly)
}

// Each calls do for each session of the pool that is kept alive.
func Each(pool *sql.DB, do func(*election.Session)) {
	sessions.Lock()
	defer sessions.Unlock()
	for s := range sessions.of[pool] {
		do(s)
	}
}

// Suspect makes each session of the pool ask for a heartbeat at once.
func Suspect(pool *sql.DB) { Each(pool, (*election.Session).HeartbeatNow) }

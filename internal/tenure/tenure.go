// Package tenure is for how long a server has been a primary, as far as this process knows. A leader
// on the previous primary may still believe that it leads, so some parts make candidates wait.
package tenure

import (
	"database/sql"
	"fmt"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// A Primary is a server from its promotion, or its start as a primary, to its end. The number of a
// timeline alone does not tell two apart: if a timeline is discarded, as by pg_rewind, the next standby
// that is promoted may use its number again. But a server is promoted at most once between two starts.
type Primary struct{ Timeline, Started int64 }

// Known returns for how long this process has known the primary through the pool. The first call
// begins to count, and returns 0. The monotonic clock counts: it may stand still, but never jumps.
func Known(pool *sql.DB, on Primary) time.Duration { return memory.known(pool, on) }

// memory forgets a pool that nobody has any more.
var memory pools

type pools struct {
	mu    sync.Mutex
	first map[weak.Pointer[sql.DB]]map[Primary]time.Duration // when each primary was first seen
}

func (p *pools) known(pool *sql.DB, on Primary) time.Duration {
	now := lease.Clock{}.Now().Mono
	p.mu.Lock()
	defer p.mu.Unlock()
	of := weak.Make(pool)
	if p.first[of] == nil {
		if p.first == nil {
			p.first = map[weak.Pointer[sql.DB]]map[Primary]time.Duration{}
		}
		p.first[of] = map[Primary]time.Duration{}
		runtime.AddCleanup(pool, p.forget, of)
	}
	first, seen := p.first[of][on]
	if !seen {
		first = now
		p.first[of][on] = first
	}
	return now - first
}

func (p *pools) forget(of weak.Pointer[sql.DB]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.first, of)
}

// TooEarly is the error of a candidate that must wait on a primary. It wraps ErrTooEarly.
type TooEarly struct {
	Why  string        // what is too short
	Wait time.Duration // until the candidate may lead there
}

func (e *TooEarly) Error() string {
	return fmt.Sprintf("%v: %s: wait another %v", pgerr.ErrTooEarly, e.Why, e.Wait.Round(time.Millisecond))
}

func (e *TooEarly) Unwrap() error { return pgerr.ErrTooEarly }

// Later is how long to wait.
func (e *TooEarly) Later() time.Duration { return e.Wait }

package health

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// ErrConfig is returned by New and Add when an argument cannot be used; the
// message says which.
var ErrConfig = errors.New("health: invalid configuration")

// A Monitor answers for the elections that were added to it. It is a hook, to
// be given to each of their electors by elector.WithHooks, and an http.Handler.
// Its methods may be called from any goroutine.
type Monitor struct {
	pool         *sql.DB
	timeout      time.Duration
	cache        time.Duration
	degradedCode int

	mu       sync.Mutex
	electors []*elector.Elector
	changes  int                    // of electors
	overrun  map[hooks.Origin]error // work that runs on after its term
	retired  map[hooks.Origin]error // why a candidate's campaign ended for good
	known    *answer                // the last one; nil if none is of use
	asking   *question              // the one under way; nil if there is none
	calls    int                    // of the driver that have not returned
}

var (
	_ hooks.ElectedHook  = (*Monitor)(nil)
	_ hooks.DemotedHook  = (*Monitor)(nil)
	_ hooks.ErrorHook    = (*Monitor)(nil)
	_ hooks.CampaignHook = (*Monitor)(nil)
)

// Option is a setting of [New].
type Option func(*Monitor) error

// WithTimeout sets for how long a probe waits for the server at most. Default:
// 1 s, which is the default timeout of a Kubernetes probe. Bounds: 10 ms to 1 m.
func WithTimeout(d time.Duration) Option {
	return func(m *Monitor) error {
		if d < 10*time.Millisecond || d > time.Minute {
			return fmt.Errorf("%w: WithTimeout(%v): want 10ms to 1m", ErrConfig, d)
		}
		m.timeout = d
		return nil
	}
}

// WithCache sets for how long an answer of the server is good, and so how often
// it is asked at most. Default: 1 s. Bounds: 0 to 1 m. With 0 each probe asks,
// but for those that come while another asks.
func WithCache(d time.Duration) Option {
	return func(m *Monitor) error {
		if d < 0 || d > time.Minute {
			return fmt.Errorf("%w: WithCache(%v): want 0 to 1m", ErrConfig, d)
		}
		m.cache = d
		return nil
	}
}

// WithDegradedCode sets the HTTP status by which the Monitor itself, but not
// Readiness, answers if an election is degraded. Default: 200. With 503 a monitor
// that looks at no body raises an alarm while nobody leads. Bounds: 200 to 599.
func WithDegradedCode(code int) Option {
	return func(m *Monitor) error {
		if code < 200 || code > 599 {
			return fmt.Errorf("%w: WithDegradedCode(%d): want 200 to 599", ErrConfig, code)
		}
		m.degradedCode = code
		return nil
	}
}

// New makes a Monitor that asks through pool who leads: any pool of the
// elections' database, also through a pooler. Elections of several databases
// need a Monitor each. A nil pool or an option out of bounds is an error that
// wraps ErrConfig. Nothing is asked before the first probe.
func New(pool *sql.DB, opts ...Option) (*Monitor, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: the pool is nil: pass the *sql.DB of the elections", ErrConfig)
	}
	m := &Monitor{pool: pool, timeout: time.Second, cache: time.Second, degradedCode: 200,
		overrun: map[hooks.Origin]error{}, retired: map[hooks.Origin]error{}}
	for _, opt := range opts {
		if err := opt(m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Add has the Monitor answer for these electors' elections too. Each should have
// the Monitor among its hooks: without, work that overruns its term is not seen.
// A nil elector is an error that wraps ErrConfig, and then none is added.
func (m *Monitor) Add(electors ...*elector.Elector) error {
	for i, e := range electors {
		if e == nil {
			return fmt.Errorf("%w: elector %d is nil", ErrConfig, i+1)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.electors = append(m.electors, electors...)
	m.changed()
	return nil
}

// Remove has the Monitor answer no more for these electors' elections, such as those
// that were closed (elector.Elector.Close), and forget what it knows of them. Those that
// were not added are ignored.
func (m *Monitor) Remove(electors ...*elector.Elector) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.electors = slices.DeleteFunc(m.electors, func(e *elector.Elector) bool { return slices.Contains(electors, e) })
	for _, e := range electors {
		delete(m.overrun, originOf(e))
		delete(m.retired, originOf(e))
	}
	m.changed()
}

// changed is called when the electors have changed: what the server has said, or was
// asked, is about others.
func (m *Monitor) changed() {
	m.changes++
	m.known = nil
}

// OnError notes work that overruns its term, and campaigns that end for good.
func (m *Monitor) OnError(_ context.Context, e hooks.Failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case e.Op == hooks.OpWork && errors.Is(e.Err, elector.ErrOverrun):
		m.overrun[e.Origin] = e.Err
	case e.Op == hooks.OpCampaign && e.Permanent:
		m.retired[e.Origin] = e.Err
	case e.Op == hooks.OpCampaign:
		delete(m.retired, e.Origin)
	}
}

// OnElected notes that the candidate takes part.
func (m *Monitor) OnElected(_ context.Context, e hooks.Elected) { m.takesPart(e.Origin) }

// OnCampaign notes that the candidate takes part.
func (m *Monitor) OnCampaign(_ context.Context, e hooks.Campaign) {
	if e.Outcome != hooks.Failed {
		m.takesPart(e.Origin)
	}
}

func (m *Monitor) takesPart(who hooks.Origin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.retired, who)
}

// OnDemoted notes that the work of the term has returned.
func (m *Monitor) OnDemoted(_ context.Context, e hooks.Demoted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.overrun, e.Origin)
}

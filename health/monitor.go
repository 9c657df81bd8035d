// Package health serves health endpoints for elections: for orchestrators, load
// balancers and monitoring.
//
//	monitor, err := health.New(pool)
//	e, err := elector.New(pool, "orders")
//	err = monitor.Add(e)
//	mux.Handle("/health", monitor)
//	mux.Handle("/readyz", monitor.Readiness())
//	mux.Handle("/livez", monitor.Liveness())
//
// # The status of an election
//
//	healthy    this process leads, or another candidate does
//	degraded   nobody leads
//	unhealthy  the server did not answer; or the leader's lease has run out, and the server
//	           has not ended its session, as when its backend hangs; or this candidate is unhealthy
//	           (elector.WithHealth); or it gave up; or its work runs on after its term;
//	           or one of its hooks does not return
//
// The monitor knows from the lease that this process leads. A leader elsewhere is alive
// as long as it holds its lock: the server ends the session of a silent leader. If it has not,
// two seconds after the lease ran out, the election is unhealthy, if the role of the pool may see that:
// as a role, or a member, of the leader's role or of pg_read_all_stats.
//
// # Three handlers
//
// The [Monitor] itself reports the elections. It answers 503 if one is unhealthy.
//
// Readiness asks whether this process can do its part. It answers 503 if an election is
// unhealthy, so a process that cannot reach the database gets no traffic. An election whose leader is
// silent is degraded for it. A degraded
// election is ready: otherwise each change of leader would take all replicas out of the
// load balancer.
//
// Liveness asks whether a restart would help. It answers 503 in one case: work has
// overrun its term and its drain (elector.ErrOverrun, elector.WithDrain), or a hook has
// taken as long, and has not returned. Only the end of the process stops it. What needs long
// to stop needs a drain that is as long. Liveness does not ask the database: a database that is
// away must not restart every replica. A frozen process does not answer, and so fails
// its probe too.
//
// All three answer with a [Report] as JSON.
//
// # Cost
//
// The monitor asks the server about all elections that this process follows in one
// statement on a pooled connection, at most once a second ([WithCache]). Concurrent
// probes share one question. An election that this process leads costs nothing. No probe
// waits longer than a second ([WithTimeout]). At most three calls may be stuck in the
// driver at a time.
package health

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pooled"
)

// A Monitor reports the health of the elections added to it. It is an http.Handler, and
// a hook of their electors, which Add makes it. Its methods may be called from any
// goroutine.
type Monitor struct {
	pool         *sql.DB
	timeout      time.Duration
	cache        time.Duration
	degradedCode int

	mu       sync.Mutex
	electors []*elector.Elector
	told     bool                        // Add was called
	unhook   map[*elector.Elector]func() // what Add has added to their hooks
	changes  int                         // how often electors changed
	overrun  map[task]hooks.Failure      // work that overran its term, and hooks; they may have returned since
	gaveUp   map[hooks.Origin]error      // why a candidate's campaign ended for good
	known    *answer                     // the cached answer; nil if the electors changed since
	asking   *question                   // the question being asked; nil if there is none
	calls    int                         // driver calls that have not returned
}

var (
	_ hooks.ElectedHook  = (*Monitor)(nil)
	_ hooks.ErrorHook    = (*Monitor)(nil)
	_ hooks.CampaignHook = (*Monitor)(nil)
)

// Option is a setting of [New].
type Option func(*Monitor) error

// WithTimeout sets how long a probe waits for the server: 10 ms to 1 m. Default 1 s, the
// default timeout of a Kubernetes probe.
func WithTimeout(d time.Duration) Option {
	return func(m *Monitor) error {
		if d < 10*time.Millisecond || d > time.Minute {
			return fmt.Errorf("%w: WithTimeout(%v): want 10ms to 1m", elector.ErrConfig, d)
		}
		m.timeout = d
		return nil
	}
}

// WithCache sets how long the server's answer is reused: 0 to 1 m. Default 1 s. With 0,
// only concurrent probes share an answer. A failure is reused for 1 s at the most.
func WithCache(d time.Duration) Option {
	return func(m *Monitor) error {
		if d < 0 || d > time.Minute {
			return fmt.Errorf("%w: WithCache(%v): want 0 to 1m", elector.ErrConfig, d)
		}
		m.cache = d
		return nil
	}
}

// WithDegradedCode sets the HTTP status of the Monitor's own answer while an election is
// degraded: 200 to 599. Default 200. With 503, monitoring that ignores the body raises an
// alarm while nobody leads. Readiness is not affected.
func WithDegradedCode(code int) Option {
	return func(m *Monitor) error {
		if code < 200 || code > 599 {
			return fmt.Errorf("%w: WithDegradedCode(%d): want 200 to 599", elector.ErrConfig, code)
		}
		m.degradedCode = code
		return nil
	}
}

// New returns a Monitor that asks through pool who leads. Any pool of the elections'
// database will do, also one through a pooler; a standby is unhealthy. Elections of several databases need a
// Monitor each. New does not connect. If pool or an option is nil, or an option is out of
// bounds, the error wraps elector.ErrConfig.
func New(pool *sql.DB, opts ...Option) (*Monitor, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: the pool is nil: pass the *sql.DB of the elections", elector.ErrConfig)
	}
	m := &Monitor{pool: pool, timeout: time.Second, cache: time.Second, degradedCode: 200,
		unhook: map[*elector.Elector]func(){}, overrun: map[task]hooks.Failure{}, gaveUp: map[hooks.Origin]error{}}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: option %d is nil", elector.ErrConfig, i+1)
		}
		if err := opt(m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Add makes the Monitor report the electors' elections, and the health of their
// candidates (elector.WithHealth). It makes the Monitor a hook of each elector
// (elector.Elector.AddHooks), to learn of work that overruns its term; it does no harm if
// elector.WithHooks has done so before. It ignores electors that were added already. If an
// elector is nil, Add adds none and returns an error that wraps elector.ErrConfig.
//
// Until the first call of Add the Monitor's report is [Unhealthy]: a program that forgets the
// call is not ready. One that has no elector yet calls Add without any.
func (m *Monitor) Add(electors ...*elector.Elector) error {
	for i, e := range electors {
		if e == nil {
			return fmt.Errorf("%w: elector %d is nil", elector.ErrConfig, i+1)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range electors {
		if m.unhook[e] != nil {
			continue
		}
		remove, err := e.AddHooks(m)
		if err != nil {
			return err
		}
		m.electors, m.unhook[e] = append(m.electors, e), remove
	}
	m.told = true
	m.changed()
	return nil
}

// Remove removes electors, such as closed ones (elector.Elector.Close), and what Add has added
// to their hooks. It ignores electors that were not added. Work that overruns its term is
// reported until it returns.
func (m *Monitor) Remove(electors ...*elector.Elector) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.electors = slices.DeleteFunc(m.electors, func(e *elector.Elector) bool {
		if !slices.Contains(electors, e) {
			return false
		}
		delete(m.gaveUp, originOf(e))
		m.unhook[e]()
		delete(m.unhook, e)
		return true
	})
	m.changed()
}

// changed discards the cached answer, which is about other electors.
func (m *Monitor) changed() {
	m.changes++
	m.known = nil
}

// all returns the electors, and whether Add was called.
func (m *Monitor) all() (electors []*elector.Elector, told bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.electors), m.told
}

// A task is the work of a candidate, or its hooks.
type task struct {
	who hooks.Origin
	op  hooks.Op
}

// OnError records work that overruns its term, hooks that do not return, and campaigns that
// end for good.
func (m *Monitor) OnError(_ context.Context, e hooks.Failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case e.Op == hooks.OpWork, e.Op == hooks.OpHook && e.Returned != nil:
		m.overrun[task{e.Origin, e.Op}] = e
	case e.Op == hooks.OpCampaign && e.Permanent && !e.Once:
		m.gaveUp[e.Origin] = e.Err
	case e.Op == hooks.OpCampaign:
		delete(m.gaveUp, e.Origin)
	}
}

// OnElected records that the candidate has not given up.
func (m *Monitor) OnElected(_ context.Context, e hooks.Elected) { m.resumed(e.Origin) }

// OnCampaign records that the candidate has not given up.
func (m *Monitor) OnCampaign(_ context.Context, e hooks.Campaign) {
	if e.Outcome != hooks.Failed {
		m.resumed(e.Origin)
	}
}

func (m *Monitor) resumed(who hooks.Origin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.gaveUp, who)
}

// overruns returns the work that runs on after its term, and hooks that do not return. m.mu is
// held.
func (m *Monitor) overruns() map[task]hooks.Failure {
	maps.DeleteFunc(m.overrun, func(_ task, e hooks.Failure) bool {
		select {
		case <-e.Returned:
			return true
		default:
			return false
		}
	})
	return m.overrun
}

// maxCalls bounds the calls that are stuck in the driver. Each may hold a pooled
// connection.
const maxCalls = 3

// answer is the server's answer.
type answer struct {
	at      time.Time // when it came
	leaders map[int64]db.LeadersRow
	err     error // why the leaders are unknown
}

// question is a question to the server.
type question struct {
	about  int           // the value of Monitor.changes
	done   chan struct{} // closed when answer is set
	answer *answer
}

// ask returns the server's answer, or the cached one. It waits until ctx ends, and no
// longer than the timeout.
func (m *Monitor) ask(ctx context.Context) *answer {
	q := m.join()
	select {
	case <-q.done:
		return q.answer
	case <-ctx.Done():
		return &answer{err: context.Cause(ctx)}
	}
}

// join returns a question that is answered or being asked, or asks a new one.
func (m *Monitor) join() *question {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.known != nil && time.Since(m.known.at) < m.known.lasts(m.cache):
		return answered(m.known)
	case m.asking != nil && m.asking.about == m.changes:
		return m.asking
	case m.calls >= maxCalls:
		return answered(&answer{err: fmt.Errorf("the last %d calls of the driver have not returned", m.calls)})
	}
	q := &question{about: m.changes, done: make(chan struct{})}
	m.asking = q
	m.calls++
	keys := keysOf(m.electors)
	go backoff.Apart(func() { m.pursue(q, keys) })() // for all who ask meanwhile
	return q
}

// lasts is how long the answer is reused. The server may be back soon after a failure.
func (a *answer) lasts(cache time.Duration) time.Duration {
	if a.err != nil {
		return min(cache, time.Second)
	}
	return cache
}

func answered(a *answer) *question {
	q := &question{done: make(chan struct{}), answer: a}
	close(q.done)
	return q
}

// pursue asks the server. It gives up after the timeout, even if the driver does not
// return.
func (m *Monitor) pursue(q *question, keys string) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), m.timeout, errors.New("the server did not answer"))
	defer cancel()
	full := isFull(m.pool)
	rows, err := backoff.Await(ctx, func(ctx context.Context) ([]db.LeadersRow, error) {
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.calls--
		}()
		return pooled.Ask(ctx, m.pool, func(under db.DBTX) ([]db.LeadersRow, error) {
			q := db.New(under)
			switch ping, err := q.Ping(ctx); {
			case err != nil:
				return nil, err
			case ping.InRecovery: // it has none of the primary's locks
				return nil, elector.ErrServerReadOnly
			}
			return q.Leaders(ctx, keys)
		})
	})
	q.answer = newAnswer(rows, err)
	switch stats := m.pool.Stats(); {
	case ctx.Err() == nil || q.answer.err == nil:
	case full && isFull(m.pool):
		q.answer.err = fmt.Errorf("no connection from the pool within %v: all %d are in use: is MaxOpenConns large enough?", m.timeout, stats.InUse)
	default:
		q.answer.err = fmt.Errorf("no answer within %v: %w", m.timeout, q.answer.err)
	}
	q.answer.at = time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if q.about == m.changes {
		m.known = q.answer
	}
	if m.asking == q {
		m.asking = nil
	}
	close(q.done)
}

// isFull reports whether others use all connections that the pool may open.
func isFull(pool *sql.DB) bool {
	stats := pool.Stats()
	return stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections
}

func newAnswer(rows []db.LeadersRow, err error) *answer {
	a := &answer{err: err, leaders: map[int64]db.LeadersRow{}}
	for _, row := range rows {
		a.leaders[row.Key] = row
	}
	return a
}

// keysOf returns the elections' keys as an argument of the Leaders statement.
func keysOf(electors []*elector.Elector) string {
	keys := make([]int64, len(electors))
	for i, e := range electors {
		keys[i] = e.Key()
	}
	return db.Keys(keys...)
}

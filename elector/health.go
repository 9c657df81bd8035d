package elector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
)

// HealthPolicy says how WithHealth judges a candidate. A zero field means its default.
type HealthPolicy struct {
	// Minimum is the lowest good score: more than 0, at most 1. Default 0.5.
	Minimum float64

	// Interval is the time between the starts of two checks, and the timeout of each:
	// 10 ms to 1 h. Default 1 s.
	Interval time.Duration

	// StepDownAfter is how many bad checks in a row make a healthy candidate unhealthy:
	// 1 to 1000. Default 3.
	StepDownAfter int

	// CampaignAfter is how many good checks in a row make an unhealthy candidate healthy:
	// 1 to 1000. Default 3.
	CampaignAfter int
}

// Health is the result of a candidate's last check.
type Health struct {
	Score   float64   // from 0 to 1; 0 if the check returned none
	Healthy bool      // whether the candidate may campaign and lead; the policy decides, not the last check alone
	At      time.Time // when the check ended; zero before the first check, and without WithHealth
	Err     error     // why there is no score: the check panicked or timed out
	Current bool      // whether the candidate is being checked: it campaigns or leads
}

const (
	defaultMinimum  = 0.5
	defaultInterval = time.Second
	defaultInARow   = 3

	minInterval = 10 * time.Millisecond
	maxInterval = time.Hour
	maxInARow   = 1000
)

// A healthMonitor calls a candidate's check between start and stop.
//
//	            the first check alone decides
//	   ┌──────── good ───────────┴────────── bad ────────┐
//	   ▼                                                  ▼
//	healthy ───── StepDownAfter bad checks in a row ──▶ unhealthy
//	   ▲                                                  │
//	   └───────── CampaignAfter good checks in a row ─────┘
//
// Its methods may be called from any goroutine, start and stop by one at a time. start,
// stop and healthy do nothing on a nil monitor, that of a candidate without a check.
type healthMonitor struct {
	check   func(context.Context) float64
	policy  HealthPolicy
	report  func(error)   // called each time the candidate becomes unhealthy; must not block
	running chan struct{} // holds a value while a check runs

	cancel  context.CancelFunc
	stopped chan struct{}

	mu        sync.Mutex
	last      Health
	streak    int             // checks in a row that contradict last.Healthy
	health    context.Context // done while the candidate is unhealthy
	sicken    context.CancelCauseFunc
	firstDone chan struct{} // closed by the first check
	wellAgain chan struct{} // closed when the candidate becomes healthy
}

var (
	errUnchecked     = errors.New("its health has not been checked yet")
	errCheckTimeout  = errors.New("the check has not returned within its interval")
	errCheckPanicked = errors.New("the check panicked")
)

// newHealthMonitor starts nothing. A candidate is unhealthy until start.
func newHealthMonitor(check func(context.Context) float64, policy HealthPolicy, report func(error)) *healthMonitor {
	if check == nil {
		return nil
	}
	m := &healthMonitor{check: check, policy: policy, report: report, running: make(chan struct{}, 1)}
	m.reset()
	return m
}

func (m *healthMonitor) reset() {
	m.last, m.streak = Health{}, 0
	m.health, m.sicken = context.WithCancelCause(context.Background())
	m.sicken(fmt.Errorf("%w: %w", ErrUnhealthy, errUnchecked))
	m.firstDone, m.wellAgain = make(chan struct{}), make(chan struct{})
}

// start begins to check. The checks' context has the values of ctx, but outlives it.
func (m *healthMonitor) start(ctx context.Context) {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.reset()
	m.mu.Unlock()
	ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	m.stopped = make(chan struct{})
	go func() {
		defer close(m.stopped)
		m.run(ctx)
	}()
}

// stop cancels the context of a running check, but does not wait for the check. Nothing is
// reported after stop. It is idempotent.
func (m *healthMonitor) stop() {
	if m != nil && m.cancel != nil {
		m.cancel()
		<-m.stopped
		m.mu.Lock()
		defer m.mu.Unlock()
		m.last.Current = false
	}
}

func (m *healthMonitor) run(ctx context.Context) {
	next := time.Now()
	for {
		result := m.await(ctx)
		if ctx.Err() != nil {
			return
		}
		m.apply(result)
		next = next.Add(m.policy.Interval)
		switch wait := time.Until(next); {
		case wait <= 0: // the check took an interval, or the process stood still
			next = time.Now()
		case !backoff.Sleep(ctx, wait):
			return
		}
	}
}

// await runs one check and waits for it, at most an interval.
func (m *healthMonitor) await(ctx context.Context) Health {
	ctx, cancel := context.WithTimeout(ctx, m.policy.Interval)
	defer cancel()
	select {
	case m.running <- struct{}{}:
	case <-ctx.Done(): // an earlier check still runs
		return Health{At: time.Now(), Err: errCheckTimeout}
	}
	h, err := backoff.Await(ctx, func(ctx context.Context) (Health, error) {
		defer func() { <-m.running }()
		return m.runCheck(ctx), nil
	})
	if err != nil {
		return Health{At: time.Now(), Err: errCheckTimeout}
	}
	return h
}

func (m *healthMonitor) runCheck(ctx context.Context) (h Health) {
	defer func() {
		if p := recover(); p != nil {
			h = Health{At: time.Now(), Err: newPanicError(errCheckPanicked, p)}
		}
	}()
	return Health{Score: clampScore(m.check(ctx)), At: time.Now()}
}

func clampScore(score float64) float64 {
	if math.IsNaN(score) {
		return 0
	}
	return min(max(score, 0), 1)
}

// apply records a result. It makes the candidate healthy or unhealthy if enough results in
// a row demand it.
func (m *healthMonitor) apply(h Health) {
	m.mu.Lock()
	defer m.mu.Unlock()
	good, first := h.Score >= m.policy.Minimum, m.last.At.IsZero()
	changed := m.count(good, first)
	if h.Current, h.Healthy = true, m.last.Healthy; changed {
		h.Healthy = good
	}
	m.last = h
	switch {
	case changed && good:
		m.health, m.sicken = context.WithCancelCause(context.Background())
		close(m.wellAgain)
	case changed:
		if first {
			m.health, m.sicken = context.WithCancelCause(context.Background()) // with another cause
		} else {
			m.wellAgain = make(chan struct{})
		}
		err := m.explain(h)
		m.sicken(err)
		m.report(err)
	}
	if first {
		close(m.firstDone)
	}
}

// count reports whether a check changes the candidate's health.
func (m *healthMonitor) count(good, first bool) bool {
	if good == m.last.Healthy && !first {
		m.streak = 0
		return false
	}
	enough := m.policy.StepDownAfter
	if good {
		enough = m.policy.CampaignAfter
	}
	if m.streak++; m.streak < enough && !first {
		return false
	}
	m.streak = 0
	return true
}

func (m *healthMonitor) explain(h Health) error {
	if h.Err != nil {
		return fmt.Errorf("%w: %w", ErrUnhealthy, h.Err)
	}
	return fmt.Errorf("%w: the score is %.3g, below the minimum of %g", ErrUnhealthy, h.Score, m.policy.Minimum)
}

func (m *healthMonitor) result() Health {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// healthy returns a context that is done while the candidate is unhealthy. Its cause says
// why, and wraps ErrUnhealthy.
func (m *healthMonitor) healthy() context.Context {
	if m == nil {
		return context.Background()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.health
}

func (m *healthMonitor) firstCheck() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.firstDone
}

func (m *healthMonitor) recovered() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wellAgain
}

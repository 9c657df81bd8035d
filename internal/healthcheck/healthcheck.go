// Package healthcheck tells whether a candidate is well, by a check of the user's that
// is asked again and again. It knows nothing of elections.
//
//	            the first check alone decides
//	   ┌──────── good ───────────┴────────── bad ────────┐
//	   ▼                                                  ▼
//	healthy ── so many bad checks in a row (BadInARow) → unhealthy
//	   ▲                                                  │
//	   └──── so many good checks in a row (GoodInARow) ───┘
//
// A check that panics, or has not returned after one interval, is a bad one. While
// it hangs no other is begun: each interval counts as one more bad check.
package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"time"
)

// Policy says which checks are good, and how many of them count.
type Policy struct {
	Check      func(context.Context) float64
	Minimum    float64       // the lowest good score
	Interval   time.Duration // from one check to the next, and what each gets to return
	BadInARow  int           // make a healthy candidate unhealthy
	GoodInARow int           // make an unhealthy one healthy
}

// Report is what the last check came to.
type Report struct {
	Score   float64   // from 0 to 1
	Healthy bool      // the verdict, which the last check alone need not have changed
	At      time.Time // zero before the first check
	Err     error     // why there is no score: the check panicked or hangs
}

var (
	// ErrUnchecked is the cause before the first check.
	ErrUnchecked = errors.New("its health has not been checked yet")
	errHangs     = errors.New("the check has not returned within its interval")
	errPanicked  = errors.New("the check panicked")
)

// A Monitor asks the check between Start and Stop. Its methods may be called from
// any goroutine, Start and Stop by one at a time.
type Monitor struct {
	policy  Policy
	sick    func(error)   // told each time that the candidate becomes unhealthy; must not wait
	running chan struct{} // held by the one check that goes on

	stop    context.CancelFunc
	stopped chan struct{}

	mu      sync.Mutex
	last    Report
	fresh   bool // no check since Start
	streak  int  // checks in a row that speak against the verdict
	fit     context.Context
	unfit   context.CancelCauseFunc
	checked chan struct{} // closed by the first check
	well    chan struct{} // closed when the candidate is healthy again
}

// NewMonitor starts nothing. Until Start, the candidate is not healthy.
func NewMonitor(p Policy, sick func(error)) *Monitor {
	m := &Monitor{policy: p, sick: sick, running: make(chan struct{}, 1)}
	m.reset()
	return m
}

func (m *Monitor) reset() {
	m.fresh, m.streak, m.last.Healthy = true, 0, false
	m.fit, m.unfit = context.WithCancelCause(context.Background())
	m.unfit(ErrUnchecked)
	m.checked, m.well = make(chan struct{}), make(chan struct{})
}

// Start begins to check. The checks' context carries the values of ctx, but
// outlives it.
func (m *Monitor) Start(ctx context.Context) {
	m.mu.Lock()
	m.reset()
	m.mu.Unlock()
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	m.stopped = make(chan struct{})
	go func() {
		defer close(m.stopped)
		m.watch(ctx)
	}()
}

// Stop cancels the context of a check that goes on, but does not wait for it: if it
// does not heed its context, it is the one that the next Start finds hanging. No
// report is made after Stop. It may be called again.
func (m *Monitor) Stop() {
	if m.stop != nil {
		m.stop()
		<-m.stopped
	}
}

func (m *Monitor) watch(ctx context.Context) {
	next := time.NewTicker(m.policy.Interval)
	for {
		report := m.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		m.judge(report)
		select {
		case <-next.C:
		case <-ctx.Done():
			return
		}
	}
}

// ask waits for one check, an interval at the most.
func (m *Monitor) ask(ctx context.Context) Report {
	ctx, cancel := context.WithTimeout(ctx, m.policy.Interval)
	defer cancel()
	select {
	case m.running <- struct{}{}:
	case <-ctx.Done(): // an earlier one hangs
		return Report{At: time.Now(), Err: errHangs}
	}
	answer := make(chan Report, 1)
	go func() {
		defer func() { <-m.running }()
		answer <- m.check(ctx)
	}()
	select {
	case report := <-answer:
		return report
	case <-ctx.Done():
		return Report{At: time.Now(), Err: errHangs}
	}
}

func (m *Monitor) check(ctx context.Context) (r Report) {
	defer func() {
		if p := recover(); p != nil {
			r = Report{At: time.Now(), Err: fmt.Errorf("%w: %v\n%s", errPanicked, p, debug.Stack())}
		}
	}()
	return Report{Score: Clamp(m.policy.Check(ctx)), At: time.Now()}
}

// Clamp makes a score of any number: below 0, and NaN, are 0; above 1 is 1.
func Clamp(score float64) float64 {
	if math.IsNaN(score) {
		return 0
	}
	return min(max(score, 0), 1)
}

// judge counts a check, and turns the verdict when enough speak against it.
func (m *Monitor) judge(r Report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	good := r.Score >= m.policy.Minimum
	turned := m.count(good)
	r.Healthy = m.last.Healthy
	if turned {
		r.Healthy = good
	}
	m.last = r
	switch {
	case turned && good:
		m.fit, m.unfit = context.WithCancelCause(context.Background())
		close(m.well)
	case turned:
		cause := m.why(r)
		if m.fit.Err() == nil { // it was healthy
			m.well = make(chan struct{})
		} else {
			m.fit, m.unfit = context.WithCancelCause(context.Background())
		}
		m.unfit(cause)
		m.sick(cause)
	}
	if m.fresh {
		m.fresh = false
		close(m.checked)
	}
}

// count reports whether a check turns the verdict: the first one does.
func (m *Monitor) count(good bool) bool {
	if good == m.last.Healthy && !m.fresh {
		m.streak = 0
		return false
	}
	enough := m.policy.BadInARow
	if good {
		enough = m.policy.GoodInARow
	}
	if m.streak++; m.streak < enough && !m.fresh {
		return false
	}
	m.streak = 0
	return true
}

func (m *Monitor) why(r Report) error {
	if r.Err != nil {
		return r.Err
	}
	return fmt.Errorf("a score of %.3g, below the minimum of %g", r.Score, m.policy.Minimum)
}

// Last is what the last check came to.
func (m *Monitor) Last() Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// Fit is done when the candidate is unhealthy, or becomes so; its cause says why.
func (m *Monitor) Fit() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fit
}

// Checked is closed once there is a verdict.
func (m *Monitor) Checked() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.checked
}

// Well is closed once the candidate is healthy again.
func (m *Monitor) Well() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.well
}

package elector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
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
// Without a check only a report can make the candidate unhealthy. A report counts at once, beside the checks, until the
// next report.
// The methods may be called from any goroutine, start and stop by one at a time.
type healthMonitor struct {
	check   func(context.Context) HealthReport // may be nil
	policy  HealthPolicy
	room    *election.Terms
	report  func(error)   // called each time the candidate becomes unhealthy, before its term ends; must not block
	running chan struct{} // holds a value while a check runs

	cancel  context.CancelFunc
	stopped chan struct{}

	mu        sync.Mutex
	on        bool            // between start and stop
	last      Health          // by the checks alone
	reported  *Health         // the last report; nil if there was none
	streak    int             // checks in a row that contradict last.Healthy
	health    context.Context // done while the candidate is unhealthy
	sicken    context.CancelCauseFunc
	firstDone chan struct{} // closed by the first check, and without a check
}

var (
	errUnchecked     = errors.New("its health has not been checked yet")
	errCheckTimeout  = errors.New("the check has not returned within its interval")
	errCheckPanicked = errors.New("the check panicked")
)

// newHealthMonitor starts nothing. A candidate with a check is unhealthy until start.
func newHealthMonitor(check func(context.Context) HealthReport, policy HealthPolicy, room *election.Terms, report func(error)) *healthMonitor {
	m := &healthMonitor{check: check, policy: policy, room: room, report: report, running: make(chan struct{}, 1)}
	m.reset()
	return m
}

func (m *healthMonitor) reset() {
	m.last, m.streak = Health{}, 0
	m.health, m.sicken = context.WithCancelCause(context.Background())
	m.sicken(fmt.Errorf("%w: %w", ErrUnhealthy, errUnchecked))
	m.firstDone = make(chan struct{})
	if m.check == nil {
		m.last = Health{Score: 1, Healthy: true}
		m.settle(true)
		close(m.firstDone)
	} else {
		m.refuse(fmt.Errorf("%w: %w", ErrUnhealthy, errUnchecked))
	}
	m.last.Current = m.on
}

// refuse lets no term begin, and ends the one that goes on unless the policy lets it stay.
func (m *healthMonitor) refuse(err error) {
	if m.policy.StayWhenUnhealthy {
		m.room.Pause(election.Reason(hooks.Unhealthy), err)
	} else {
		m.room.Refuse(election.Reason(hooks.Unhealthy), err)
	}
}

// start begins to check. The checks carry nothing of the call that begins them.
func (m *healthMonitor) start() {
	m.mu.Lock()
	m.on = true
	m.reset()
	m.mu.Unlock()
	if m.check == nil {
		return
	}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	m.stopped = make(chan struct{})
	go backoff.Apart(func() {
		defer close(m.stopped)
		m.run(ctx)
	})()
}

// stop cancels the context of a running check, but does not wait for the check. Nothing is
// reported after stop. It is idempotent.
func (m *healthMonitor) stop() {
	if m.cancel != nil {
		m.cancel()
		<-m.stopped
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on, m.last.Current = false, false
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
	return healthOf(m.check(ctx))
}

// apply records a result. It makes the candidate healthy or unhealthy if enough results in
// a row demand it.
func (m *healthMonitor) apply(h Health) {
	m.mu.Lock()
	defer m.mu.Unlock()
	good, first := m.fit(h), m.last.At.IsZero()
	if h.Current, h.Healthy = true, m.last.Healthy; m.count(good, first) {
		h.Healthy = good
	}
	m.last = h
	m.settle(first)
	if first {
		close(m.firstDone)
	}
}

// push records a report, which counts at once.
func (m *healthMonitor) push(h Health) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.Healthy = m.fit(h)
	m.reported = &h
	m.settle(false)
}

func (m *healthMonitor) fit(h Health) bool { return h.Score >= m.policy.Minimum && !h.unfit }

// settle makes the candidate healthy or unhealthy, if its known health has changed, or is known for the first time.
func (m *healthMonitor) settle(first bool) {
	h, was := m.known(), m.health.Err() == nil
	switch {
	case h.Healthy && !was:
		m.health, m.sicken = context.WithCancelCause(context.Background())
		m.room.Allow(election.Reason(hooks.Unhealthy))
	case !h.Healthy && (was || first):
		if !was {
			m.health, m.sicken = context.WithCancelCause(context.Background()) // with another cause
		}
		err := m.explain(h)
		if m.on {
			m.report(err) // before the term ends: OnError comes before the OnDemoted that it explains
		}
		m.sicken(err)
		m.refuse(err)
	}
}

// known returns the health that follows from the last check and the last report.
func (m *healthMonitor) known() Health {
	h := m.last
	if r := m.reported; r != nil {
		if m.check == nil || h.Healthy && !r.Healthy || h.Healthy == r.Healthy && r.Score < h.Score {
			h.Score, h.Why, h.At, h.Err = r.Score, r.Why, r.At, nil
		}
		h.Healthy = h.Healthy && r.Healthy
		all := map[string]string{}
		maps.Copy(all, m.last.Metadata)
		maps.Copy(all, r.Metadata)
		h.Metadata = all
	}
	if h.Minimum = m.policy.Minimum; h.Err != nil {
		h.Why = h.Err.Error()
	}
	return h
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
	text := ""
	if h.Score < m.policy.Minimum {
		text = fmt.Sprintf(": the score is %.3g, below the minimum of %g", h.Score, m.policy.Minimum)
	}
	if h.Why != "" {
		text += ": " + h.Why
	}
	return fmt.Errorf("%w%s", ErrUnhealthy, text)
}

func (m *healthMonitor) result() Health {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known()
}

// healthy returns a context that is done while the candidate is unhealthy. Its cause says
// why, and wraps ErrUnhealthy.
func (m *healthMonitor) healthy() context.Context { return read(m, &m.health) }

func (m *healthMonitor) firstCheck() <-chan struct{} { return read(m, &m.firstDone) }

func read[T any](m *healthMonitor, field *T) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *field
}

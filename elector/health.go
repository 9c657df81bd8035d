package elector

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/healthcheck"
)

// HealthPolicy is how WithHealth judges a candidate. The zero value of a field is its
// default.
type HealthPolicy struct {
	// Minimum is the lowest score that is good: more than 0, at most 1. Default 0.5.
	Minimum float64

	// Interval is the time from the beginning of one check to that of the next, and
	// what each gets to return: 10 ms to 1 h. Default 1 s.
	Interval time.Duration

	// StepDownAfter is how many checks in a row must be bad for a healthy candidate to
	// be unhealthy: 1 to 1000. Default 3.
	StepDownAfter int

	// CampaignAfter is how many checks in a row must be good for an unhealthy
	// candidate to be healthy again: 1 to 1000. Default 3.
	CampaignAfter int
}

// Health is what the last check of a candidate's health came to.
type Health struct {
	Score   float64   // from 0 to 1; 0 if there was none
	Healthy bool      // whether the candidate may campaign and lead: the last check alone does not decide
	At      time.Time // when the check ended; zero before the first one, and without WithHealth
	Err     error     // why there was no score: the check panicked, or has not returned in time
}

const (
	defaultMinimum  = 0.5
	defaultInterval = time.Second
	defaultInARow   = 3

	minInterval = 10 * time.Millisecond
	maxInterval = time.Hour
	maxInARow   = 1000
)

// WithHealth gates the election by a check of the candidate's health: an unhealthy
// candidate does not campaign, and leaves the server's queue if it is parked there; an
// unhealthy leader steps down in order, as by Resign, with the reason hooks.Unhealthy
// and a cause that wraps ErrUnhealthy. OnError is told each time that the candidate
// becomes unhealthy (hooks.OpHealth).
//
// check returns a score: 1 is fit for anything, 0 for nothing. What is below 0, and
// NaN, counts as 0; what is above 1, as 1. A check is bad if its score is below the
// policy's minimum, if it panics, or if it has not returned within an interval. The
// first check of each Run, Start, Campaign or TryCampaign decides alone; after that so
// many in a row are needed to turn the verdict, so that a check that flaps turns
// nothing. From the moment on which all checks are bad, a leader begins to step down
// within StepDownAfter + 1 intervals.
//
// check is called on a goroutine of its own, one call at a time, from when the elector
// begins to campaign until its campaign and its term are over. Its context ends with
// its interval; a call that does not heed that is left alone, no second one is begun
// beside it, and each interval counts as one more bad check.
//
// While the candidate is unhealthy, Run, Start and Campaign wait, and TryCampaign
// returns ErrUnhealthy. On a shared session each election has checks of its own, also
// if the option was given to NewSession.
func WithHealth(check func(ctx context.Context) (score float64), policy HealthPolicy) Option {
	return func(c *config) error {
		p := policy.orDefault()
		switch {
		case check == nil:
			return fmt.Errorf("WithHealth: the check is nil")
		case !(p.Minimum > 0 && p.Minimum <= 1): // NaN is neither
			return fmt.Errorf("WithHealth: Minimum %v: want 0 < minimum <= 1", p.Minimum)
		case p.StepDownAfter < 1 || p.StepDownAfter > maxInARow:
			return fmt.Errorf("WithHealth: StepDownAfter %d: want 1 <= n <= %d", p.StepDownAfter, maxInARow)
		case p.CampaignAfter < 1 || p.CampaignAfter > maxInARow:
			return fmt.Errorf("WithHealth: CampaignAfter %d: want 1 <= n <= %d", p.CampaignAfter, maxInARow)
		}
		c.health = &healthcheck.Policy{Check: check, Minimum: p.Minimum, Interval: p.Interval, BadInARow: p.StepDownAfter, GoodInARow: p.CampaignAfter}
		return between(minInterval, p.Interval, maxInterval, "WithHealth: Interval %v", p.Interval)
	}
}

func (p HealthPolicy) orDefault() HealthPolicy {
	if p.Minimum == 0 {
		p.Minimum = defaultMinimum
	}
	if p.Interval == 0 {
		p.Interval = defaultInterval
	}
	if p.StepDownAfter == 0 {
		p.StepDownAfter = defaultInARow
	}
	if p.CampaignAfter == 0 {
		p.CampaignAfter = defaultInARow
	}
	return p
}

// Health is what the last check came to, without asking anew. Without WithHealth a
// candidate is always healthy, with a score of 1.
func (e *Elector) Health() Health {
	if e.monitor == nil {
		return Health{Score: 1, Healthy: true}
	}
	return Health(e.monitor.Last())
}

// newMonitor is nil without WithHealth.
func (e *Elector) newMonitor() *healthcheck.Monitor {
	if e.config.health == nil {
		return nil
	}
	return healthcheck.NewMonitor(*e.config.health, func(cause error) {
		e.report(context.Background(), hooks.Failure{Op: hooks.OpHealth, Err: fmt.Errorf("%w: %w", ErrUnhealthy, cause)})
	})
}

// fit is done when the candidate is unhealthy, or becomes so.
func (e *Elector) fit() context.Context {
	if e.monitor == nil {
		return context.Background()
	}
	return e.monitor.Fit()
}

// unfit is why the candidate is unhealthy.
func unfit(fit context.Context) error {
	return fmt.Errorf("%w: %w", ErrUnhealthy, context.Cause(fit))
}

// checked waits until the candidate's health is known, and returns an error if it is
// unhealthy, or if ctx ends first.
func (e *Elector) checked(ctx context.Context) error {
	if e.monitor == nil {
		return nil
	}
	select {
	case <-e.monitor.Checked():
	case <-ctx.Done():
		return ended(ctx, "check the candidate's health")
	}
	if fit := e.fit(); fit.Err() != nil {
		return unfit(fit)
	}
	return nil
}

// awaitHealth waits, out of the server's queue, until the candidate is healthy, or the
// campaign is over. Who leads meanwhile is asked once per retry interval, if a hook wants
// to know.
func (c *campaign) awaitHealth(ctx context.Context) {
	for c.fit().Err() != nil {
		c.acquirer.Close()
		select {
		case <-c.monitor.Well():
		case <-time.After(backoff.Jitter(c.retry)):
			c.look(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// whileItMay is a context of an attempt: it ends when the candidate becomes unhealthy,
// too.
func (e *Elector) whileItMay(ctx context.Context) (trying context.Context, stop func()) {
	fit := e.fit()
	trying, cancel := context.WithCancelCause(ctx)
	unsick := context.AfterFunc(fit, func() { cancel(unfit(fit)) })
	return trying, func() {
		unsick()
		cancel(nil)
	}
}

package elector

import (
	"cmp"
	"context"
	"fmt"
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
}

const (
	defaultMinimum  = 0.5
	defaultInterval = time.Second
	defaultInARow   = 3

	minInterval = 10 * time.Millisecond
	maxInterval = time.Hour
	maxInARow   = 1000
)

// WithHealth lets a candidate campaign and lead only while it is healthy. An unhealthy
// candidate does not campaign, and leaves the server's queue if it waits there. An
// unhealthy leader steps down as by Resign, with the reason hooks.Unhealthy and a cause
// that wraps ErrUnhealthy. Each time the candidate becomes unhealthy, OnError reports it
// (hooks.OpHealth). Elector.Health returns the last result; packages health and roster
// publish it.
//
// check returns a score from 0 (unfit) to 1 (fit). A score below 0 or NaN counts as 0,
// and one above 1 as 1. A check is bad if its score is below the policy's minimum, if it
// panics, or if it does not return within an interval. The first check of each Run,
// Start, Campaign or TryCampaign decides alone. Later it takes several in a row, so
// single outliers change nothing. Once every check is bad, a leader starts stepping down
// within StepDownAfter + 1 intervals.
//
// The elector calls check on a separate goroutine, one call at a time, from the start of
// its campaign to the end of its term. The check's context ends with its interval. If a
// call ignores that, the elector starts no other call, and counts each interval as one
// more bad check.
//
// While the candidate is unhealthy, Run, Start and Campaign wait, and TryCampaign returns
// ErrUnhealthy. On a shared session each election runs its own checks, even if the option
// was given to NewSession.
func WithHealth(check func(ctx context.Context) (score float64), policy HealthPolicy) Option {
	return func(c *config) error {
		p := HealthPolicy{
			Minimum:       cmp.Or(policy.Minimum, defaultMinimum),
			Interval:      cmp.Or(policy.Interval, defaultInterval),
			StepDownAfter: cmp.Or(policy.StepDownAfter, defaultInARow),
			CampaignAfter: cmp.Or(policy.CampaignAfter, defaultInARow),
		}
		switch {
		case check == nil:
			return fmt.Errorf("WithHealth: the check is nil")
		case !(p.Minimum > 0 && p.Minimum <= 1): // also refuses NaN
			return fmt.Errorf("WithHealth: Minimum %v: want 0 < minimum <= 1", p.Minimum)
		case p.StepDownAfter < 1 || p.StepDownAfter > maxInARow:
			return fmt.Errorf("WithHealth: StepDownAfter %d: want 1 <= n <= %d", p.StepDownAfter, maxInARow)
		case p.CampaignAfter < 1 || p.CampaignAfter > maxInARow:
			return fmt.Errorf("WithHealth: CampaignAfter %d: want 1 <= n <= %d", p.CampaignAfter, maxInARow)
		}
		c.check, c.healthPolicy = check, p
		return between(minInterval, p.Interval, maxInterval, "WithHealth: Interval %v", p.Interval)
	}
}

// Health returns the result of the last check. It runs no check. Without WithHealth a
// candidate is always healthy, with a score of 1.
func (e *Elector) Health() Health {
	if e.monitor == nil {
		return Health{Score: 1, Healthy: true}
	}
	return e.monitor.result()
}

// awaitFirstCheck waits for the first check. It returns an error if the candidate is
// unhealthy, or if ctx ends first.
func (e *Elector) awaitFirstCheck(ctx context.Context) error {
	if e.monitor == nil {
		return nil
	}
	select {
	case <-e.monitor.firstCheck():
	case <-ctx.Done():
		return ended(ctx, "check the candidate's health")
	}
	if healthy := e.monitor.healthy(); healthy.Err() != nil {
		return context.Cause(healthy)
	}
	return nil
}

// awaitHealth waits until the candidate is healthy or ctx ends. It leaves the server's
// queue, and looks once per retry interval for who leads.
func (c *campaign) awaitHealth(ctx context.Context) {
	for c.monitor.healthy().Err() != nil {
		c.acquirer.Close()
		select {
		case <-c.monitor.recovered():
		case <-time.After(backoff.Jitter(c.retry)):
			c.look(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// whileHealthy returns a context that also ends when the candidate becomes unhealthy.
func (e *Elector) whileHealthy(ctx context.Context) (trying context.Context, stop func()) {
	healthy := e.monitor.healthy()
	trying, cancel := context.WithCancelCause(ctx)
	stopCancel := context.AfterFunc(healthy, func() { cancel(context.Cause(healthy)) })
	return trying, func() {
		stopCancel()
		cancel(nil)
	}
}

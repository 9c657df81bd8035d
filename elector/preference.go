package elector

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/preference"
)

// looksForLower begins to look whether a candidate of lower priority leads, until stop is called. stop does not wait.
func (e *Elector) looksForLower() (stop func()) {
	ctx, stop := e.sends()
	w := &preference.Watch{CandidateID: e.candidateID, Priority: e.prefer.priority, Delay: e.prefer.delay, Every: e.retryEvery, Well: e.monitor.healthy,
		Leader: func(ctx context.Context) (holder.Holder, bool) {
			leader, led, err := holder.Of(ctx, e.pool, e.key, e.lease.Length)
			return leader, led && err == nil
		},
		Ask:    e.preempt,
		Failed: func(err error) { e.report(ctx, hooks.Failure{Op: hooks.OpRequest, Err: err}) }}
	e.preempting.Go(backoff.Apart(func() { w.Run(ctx) }))
	return stop
}

// preempt asks the leader for its lock. A leader that takes no requests does not answer.
func (e *Elector) preempt(ctx context.Context, leader holder.Holder) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*max(e.lease.Length, leader.Lease), errNoTransfer)
	defer cancel()
	if err := askLeader(ctx, e.pool, e.config, leader, e.candidateID, &e.prefer.priority); err != nil {
		return fmt.Errorf("elector: asked for the lock, because this candidate has priority %d and the leader %d: %w", e.prefer.priority, leader.Priority, err)
	}
	return nil
}

var errNoTransfer = errors.New("the leader did not transfer the lock within two leases")

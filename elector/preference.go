package elector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/inbox"
	"github.com/pgelector/pgelector/internal/preference"
)

// preferring is whether, and how much, a candidate should lead.
type preferring struct {
	chosen   bool // WithPriority
	priority int32
	delay    time.Duration // WithPreemptDelay; 0 if that was not used
}

const (
	defaultPreemptDelay = 10 * time.Second // longer than a deployment needs to find that a new version fails at once
	maxPreemptDelay     = 24 * time.Hour
)

// WithPriority says how much this candidate should lead: any int32, more is higher. Once it has been up and well (WithHealth,
// ReportHealth) for WithPreemptDelay, and the term of a leader of lower priority is a minute old, or that delay if it is longer, it
// asks the leader to transfer the lock, as RequestTransfer does. The leader's work returns first, and its OnDemoted receives
// hooks.Preempted. Of several candidates the first one wins. A candidate asks once for each term; if the term goes on, because the
// candidate did not come in time, say, it asks again after as long as the term had to be old.
//
// It is a preference, not a promise: the deputy may have any priority, a failover is as fast as without the option, and leadership
// then moves once more. It moves back, too, what an operator has moved by RequestTransfer.
//
// Default: none; others see 0, and the candidate asks nobody. So give every candidate of an election a priority. Leader and
// Candidates show the leader's to any role.
//
// A leader holds one advisory lock more. A follower looks who leads once per retry interval, by one statement, and needs one
// connection more while it asks: the pool must allow three, and one more with WithSynchronousStandby, or for a deputy in transaction scope. A candidate of a shared session, and so of shard.Run, cannot have a
// priority, nor one with WithRequests(false). TryRun and TryCampaign tell the priority, and ask nobody.
func WithPriority(n int32) SessionOption {
	return sessionOption{set(func(c *config) { c.prefer.chosen, c.prefer.priority = true, n })}
}

// WithPreemptDelay sets for how long a candidate with WithPriority is up and well before it asks a leader of lower priority for the lock.
// It counts from the start of the campaign, or since the candidate became healthy. Default 10 s, at least 10 ms, at most 24 h. All
// candidates of an election should have the same: a leader also refuses such requests until its own term is as old as its own delay, and at
// least a minute.
func WithPreemptDelay(d time.Duration) SessionOption {
	return sessionOption{func(c *config) error {
		c.prefer.delay = d
		return check(minRetry <= d && d <= maxPreemptDelay, "WithPreemptDelay", d, "want %v <= delay <= %v", minRetry, maxPreemptDelay)
	}}
}

// complete says why there cannot be a preference, and fills in the delay.
func (p *preferring) complete(c *config) error {
	priority := valueOf("WithPriority", p.priority)
	switch {
	case !p.chosen && p.delay != 0:
		return &OptionError{[]OptionValue{valueOf("WithPreemptDelay", p.delay)}, "want a priority, too: a candidate without one asks nobody for the lock"}
	case !p.chosen:
	case c.shared:
		return &OptionError{[]OptionValue{priority}, "a shared session, and so a member of a group of shards, cannot have a priority: its one connection " +
			"holds the locks of many elections: use elector.New for an election that should have a leader of your choice"}
	case !c.takesRequests:
		return &OptionError{[]OptionValue{priority, valueOf("WithRequests", false)}, "want one of them: a priority moves leadership by a request to the leader"}
	case p.delay == 0:
		p.delay = defaultPreemptDelay
	}
	return nil
}

// preferred begins to look whether a candidate of lower priority leads, until stop is called. stop does not wait.
func (e *Elector) preferred() (stop func()) {
	if !e.prefer.chosen || e.kernel.Once() {
		return func() {}
	}
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

// yieldsTo reports whether the term ends in favor of a candidate of that priority.
func (t *Term) yieldsTo(priority int32) bool {
	return priority > t.prefer.priority && time.Since(t.ElectedAt()) >= preference.Due(t.prefer.delay)
}

// priorityOf is the priority that who makes a request tells with it; nil if none.
func priorityOf(r inbox.Request, all []inbox.Request) *int32 {
	for _, other := range all {
		if n, told := preference.Told(other.Key); told && other.Transaction == r.Transaction {
			return &n
		}
	}
	return nil
}

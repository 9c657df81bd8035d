package elector

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/session"
)

const askWhoEvery = time.Minute // how often a campaign asks who holds a busy lock

// reportBusy reports what an attempt that found the lock busy shows of others.
func (c *campaign) reportBusy(ctx context.Context, got lock.Attempt) {
	c.reportBlocker(ctx, got.Holder)
	if got.Keeps {
		c.reportFullPool()
	}
}

// reportBlocker reports who keeps the lock from all candidates, if somebody does that twice in a
// row: others share a lock for an instant to see whether it is free. A shared session may have
// thousands of elections: there it asks only if a hook looks for the leader, and sees none. A leader
// that is silent keeps the lock, too. A deputy sees that beside its attempts; who polls asks.
func (c *campaign) reportBlocker(ctx context.Context, seen lock.Holder) {
	c.reportSilence(ctx, seen)
	due := c.blocker != "" || time.Since(cmp.Or(c.askedWho, c.began)) >= askWhoEvery
	if !due || seen.PID != 0 && (c.shared || c.takeover != Poll) || c.shared && !c.announcer.seesLeader() {
		return
	}
	c.askedWho = time.Now()
	holder, led, _ := holder.Of(c.sends, c.pool, c.key, c.lease.Heartbeat) // one that is to try often has no more time
	if led {
		c.reportSilence(ctx, holder)
	}
	if holder.Blocks != "" && holder.Blocks == c.blocker {
		c.report(ctx, hooks.Failure{Op: hooks.OpLeader, Err: noLeader(holder)})
		holder.Blocks = ""
	}
	c.blocker = holder.Blocks
}

// reportSilence reports, once, a leader whose lease has run out on a server that has not ended its session.
func (c *campaign) reportSilence(ctx context.Context, seen lock.Holder) {
	leader := leaderOf(seen)
	overdue := leader.AskedAt.Sub(leader.ExpiresAt)
	switch {
	case leader.Alive() == Alive:
		c.past.silent = 0
	case leader.Alive() != Expired || overdue < max(c.lease.Heartbeat, time.Second) || c.past.silent == leader.PID:
	default:
		c.past.silent = leader.PID
		c.report(ctx, hooks.Failure{Op: hooks.OpLeader, Err: fmt.Errorf("%w: candidate %q, backend %d, %v ago: the backend hangs: "+
			"look at that process on the server's host (docs/runbook.md#leader-is-silent)", ErrLeaderSilent, leader.CandidateID, leader.PID, overdue.Round(time.Second))})
	}
}

// reportFullPool reports a pool that gives no connection to a candidate with one of its own, whose attempts go on: others
// of the program wait, too. A pool that is full for a moment is well, and one of two connections is made for this candidate.
func (c *campaign) reportFullPool() {
	if c.past.waits != nil && !gate.IsClosed(c.past.waits) || !session.IsFull(c.pool) || c.pool.Stats().MaxOpenConnections <= 2 {
		return
	}
	over, began := make(chan struct{}), time.Now()
	c.past.waits = over
	bound := c.lease.Validity()
	report := time.AfterFunc(bound, func() {
		c.report(context.Background(), hooks.Failure{Op: hooks.OpPool, Err: session.NoConnection(context.Background(), true, c.pool, true, bound, context.DeadlineExceeded), Returned: over, Since: began})
	})
	go backoff.Apart(func() {
		defer close(over)
		defer report.Stop()
		_ = c.pool.PingContext(c.sends)
	})()
}

// awaitHealth waits until the candidate is healthy or ctx ends. It keeps no session
// meanwhile, and looks once per retry interval for who leads.
func (c *campaign) awaitHealth(ctx context.Context) {
	for c.monitor.healthy().Err() != nil {
		c.standBack(ctx)
		select {
		case <-c.monitor.recovered():
		case <-time.After(backoff.Jitter(c.retryEvery())):
			c.findLeader(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// detach has the campaign, which may last for months, ask the server nothing with the values of ctx.
func (c *campaign) detach(ctx context.Context) (stop func()) {
	c.sends, stop = backoff.Detach(ctx)
	return stop
}

// findLeader asks who leads, if a hook wants to know.
func (c *campaign) findLeader(ctx context.Context) {
	if !c.announcer.seesLeader() {
		return
	}
	leader, led, err := holder.Of(c.sends, c.pool, c.key, c.lease.Length)
	if !led {
		leader = nobody
	}
	if err == nil {
		c.saw(ctx, leader)
	}
}

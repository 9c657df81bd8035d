package elector

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/holder"
)

const askWhoEvery = time.Minute // how often a campaign asks who holds a busy lock

// reportBusy reports what an attempt that found the lock busy shows about others.
func (e *Elector) reportBusy(c *campaign, got election.Attempt) {
	e.reportBlocker(c, got)
	if got.Kept != nil {
		e.reportFullPool()
	}
}

// reportBlocker reports who keeps the lock from all candidates, if it finds somebody twice in a row:
// others share a lock for an instant to see whether it is free. A shared session may have thousands of
// elections: it asks only if a hook looks for the leader, and the attempt saw none. A silent leader keeps
// the lock, too. A deputy sees that beside its attempts; a candidate that polls asks for it.
func (e *Elector) reportBlocker(c *campaign, got election.Attempt) {
	if seen, ok := got.Seen.(holder.Holder); ok {
		e.reportSilence(seen)
	}
	due := c.blocker != "" || time.Since(cmp.Or(c.askedWho, c.began)) >= askWhoEvery
	if !due || got.Holder.PID != 0 && (e.shared || e.takeover != Poll) || e.shared && !e.announcer.seesLeader() {
		return
	}
	c.askedWho = time.Now()
	ctx, stop := e.sends()
	defer stop()
	holder, led, _ := holder.Of(ctx, e.pool, e.key, e.lease.Heartbeat) // a candidate that must try often has no more time
	if led {
		e.reportSilence(holder)
	}
	if holder.Blocks != "" && holder.Blocks == c.blocker {
		e.report(e.called, hooks.Failure{Op: hooks.OpLeader, Err: noLeader(holder)})
		holder.Blocks = ""
	}
	c.blocker = holder.Blocks
}

// reportSilence reports, once, a leader whose lease has run out on a server that has not ended its session.
func (e *Elector) reportSilence(seen holder.Holder) {
	leader := leaderOf(seen)
	overdue := leader.AskedAt.Sub(leader.ExpiresAt)
	switch {
	case leader.Alive() == Alive:
		e.past.silent = 0
	case leader.Alive() != Expired || overdue < max(e.lease.Heartbeat, time.Second) || e.past.silent == leader.PID:
	default:
		e.past.silent = leader.PID
		e.report(e.called, hooks.Failure{Op: hooks.OpLeader, Err: fmt.Errorf("%w: candidate %q, backend %d, %v ago: the backend hangs: "+
			"look at that process on the server's host (docs/runbook.md#leader-is-silent)", ErrLeaderSilent, leader.CandidateID, leader.PID, overdue.Round(time.Second))})
	}
}

// reportFullPool reports a pool that gives out no connection. The candidate has a connection of its own, so its attempts
// go on, but others in the program wait. A pool that is full for a moment is well, and a pool of two connections is made
// for this candidate.
func (e *Elector) reportFullPool() {
	if e.past.waits != nil && !gate.IsClosed(e.past.waits) || !election.IsFull(e.pool) || e.pool.Stats().MaxOpenConnections <= 2 {
		return
	}
	over, began := make(chan struct{}), time.Now()
	e.past.waits = over
	bound := e.lease.Validity()
	report := time.AfterFunc(bound, func() {
		e.report(context.Background(), hooks.Failure{Op: hooks.OpPool, Err: election.NoConnection(context.Background(), true, e.pool, true, bound, context.DeadlineExceeded), Returned: over, Since: began})
	})
	ctx, stop := e.sends()
	go backoff.Apart(func() {
		defer stop()
		defer close(over)
		defer report.Stop()
		_ = e.pool.PingContext(ctx)
	})()
}

package elector

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/preflight"
	"github.com/pgelector/pgelector/internal/promotion"
	"github.com/pgelector/pgelector/internal/validate"
	"github.com/pgelector/pgelector/internal/wakeup"
)

// A candidate is what an Elector, its campaigns and its terms share.
type candidate struct {
	config
	pool       *sql.DB
	election   string
	announcer  *announcer
	monitor    *healthMonitor
	room       *election.Terms  // of its terms: a reason to end them is one call there
	closing    context.Context  // done when the elector, or its session, is closed
	terms      *gate.Gate       // attempts and terms: the session's, if there is one
	sender     *wakeup.Sender   // the session's, if there is one
	places     *promotion.Part  // the session's, if there is one
	validation *validate.Part   // of the locks of its session
	found      *preflight.Scope // the scope that a check has found: its session's, if there is one

	past past                       // who led before; its campaign and its term, one after the other, touch it
	last atomic.Pointer[leaderSeen] // for LastLeader
}

func newCandidate(pool *sql.DB, name string, c config) *candidate {
	origin := hooks.Origin{Election: name, Key: c.key, CandidateID: c.candidateID}
	n := &candidate{terms: gate.New(), room: &election.Terms{}, config: c, pool: pool, election: name,
		announcer: newAnnouncer(origin, c.hooks, c.lease), sender: wakeup.NewSender(pool, NotifyChannel, c.lease.Length)}
	n.places = promotion.New(c.deputyInterval/2, func() bool { return n.found.InTransaction() })
	n.past.met = summitOf(pool)
	n.monitor = newHealthMonitor(c.check, c.healthPolicy, n.room, func(cause error) {
		now := time.Now()
		n.past.ill.CompareAndSwap(nil, &now)
		n.report(context.Background(), hooks.Failure{Op: hooks.OpHealth, Err: cause})
	})
	return n
}

// retryEvery is the retry interval in force.
func (n *candidate) retryEvery() time.Duration {
	if n.found.InTransaction() {
		return n.retryInside
	}
	return n.retry
}

// recovered returns for how long the candidate was unhealthy: once, when it is healthy again; else 0.
func (n *candidate) recovered() time.Duration {
	since := n.past.ill.Load()
	if since == nil || n.monitor.healthy().Err() != nil || !n.past.ill.CompareAndSwap(since, nil) {
		return 0
	}
	return time.Since(*since)
}

// report posts a failure, and does not wait for the hooks.
func (n *candidate) report(ctx context.Context, f hooks.Failure) {
	n.announcer.post(n.announcer.failure(ctx, f))
}

// A leaderSeen is a leader, and when it last was known to lead.
type leaderSeen struct {
	candidateID string
	at          time.Time
}

// sees remembers a leader for LastLeader, unless one was seen later.
func (n *candidate) sees(candidateID string, at time.Time) {
	for {
		before := n.last.Load()
		if before != nil && at.Before(before.at) || n.last.CompareAndSwap(before, &leaderSeen{candidateID, at}) {
			return
		}
	}
}

// saw reports a leader other than the last one seen; the zero Holder is nobody.
func (n *candidate) saw(ctx context.Context, leader election.Holder) {
	if leader.PID != 0 {
		n.sees(leader.CandidateID, time.Now())
	}
	if !n.announcer.seesLeader() || n.past.seen == leader {
		return
	}
	n.announcer.post(n.announcer.leaderChanged(ctx, hooks.LeaderChanged{Previous: n.past.seen.CandidateID, Current: leader.CandidateID, PID: leader.PID}))
	n.past.seen = leader
}

// errClosing returns the error of a closed elector, which makes no attempt.
func (n *candidate) errClosing() error {
	if err := context.Cause(n.closing); err != nil {
		return election.Stopped(n.closing, "campaign")
	}
	return errors.New("elector: the session is closed")
}

package elector

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/deputy"
	"github.com/pgelector/pgelector/internal/fenced"
	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/handover"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/promotion"
	"github.com/pgelector/pgelector/internal/session"
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
	closing    context.Context // done when the elector, or its session, is closed
	terms      *gate.Gate      // attempts and terms: the session's, if there is one
	sender     *wakeup.Sender  // the session's, if there is one
	places     *promotion.Part // the session's, if there is one
	validation *validate.Part  // of the locks of its session

	source interface { // of the sessions that it leads on
		InTransaction() bool   // whether the last server was used in transaction scope
		ListensForLoss() error // nil if the loss of a session is listened for, or why it is not
	}

	// Touched by the campaign, and by its term, alone.
	acquirer lock.Acquirer
	lastRole lock.Standing
	wakeUps  *wakeup.Calls // nil without a notifier
	past     past          // who led before

	last atomic.Pointer[leaderSeen] // for LastLeader
}

func newCandidate(pool *sql.DB, election string, c config) *candidate {
	origin := hooks.Origin{Election: election, Key: c.key, CandidateID: c.candidateID}
	n := &candidate{terms: gate.New(), places: promotion.New(c.deputyInterval / 2), config: c, pool: pool, election: election, announcer: newAnnouncer(origin, c.hooks, c.lease),
		sender: wakeup.NewSender(pool, NotifyChannel, c.lease.Length)}
	n.past.met = summitOf(pool)
	n.monitor = newHealthMonitor(c.check, c.healthPolicy, func(cause error) {
		now := time.Now()
		n.past.ill.CompareAndSwap(nil, &now)
		n.report(context.Background(), hooks.Failure{Op: hooks.OpHealth, Err: cause})
	})
	return n
}

// onOwnSessions makes attempts on sessions of their own. A leader on one takes a seat by the acquirer.
func (e *Elector) onOwnSessions() (*lock.Dedicated, lock.Acquirer) {
	own := &lock.Dedicated{
		Config: lock.Config{Election: e.election, Key: e.key, ReportHolder: e.announcer.seesLeader, TokenEpoch: e.tokenEpoch,
			Pair: deputy.SeatKey(e.key), Unblock: fenced.TerminateOverdue},
		Source: session.NewSource(e.pool, e.sessions(e.pool, e.beat, e.hear, e.report, e.places, e.validation)),
	}
	return own, deputy.New(own, deputy.Config{Sit: e.takeover != Poll, SitInside: e.sitsInside(), Wait: e.takeover == Wait, Interval: e.deputyInterval,
		Retry: e.retryEvery, Offer: handover.OfferKey(e.candidateID, e.key), Succeed: handover.Succeed})
}

// retryEvery is the retry interval in force.
func (n *candidate) retryEvery() time.Duration {
	if n.source.InTransaction() {
		return n.retryInside
	}
	return n.retry
}

// recovered is for how long the candidate was unhealthy, once it is healthy again; else 0. It says so once.
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

// nobody leads.
var nobody lock.Holder

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

// saw reports a leader other than the last one seen.
func (n *candidate) saw(ctx context.Context, leader lock.Holder) {
	if leader.PID != 0 {
		n.sees(leader.CandidateID, time.Now())
	}
	leader = lock.Holder{PID: leader.PID, CandidateID: leader.CandidateID} // all that an attempt sees
	if !n.announcer.seesLeader() || n.past.seen == leader {
		return
	}
	n.announcer.post(n.announcer.leaderChanged(ctx, hooks.LeaderChanged{Previous: n.past.seen.CandidateID, Current: leader.CandidateID, PID: leader.PID}))
	n.past.seen = leader
}

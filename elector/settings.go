package elector

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/pgelector/pgelector/internal/election"
)

// Settings are what an elector keeps to, also what was not chosen.
type Settings struct {
	Lease             time.Duration
	HeartbeatInterval time.Duration
	Drain             time.Duration
	Validity          time.Duration // of an answered heartbeat: what the lease leaves for a leader to believe
	RetryInterval     time.Duration
	DeputyInterval    time.Duration
	Scope             Scope
	Takeover          Takeover
	Requests          bool
	BackoffMin        time.Duration
	BackoffMax        time.Duration
	MaxAttempts       int          // 0: no limit
	Health            HealthPolicy // without a check, Interval, StepDownAfter and CampaignAfter are 0

	// ValidateInterval is the time between two checks of the locks in pg_locks that is in force
	// (WithValidateInterval); 0 if there are none. In transaction scope it is the heartbeat interval,
	// because each heartbeat proves that the locks are held.
	ValidateInterval time.Duration

	LockDelay time.Duration // WithLockDelay; 0: off
	Hold      time.Duration // WithHold; 0: off

	Priority     int32         // WithPriority
	PreemptDelay time.Duration // WithPreemptDelay; 0 without WithPriority

	// ListensForLoss is whether a leader hears at once that the server has ended its session,
	// as it does with pgx. Otherwise, as with lib/pq, it looks every 250 ms. It is false before
	// the first attempt.
	ListensForLoss bool
}

// String is one line for a log, such as "lease=10s heartbeat=2s … takeover=deputy".
func (s Settings) String() string {
	return fmt.Sprintf("lease=%v heartbeat=%v drain=%v validity=%v retry=%v deputy=%v scope=%v takeover=%v requests=%t "+
		"backoff=%v..%v attempts=%d minimum=%v check=%v stepdown=%d campaign=%d stay=%t validate=%v lockdelay=%v hold=%v priority=%d preempt=%v listens=%t",
		s.Lease, s.HeartbeatInterval, s.Drain, s.Validity, s.RetryInterval, s.DeputyInterval, s.Scope, s.Takeover, s.Requests,
		s.BackoffMin, s.BackoffMax, s.MaxAttempts, s.Health.Minimum, s.Health.Interval, s.Health.StepDownAfter, s.Health.CampaignAfter, s.Health.StayWhenUnhealthy,
		s.ValidateInterval, s.LockDelay, s.Hold, s.Priority, s.PreemptDelay, s.ListensForLoss)
}

// String is the scope's name: "auto", "session" or "transaction".
func (s Scope) String() string { return nameOf("Scope", int(s), "auto", "session", "transaction") }

// String is the takeover's name: "deputy", "wait" or "poll".
func (t Takeover) String() string { return nameOf("Takeover", int(t), "deputy", "wait", "poll") }

func nameOf(kind string, n int, names ...string) string {
	if n < 0 || n >= len(names) {
		return fmt.Sprintf("%s(%d)", kind, n)
	}
	return names[n]
}

// String says who stands for what, and whether it leads now:
//
//	candidate "web-1" of election "orders", leading
func (e *Elector) String() string {
	text := fmt.Sprintf("candidate %q of election %q", e.candidateID, e.election)
	if e.IsLeader() {
		text += ", leading"
	}
	return text
}

// Settings returns what is in force. Those of transaction scope are in force once an attempt
// has found a transaction pooler, or with WithScope(TransactionScope).
func (e *Elector) Settings() Settings {
	s := Settings{Lease: e.lease.Length, HeartbeatInterval: e.lease.Heartbeat, Drain: e.lease.Drain, Validity: e.lease.Validity(),
		RetryInterval: e.retryEvery(), DeputyInterval: e.deputyInterval, Scope: e.scope, Takeover: e.takeover, Requests: e.takesRequests,
		BackoffMin: e.backoff.Min, BackoffMax: e.backoff.Max, MaxAttempts: e.maxAttempts, Health: e.healthPolicy,
		ValidateInterval: e.validation.InForce(e.lease.Heartbeat), LockDelay: e.lockDelay, Hold: e.hold, Priority: e.prefer.priority, PreemptDelay: e.prefer.delay, ListensForLoss: e.found.ListensForLoss() == nil}
	if e.found.InTransaction() {
		s.Scope, s.ValidateInterval = TransactionScope, s.HeartbeatInterval
		if !e.sitsInside() {
			s.Takeover = Poll
		}
	}
	return s
}

// Health returns what is known by the last check and the last report. It runs no check. Without either a
// candidate is healthy, with a score of 1.
func (e *Elector) Health() Health { return e.monitor.result() }

// ReportHealth says how fit the candidate is, beside the checks of WithHealth, or without any. The report
// counts at once, and until the next one: a leader that is unfit begins to step down before ReportHealth
// returns, unless its policy lets it stay, and a follower does not campaign.
func (e *Elector) ReportHealth(r HealthReport) {
	r.Metadata = maps.Clone(r.Metadata)
	e.monitor.push(healthOf(r))
}

// awaitFirstCheck waits for the first check. It returns an error if the candidate is
// unhealthy, or if ctx ends first.
func (e *Elector) awaitFirstCheck(ctx context.Context) error {
	select {
	case <-e.monitor.firstCheck():
	case <-ctx.Done():
		return election.Stopped(ctx, "check the candidate's health")
	}
	if healthy := e.monitor.healthy(); healthy.Err() != nil {
		return context.Cause(healthy)
	}
	return nil
}

// String names the term by its token, such as
//
//	term 281474976711399 of candidate "web-1" of election "orders"
//
// It does not say whether the term goes on.
func (t *Term) String() string {
	return fmt.Sprintf("term %d of candidate %q of election %q", t.Token(), t.candidateID, t.election)
}

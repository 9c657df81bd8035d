package elector

import (
	"context"
	"fmt"
	"time"
)

// Settings are the times that an elector keeps, also those that were not chosen.
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

	// ListensForLoss is whether a leader hears at once that the server has ended its session,
	// as it does with pgx. Otherwise, as with lib/pq, it looks every 250 ms. It is false before
	// the first attempt.
	ListensForLoss bool
}

// String is one line for a log, such as "lease=10s heartbeat=2s … takeover=deputy".
func (s Settings) String() string {
	return fmt.Sprintf("lease=%v heartbeat=%v drain=%v validity=%v retry=%v deputy=%v scope=%v takeover=%v requests=%t listens=%t",
		s.Lease, s.HeartbeatInterval, s.Drain, s.Validity, s.RetryInterval, s.DeputyInterval, s.Scope, s.Takeover, s.Requests, s.ListensForLoss)
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

// Settings returns the times, scope, takeover and requests in force. Those of transaction scope are in force once an attempt
// has found a transaction pooler, or with WithScope(TransactionScope).
func (e *Elector) Settings() Settings {
	s := Settings{Lease: e.lease.Length, HeartbeatInterval: e.lease.Heartbeat, Drain: e.lease.Drain, Validity: e.lease.Validity(),
		RetryInterval: e.retryEvery(), DeputyInterval: e.deputyInterval, Scope: e.scope, Takeover: e.takeover, Requests: e.takesRequests,
		ListensForLoss: e.source.ListensForLoss() == nil}
	if e.source.InTransaction() {
		s.Scope = TransactionScope
		if !e.sitsInside() {
			s.Takeover = Poll
		}
	}
	return s
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

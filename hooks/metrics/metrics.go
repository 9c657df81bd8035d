// Package metrics measures an election for any monitoring system. Prometheus and
// OpenTelemetry have adapters in packages beside it. For another system implement
// [Sink]:
//
//	hook := metrics.New(statsdSink{client})
//	e, err := elector.New(pool, "orders", elector.WithHooks(hook))
//
// # Counters and gauges
//
// The Sink feeds counters and histograms. Whether this process leads is not an event: a
// term that nobody extends ends silently, and a frozen process learns of it late. So call
// [Hook.Standings] each time a gauge is read or sent. It computes the answer from the
// clocks, as Elector.IsLeader does. Whether it is the deputy is as of the last attempt.
//
// # Labels
//
// The labels are the election and closed sets (hooks.Reason, hooks.Op, hooks.Outcome).
// The candidate id is no label: by default each process has a new one, so every restart
// would begin new time series. The collector identifies the process, for instance by
// Prometheus's label instance. Candidates of one process and one election are counted
// together.
//
// # Work in OnElected
//
// No other hook is called until OnElected returns. So a leader that works in its OnElected
// hook seems to lose the lead when its first validity is over. Work in lead, or in a
// goroutine.
package metrics

import (
	"context"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// Sink receives the measurements. One elector calls its methods one at a time and in order;
// electors that share a sink may call it concurrently. The methods must be quick: the next
// event waits for them, and TermEnded delays the release of the lock. ctx carries the
// values of the campaign's context.
type Sink interface {
	// TermBegan is called when a term has begun.
	TermBegan(ctx context.Context, election string)
	// TermEnded is called when a term has ended, and its work has returned.
	TermEnded(ctx context.Context, election string, reason hooks.Reason, held time.Duration)
	// HeartbeatAnswered is called after a heartbeat; took is the round trip.
	HeartbeatAnswered(ctx context.Context, election string, took time.Duration)
	// AttemptMade is called after each attempt to be elected.
	AttemptMade(ctx context.Context, election string, outcome hooks.Outcome, took time.Duration)
	// FailureSeen is called for every failure. The election is "" if the connection of an
	// elector.Session failed.
	FailureSeen(ctx context.Context, election string, op hooks.Op)
}

// Hook feeds a [Sink]. It is made by [New]. Any number of electors may share one Hook,
// also concurrently.
type Hook struct {
	standings
	sink Sink
}

var (
	_ hooks.ElectedHook   = (*Hook)(nil)
	_ hooks.DemotedHook   = (*Hook)(nil)
	_ hooks.ErrorHook     = (*Hook)(nil)
	_ hooks.HeartbeatHook = (*Hook)(nil)
	_ hooks.CampaignHook  = (*Hook)(nil)
)

// New returns a hook that feeds sink. A nil sink is for those who need only
// [Hook.Standings].
func New(sink Sink) *Hook {
	if sink == nil {
		sink = noSink{}
	}
	return &Hook{standings: standings{elections: map[string]*election{}}, sink: sink}
}

// OnElected records the new term and feeds the sink.
func (h *Hook) OnElected(ctx context.Context, e hooks.Elected) {
	h.began(ctx, e)
	h.sink.TermBegan(context.WithoutCancel(ctx), e.Election)
}

// OnDemoted removes the term and feeds the sink.
func (h *Hook) OnDemoted(ctx context.Context, e hooks.Demoted) {
	h.ended(e)
	h.sink.TermEnded(ctx, e.Election, e.Reason, e.Held)
}

// OnHeartbeat extends the term and feeds the sink.
func (h *Hook) OnHeartbeat(ctx context.Context, e hooks.Heartbeat) {
	h.extended(e)
	h.sink.HeartbeatAnswered(ctx, e.Election, e.Took)
}

// OnCampaign records whether the candidate is the deputy, and feeds the sink.
func (h *Hook) OnCampaign(ctx context.Context, e hooks.Campaign) {
	h.attempted(e)
	h.sink.AttemptMade(ctx, e.Election, e.Outcome, e.Took)
}

// OnError feeds the sink.
func (h *Hook) OnError(ctx context.Context, e hooks.Failure) {
	h.saw(e.Election)
	h.sink.FailureSeen(ctx, e.Election, e.Op)
}

type noSink struct{}

func (noSink) TermBegan(context.Context, string)                                 {}
func (noSink) TermEnded(context.Context, string, hooks.Reason, time.Duration)    {}
func (noSink) HeartbeatAnswered(context.Context, string, time.Duration)          {}
func (noSink) AttemptMade(context.Context, string, hooks.Outcome, time.Duration) {}
func (noSink) FailureSeen(context.Context, string, hooks.Op)                     {}

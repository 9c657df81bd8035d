// Package metrics turns what happens in an election into measurements, for any
// system that counts. Adapters for Prometheus and for OpenTelemetry are beside
// it; for another one implement [Sink], which has five methods:
//
//	hook := metrics.New(statsdSink{client})
//	e, err := elector.New(pool, "orders", elector.WithHooks(hook))
//
// # Counts are told, the standing is asked
//
// A counter or a histogram is fed by the Sink. Whether this process leads is
// not an event but a question: a term that nobody renews ends without anybody
// being told at that moment, and a process that was frozen is told late. So ask
// [Hook.Standings] whenever a gauge is read or sent; it computes its answer from
// the clocks at the time of the call, as Elector.IsLeader does.
//
// # Labels
//
// The election is the only label besides closed sets (hooks.Reason, hooks.Op,
// hooks.Outcome). The candidate id is none: the default one is new with each
// process, and every restart would begin new time series. The process is known
// by what collects the metrics, such as the label instance of Prometheus.
// Candidates of one process and one election are counted together.
//
// # Work in OnElected
//
// Hooks are called in order, and no other is called while an OnElected does
// not return. A leader that works in its OnElected hook therefore renews its
// standing once, at its election, and seems to lead no more when that first
// validity is over. Let lead work, or a goroutine.
package metrics

import (
	"context"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// Sink is told what happens. Its methods are called by the goroutines that call
// hooks: for one elector one at a time and in order, for electors that share the
// sink at the same time. They must be quick, since the next event waits for
// them, and TermEnded delays the release of the lock. The context carries the
// values of the one that the campaign was given.
type Sink interface {
	// TermBegan is called when a term has begun.
	TermBegan(ctx context.Context, election string)
	// TermEnded is called when a term has ended, and its work has returned.
	TermEnded(ctx context.Context, election string, reason hooks.Reason, held time.Duration)
	// HeartbeatAnswered is called after a heartbeat; took is the round trip.
	HeartbeatAnswered(ctx context.Context, election string, took time.Duration)
	// AttemptMade is called after each attempt to be elected.
	AttemptMade(ctx context.Context, election string, outcome hooks.Outcome, took time.Duration)
	// FailureSeen is called for everything that goes wrong. The election is "" for
	// what concerns the connection of an elector.Session.
	FailureSeen(ctx context.Context, election string, op hooks.Op)
}

// Hook feeds a [Sink]. It is made by [New]. One Hook may be shared by any
// number of electors, also concurrently, such as all those of an
// elector.Session.
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

// New returns a hook that tells sink what happens. A nil sink is for those who
// want no more than [Hook.Standings].
func New(sink Sink) *Hook {
	if sink == nil {
		sink = nowhere{}
	}
	return &Hook{standings: standings{elections: map[string]map[hooks.Origin]term{}}, sink: sink}
}

// OnElected notes the new term and tells the sink.
func (h *Hook) OnElected(ctx context.Context, e hooks.Elected) {
	h.began(ctx, e)
	h.sink.TermBegan(context.WithoutCancel(ctx), e.Election)
}

// OnDemoted forgets the term and tells the sink.
func (h *Hook) OnDemoted(ctx context.Context, e hooks.Demoted) {
	h.ended(e)
	h.sink.TermEnded(ctx, e.Election, e.Reason, e.Held)
}

// OnHeartbeat extends the term and tells the sink.
func (h *Hook) OnHeartbeat(ctx context.Context, e hooks.Heartbeat) {
	h.extended(e)
	h.sink.HeartbeatAnswered(ctx, e.Election, e.Took)
}

// OnCampaign tells the sink.
func (h *Hook) OnCampaign(ctx context.Context, e hooks.Campaign) {
	h.met(e.Election)
	h.sink.AttemptMade(ctx, e.Election, e.Outcome, e.Took)
}

// OnError tells the sink.
func (h *Hook) OnError(ctx context.Context, e hooks.Failure) {
	h.met(e.Election)
	h.sink.FailureSeen(ctx, e.Election, e.Op)
}

// nowhere is the sink of those who want none.
type nowhere struct{}

func (nowhere) TermBegan(context.Context, string)                                 {}
func (nowhere) TermEnded(context.Context, string, hooks.Reason, time.Duration)    {}
func (nowhere) HeartbeatAnswered(context.Context, string, time.Duration)          {}
func (nowhere) AttemptMade(context.Context, string, hooks.Outcome, time.Duration) {}
func (nowhere) FailureSeen(context.Context, string, hooks.Op)                     {}

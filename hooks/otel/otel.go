// Package otelhooks tells OpenTelemetry what happens in an election: metrics,
// and a trace of each term.
//
//	hook, err := otelhooks.New(meterProvider, tracerProvider)
//	e, err := elector.New(pool, "orders", elector.WithHooks(hook))
//
// Providers are passed in; the global ones are not touched.
//
// # Metrics
//
// All have the attribute pgelector.election, and no other but those listed; see
// package metrics for why the candidate id is none.
//
//	pgelector.leader               gauge      1          1 if this process leads, else 0
//	pgelector.validity.remaining   gauge      s          until the term ends unless a heartbeat extends it; 0 if not leading
//	pgelector.terms.started        counter    {term}     terms that began
//	pgelector.terms.ended          counter    {term}     terms that ended; pgelector.reason
//	pgelector.term.duration        histogram  s          terms that ended: how long each was held
//	pgelector.heartbeat.duration   histogram  s          answered heartbeats: the round trip
//	pgelector.campaign.attempts    counter    {attempt}  attempts to be elected; pgelector.outcome
//	pgelector.failures             counter    {failure}  what went wrong; pgelector.op
//
// The gauges are computed when they are collected, and never say that this
// process leads when its validity has run out.
//
// # Traces
//
//	pgelector.campaign     from the start of a campaign to the election, or to the failure that ended it (its last
//	                       attempt only); a child of the span that Run, Campaign or TryCampaign was called in
//	pgelector.term         the term: a trace of its own, linked to the campaign; an error unless it was given up;
//	                       what fails meanwhile are its events
//	pgelector.resignation  in the term's trace: from the end of a term that was given up until its work has returned
//	pgelector.demotion     the same, of a term that was taken away
//
// A term may last for months, so what it does is no child of it: the work's
// spans are traces of their own, each with a link to the term, made by
// [Hook.WithTerm] and [Link]:
//
//	err := e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
//		ctx = hook.WithTerm(ctx, e.Election(), term.Token())
//		…
//		ctx, span := tracer.Start(ctx, "publish", otelhooks.Link(ctx))
//
// A span is exported when it ends, so that of a term shows when the term is over,
// and never if the process is killed. The link has the election and the token.
package otelhooks

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/metrics"
)

// scope is the name under which the metrics and spans are made.
const scope = "github.com/pgelector/pgelector/hooks/otel"

// Hook measures and traces. It is made by [New]. One Hook may be shared by any
// number of electors, also concurrently.
type Hook struct {
	events *metrics.Hook
	spans  *spans
}

var (
	_ hooks.ElectedHook   = (*Hook)(nil)
	_ hooks.DemotedHook   = (*Hook)(nil)
	_ hooks.ErrorHook     = (*Hook)(nil)
	_ hooks.HeartbeatHook = (*Hook)(nil)
	_ hooks.CampaignHook  = (*Hook)(nil)
)

// New returns a hook that measures by the one provider and traces by the other.
// A nil provider leaves its kind out; it is an error if both are nil, or if an
// instrument cannot be made.
func New(meters metric.MeterProvider, tracers trace.TracerProvider) (*Hook, error) {
	if meters == nil && tracers == nil {
		return nil, errors.New("otelhooks: both providers are nil: pass a metric.MeterProvider, a trace.TracerProvider, or both")
	}
	if meters == nil {
		meters = metricnoop.NewMeterProvider()
	}
	if tracers == nil {
		tracers = tracenoop.NewTracerProvider()
	}
	sink, err := newInstruments(meters.Meter(scope))
	if err != nil {
		return nil, err
	}
	events := metrics.New(sink)
	if err := sink.observe(events); err != nil {
		return nil, err
	}
	return &Hook{events: events, spans: newSpans(tracers.Tracer(scope))}, nil
}

// OnElected measures, records the campaign's span and begins the term's.
func (h *Hook) OnElected(ctx context.Context, e hooks.Elected) {
	h.events.OnElected(ctx, e)
	h.spans.elected(ctx, e)
}

// OnDemoted measures, and ends the term's span.
func (h *Hook) OnDemoted(ctx context.Context, e hooks.Demoted) {
	h.events.OnDemoted(ctx, e)
	h.spans.demoted(ctx, e)
}

// OnHeartbeat measures.
func (h *Hook) OnHeartbeat(ctx context.Context, e hooks.Heartbeat) { h.events.OnHeartbeat(ctx, e) }

// OnCampaign measures, and records the span of a campaign that failed.
func (h *Hook) OnCampaign(ctx context.Context, e hooks.Campaign) {
	h.events.OnCampaign(ctx, e)
	h.spans.attempted(ctx, e)
}

// OnError measures, and adds an event to the span of the term that goes on.
func (h *Hook) OnError(ctx context.Context, e hooks.Failure) {
	h.events.OnError(ctx, e)
	h.spans.failed(e)
}

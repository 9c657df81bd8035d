// Package otelhooks measures an election for OpenTelemetry, and traces its terms.
//
//	hook, err := otelhooks.New(meterProvider, tracerProvider)
//	e, err := elector.New(pool, "orders", elector.WithHooks(hook))
//
// It does not use the global providers.
//
// # Metrics
//
// All have the attribute pgelector.election, and the other attributes listed. Package
// metrics says why the candidate id is none.
//
//	pgelector.leader               gauge      1          1 if this process leads, else 0
//	pgelector.deputy               gauge      1          1 if this process is the deputy, else 0; absent if it never becomes it (elector.Poll)
//	pgelector.transaction_scope    gauge      1          1 if this process leads, or would, inside a transaction (elector.TransactionScope), else 0
//	pgelector.validity.remaining   gauge      s          until the term ends unless a heartbeat extends it; 0 if not leading
//	pgelector.terms.started        counter    {term}     terms that began
//	pgelector.terms.ended          counter    {term}     terms that ended; pgelector.reason
//	pgelector.term.duration        histogram  s          terms that ended: how long each was held
//	pgelector.heartbeat.duration   histogram  s          answered heartbeats: the round trip
//	pgelector.campaign.attempts    counter    {attempt}  attempts to be elected; pgelector.outcome
//	pgelector.failures             counter    {failure}  what went wrong; pgelector.op
//
// The gauges of a term are computed when they are collected. They never say that this
// process leads after its validity has run out.
//
// # Traces
//
//	pgelector.campaign     from the start of a campaign to the election; of a failed campaign, its last attempt;
//	                       a child of the span in which Run, Campaign or TryCampaign was called
//	pgelector.term         the term: a separate trace, linked to the campaign; an error unless the term was resigned
//	                       or shut down; failures are its events
//	pgelector.resignation  in the term's trace: from the end of a resigned or shut down term until its work has returned
//	pgelector.demotion     the same for a term that was lost
//
// A term may last for months, so the work's spans are not its children. They are separate
// traces with a link to the term, made by [Hook.WithTerm] and [Link]:
//
//	err := e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
//		ctx = hook.WithTerm(ctx, e.Election(), term.Token())
//		…
//		ctx, span := tracer.Start(ctx, "publish", otelhooks.Link(ctx))
//
// A span is exported when it ends: the span of a term appears after the term, and never if
// the process is killed. The link carries the election and the token.
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

// scope is the instrumentation scope.
const scope = "github.com/pgelector/pgelector/hooks/otel"

// Hook measures and traces. It is made by [New]. Any number of electors may share one Hook,
// also concurrently.
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

// New returns a hook that measures with meters and traces with tracers. One of them may be
// nil. New returns an error if both are nil, or if it cannot create an instrument.
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

// OnElected measures, records the campaign's span and starts the term's.
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

// OnError measures, and adds an event to the span of the current term.
func (h *Hook) OnError(ctx context.Context, e hooks.Failure) {
	h.events.OnError(ctx, e)
	h.spans.failed(e)
}

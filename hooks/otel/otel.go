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
//	pgelector.ticks                counter    {tick}     ticks: pgelector.kind, and pgelector.schedule instead of the election (Hook.Ticks)
//
// The gauges of a term are computed when they are collected. They never say that this
// process leads after its validity has run out. They end when all electors of an election are
// closed; the counters of OpenTelemetry cannot end.
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
// Each has db.system.name, and with [WithServer] db.namespace, server.address and server.port.
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
//
// If a term ends before OnElected could be called, its span, which WithTerm started, ends with the
// next term or when the electors are closed, and has no reason.
package otelhooks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/metrics"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// scope is the instrumentation scope.
const scope = "github.com/pgelector/pgelector/hooks/otel"

// Hook measures and traces. It is made by [New]. Any number of electors may share one Hook,
// also concurrently.
type Hook struct {
	events *metrics.Hook
	spans  *spans
	ticks  metric.Int64Counter
}

var (
	_ hooks.ElectedHook   = (*Hook)(nil)
	_ hooks.DemotedHook   = (*Hook)(nil)
	_ hooks.ErrorHook     = (*Hook)(nil)
	_ hooks.HeartbeatHook = (*Hook)(nil)
	_ hooks.CampaignHook  = (*Hook)(nil)
	_ hooks.ClosedHook    = (*Hook)(nil)
)

// New returns a hook that measures with meters and traces with tracers. One of them may be
// nil. New returns an error if both are nil, or if it cannot create an instrument.
func New(meters metric.MeterProvider, tracers trace.TracerProvider, opts ...Option) (*Hook, error) {
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
	h := &Hook{events: events, spans: newSpans(tracers.Tracer(scope)), ticks: sink.ticks}
	h.spans.server = []attribute.KeyValue{attribute.String("db.system.name", "postgresql")}
	for _, opt := range opts {
		opt(h)
	}
	return h, nil
}

// Option is a setting of [New].
type Option func(*Hook)

// WithServer has each span say which database the elections are in: the attributes db.namespace, server.address
// and, unless it is 0, server.port. An elector knows only a pool, so it cannot tell.
func WithServer(database, address string, port int) Option {
	return func(h *Hook) {
		h.spans.server = append(h.spans.server, attribute.String("db.namespace", metrics.Label(database)), attribute.String("server.address", metrics.Label(address)))
		if port != 0 {
			h.spans.server = append(h.spans.server, attribute.Int("server.port", port))
		}
	}
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

// OnClosed ends the gauges of an election without a candidate, and forgets its terms.
func (h *Hook) OnClosed(ctx context.Context, e hooks.Closed) {
	h.events.OnClosed(ctx, e)
	h.spans.closed(e)
}

// OnError measures, and adds an event to the span of the current term.
func (h *Hook) OnError(ctx context.Context, e hooks.Failure) {
	h.events.OnError(ctx, e)
	h.spans.failed(e)
}

// Ticks counts ticks: it is for ticks.WithCounter. It may be called from any goroutine.
func (h *Hook) Ticks(schedule, kind string, n int) {
	h.ticks.Add(context.Background(), int64(n), metric.WithAttributes(kindKey.String(kind), scheduleKey.String(metrics.Label(schedule))))
}

// instruments is the sink that feeds OpenTelemetry.
type instruments struct {
	meter                            metric.Meter
	began, ended, attempts, failures metric.Int64Counter
	ticks                            metric.Int64Counter
	held, heartbeats                 metric.Float64Histogram
	leader, deputy, scope            metric.Int64ObservableGauge
	remaining                        metric.Float64ObservableGauge
}

var _ metrics.Sink = (*instruments)(nil)

func newInstruments(meter metric.Meter) (*instruments, error) {
	var failed error
	note := func(err error) { failed = errors.Join(failed, err) }
	counter := func(name, unit, what string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		note(err)
		return c
	}
	seconds := func(name, what string, bounds ...float64) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
		note(err)
		return h
	}
	const minute, hour = 60, 3600
	i := &instruments{
		meter:    meter,
		began:    counter("pgelector.terms.started", "{term}", "Terms of this process that began."),
		ended:    counter("pgelector.terms.ended", "{term}", "Terms of this process that ended, by reason."),
		attempts: counter("pgelector.campaign.attempts", "{attempt}", "Attempts of this process to be elected, by outcome."),
		failures: counter("pgelector.failures", "{failure}", "Failures, by operation."),
		ticks:    counter("pgelector.ticks", "{tick}", "Ticks of the schedule in this process, by what happened to them."),
		held: seconds("pgelector.term.duration", "The duration of ended terms.",
			1, 10, minute, 10*minute, hour, 6*hour, 24*hour, 7*24*hour),
		heartbeats: seconds("pgelector.heartbeat.duration", "The round trips of answered heartbeats.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10),
	}
	var err error
	i.leader, err = meter.Int64ObservableGauge("pgelector.leader", metric.WithUnit("1"),
		metric.WithDescription("1 if this process leads the election, by its clock at the time of the collection, else 0."))
	note(err)
	i.deputy, err = meter.Int64ObservableGauge("pgelector.deputy", metric.WithUnit("1"),
		metric.WithDescription("1 if this process is the deputy of the election's leader, else 0; absent if it never becomes the deputy."))
	note(err)
	i.scope, err = meter.Int64ObservableGauge("pgelector.transaction_scope", metric.WithUnit("1"),
		metric.WithDescription("1 if this process holds the lock inside a transaction when it leads, as through a transaction pooler, else 0."))
	note(err)
	i.remaining, err = meter.Float64ObservableGauge("pgelector.validity.remaining", metric.WithUnit("s"),
		metric.WithDescription("The time until the term ends unless a heartbeat extends it; 0 if this process does not lead."))
	note(err)
	if failed != nil {
		return nil, fmt.Errorf("otelhooks: create the instruments: %w", failed)
	}
	return i, nil
}

// observe registers the gauges' callback.
func (i *instruments) observe(events *metrics.Hook) error {
	_, err := i.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, s := range events.Standings() {
			o.ObserveInt64(i.leader, number(s.Leading), of(s.Election))
			o.ObserveInt64(i.scope, number(s.InTransaction), of(s.Election))
			if !s.Polls {
				o.ObserveInt64(i.deputy, number(s.Deputy), of(s.Election))
			}
			o.ObserveFloat64(i.remaining, s.Left.Seconds(), of(s.Election))
		}
		return nil
	}, i.leader, i.deputy, i.scope, i.remaining)
	if err != nil {
		return fmt.Errorf("otelhooks: observe the gauges: %w", err)
	}
	return nil
}

func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// The attributes of metrics and spans.
const (
	electionKey  = attribute.Key("pgelector.election")
	candidateKey = attribute.Key("pgelector.candidate")
	lockKey      = attribute.Key("pgelector.key")
	tokenKey     = attribute.Key("pgelector.token")
	reasonKey    = attribute.Key("pgelector.reason")
	outcomeKey   = attribute.Key("pgelector.outcome")
	opKey        = attribute.Key("pgelector.op")
	kindKey      = attribute.Key("pgelector.kind")
	scheduleKey  = attribute.Key("pgelector.schedule")
	attemptsKey  = attribute.Key("pgelector.attempts")
)

// of returns the attributes of a measurement.
func of(election string, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, electionKey.String(metrics.Label(election)))...)
}

func (i *instruments) TermBegan(ctx context.Context, election string) {
	i.began.Add(ctx, 1, of(election))
}

func (i *instruments) TermEnded(ctx context.Context, election string, reason hooks.Reason, held time.Duration) {
	i.ended.Add(ctx, 1, of(election, reasonKey.String(string(reason))))
	i.held.Record(ctx, held.Seconds(), of(election))
}

func (i *instruments) HeartbeatAnswered(ctx context.Context, election string, took time.Duration) {
	i.heartbeats.Record(ctx, took.Seconds(), of(election))
}

func (i *instruments) AttemptMade(ctx context.Context, election string, outcome hooks.Outcome, _ time.Duration) {
	i.attempts.Add(ctx, 1, of(election, outcomeKey.String(string(outcome))))
}

func (i *instruments) FailureSeen(ctx context.Context, election string, op hooks.Op) {
	i.failures.Add(ctx, 1, of(election, opKey.String(string(op))))
}

// spans starts and ends the spans of campaigns and terms.
type spans struct {
	server []attribute.KeyValue // of every span
	tracer trace.Tracer

	mu        sync.Mutex
	elections map[string]*election
}

// election is what is known of an election of which a candidate is not closed, or that
// WithTerm named.
type election struct {
	candidates map[hooks.Origin]*candidate
	current    map[int64]trace.Span // by token, from OnElected to OnDemoted
	early      early                // at most one: terms follow each other
	last       ended
}

// candidate is one that is not closed.
type candidate struct {
	granted int            // the attempt that was granted, between OnCampaign and OnElected
	failure *hooks.Failure // of an attempt, between OnError and OnCampaign
	leading int64          // the token of the current term, from OnElected on; else 0
}

// early is a term's span that WithTerm started, until OnElected. That is never called if the term
// ends before.
type early struct {
	token int64
	span  trace.Span // nil if there is none
}

// ended is the newest ended term; its token is 0 if there is none.
type ended struct {
	token int64
	span  trace.SpanContext
}

func newSpans(tracer trace.Tracer) *spans {
	return &spans{tracer: tracer, elections: map[string]*election{}}
}

// election returns what is known of an election, and adds it if it is new.
func (s *spans) election(name string) *election {
	of := s.elections[name]
	if of == nil {
		of = &election{candidates: map[hooks.Origin]*candidate{}, current: map[int64]trace.Span{}}
		s.elections[name] = of
	}
	return of
}

// candidate returns what is known of a candidate and its election, and adds them if they are new.
func (s *spans) candidate(who hooks.Origin) (*election, *candidate) {
	of := s.election(who.Election)
	c := of.candidates[who]
	if c == nil {
		c = &candidate{}
		of.candidates[who] = c
	}
	return of, c
}

// attempted records the span of a campaign that failed for good. For a granted one it keeps
// the number of attempts, for elected. On a shared session each attempt that fails has no next.
func (s *spans) attempted(ctx context.Context, e hooks.Campaign) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, c := s.candidate(e.Origin)
	failure := c.failure
	c.failure = nil
	switch {
	case e.Outcome == hooks.Granted:
		c.granted = e.Attempt
	case e.Outcome == hooks.Failed && e.Next == 0 && failure != nil && (failure.Permanent || e.Attempt == 1):
		_, span := s.tracer.Start(ctx, "pgelector.campaign", trace.WithTimestamp(e.At.Add(-e.Took)),
			trace.WithAttributes(s.about(e.Origin, attemptsKey.Int(e.Attempt))...))
		span.RecordError(valid(failure.Err), trace.WithTimestamp(e.At))
		span.SetStatus(codes.Error, fmt.Sprint(valid(failure.Err)))
		span.End(trace.WithTimestamp(e.At))
	}
}

// elected records the campaign's span and starts the term's.
func (s *spans) elected(ctx context.Context, e hooks.Elected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, c := s.candidate(e.Origin)
	_, campaign := s.tracer.Start(ctx, "pgelector.campaign", trace.WithTimestamp(e.At.Add(-e.Campaigned)),
		trace.WithAttributes(s.about(e.Origin, attemptsKey.Int(c.granted))...))
	campaign.End(trace.WithTimestamp(e.At))

	term := of.claim(e.Token)
	if term == nil {
		term = s.start(ctx, termKey{e.Election, e.Token}, trace.WithTimestamp(e.At))
	}
	term.AddLink(trace.Link{SpanContext: campaign.SpanContext()})
	term.SetAttributes(s.about(e.Origin)...)
	of.current[e.Token] = term
	c.granted, c.leading = 0, e.Token
}

// start starts the span of a term.
func (s *spans) start(ctx context.Context, key termKey, opts ...trace.SpanStartOption) trace.Span {
	_, span := s.tracer.Start(ctx, "pgelector.term", append(opts, trace.WithNewRoot(), trace.WithAttributes(key.attributes()...))...)
	return span
}

// claim returns the early span if it is that of a term, else nil. It ends that of an earlier term.
func (e *election) claim(token int64) trace.Span {
	span := e.early.span
	if span == nil || e.early.token > token {
		return nil
	}
	same := e.early.token == token
	e.early = early{}
	if !same {
		span.End()
		return nil
	}
	return span
}

// failed adds an event to the current term's span.
func (s *spans) failed(e hooks.Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Op == hooks.OpCampaign {
		_, c := s.candidate(e.Origin)
		c.failure = &e
		return
	}
	of := s.elections[e.Election]
	if of == nil || of.candidates[e.Origin] == nil {
		return
	}
	if term := of.current[of.candidates[e.Origin].leading]; term != nil {
		term.RecordError(valid(e.Err), trace.WithTimestamp(e.At), trace.WithAttributes(opKey.String(string(e.Op))))
	}
}

// demoted ends the term's span, and records the resignation or demotion.
func (s *spans) demoted(ctx context.Context, e hooks.Demoted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, c := s.candidate(e.Origin)
	term := of.current[e.Token]
	if term == nil {
		term = s.start(ctx, termKey{e.Election, e.Token})
	}
	of.last = ended{e.Token, term.SpanContext()}
	delete(of.current, e.Token)
	if c.leading == e.Token { // else another elector with the same candidate id leads
		c.leading = 0
	}

	term.SetAttributes(reasonKey.String(string(e.Reason)))
	name := "pgelector.resignation"
	if e.Reason != hooks.Resigned && e.Reason != hooks.Requested && e.Reason != hooks.Preempted && e.Reason != hooks.Shutdown {
		name = "pgelector.demotion"
		term.SetStatus(codes.Error, fmt.Sprint(valid(e.Err)))
	}
	_, ending := s.tracer.Start(trace.ContextWithSpan(ctx, term), name, trace.WithTimestamp(e.At),
		trace.WithAttributes(s.about(e.Origin, tokenKey.Int64(e.Token), reasonKey.String(string(e.Reason)))...))
	ending.End()
	term.End(trace.WithTimestamp(e.At))
}

// closed forgets a candidate, unless an elector with the same candidate id leads, and an election
// whose candidates are all closed.
func (s *spans) closed(e hooks.Closed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, c := s.candidate(e.Origin)
	if c.leading != 0 {
		return
	}
	delete(of.candidates, e.Origin)
	if len(of.candidates) > 0 {
		return
	}
	if of.early.span != nil {
		of.early.span.End()
	}
	delete(s.elections, e.Election)
}

// valid returns an error whose text is UTF-8, as exporters want it. That of a server that starts may
// have the server's own encoding.
func valid(err error) error {
	if text := fmt.Sprint(err); !utf8.ValidString(text) {
		return errors.New(strings.ToValidUTF8(text, "\uFFFD"))
	}
	return err
}

// about returns the attributes of a candidate's span, and of its server.
func (s *spans) about(o hooks.Origin, more ...attribute.KeyValue) []attribute.KeyValue {
	return append(append(more, s.server...), electionKey.String(metrics.Label(o.Election)), candidateKey.String(o.CandidateID), lockKey.Int64(o.Key))
}

// termKey identifies a term.
type termKey struct {
	election string
	token    int64
}

func (k termKey) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{electionKey.String(metrics.Label(k.election)), tokenKey.Int64(k.token)}
}

type linkKey struct{}

// WithTerm returns a context with which [Link] links spans to the term's span. The hook
// must be among the hooks of the term's elector. WithTerm may be called at any time, also
// before OnElected, which runs concurrently with the work. Pass the work's context: once it is
// done, WithTerm starts no span.
func (h *Hook) WithTerm(ctx context.Context, election string, token int64) context.Context {
	key := termKey{election, token}
	return context.WithValue(ctx, linkKey{}, trace.Link{SpanContext: h.spans.contextOf(ctx, key), Attributes: key.attributes()})
}

// contextOf returns the span context of a term. It starts the span if the term has none,
// unless the term is over: nobody would end that span. Terms before the last one are
// forgotten.
func (s *spans) contextOf(ctx context.Context, key termKey) trace.SpanContext {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.elections[key.election]
	if of == nil {
		of = &election{}
	}
	switch span := of.current[key.token]; {
	case span != nil:
		return span.SpanContext()
	case of.early.span != nil && of.early.token == key.token:
		return of.early.span.SpanContext()
	case of.last.token == key.token:
		return of.last.span
	case ctx.Err() != nil || max(of.last.token, of.early.token) > key.token:
		return trace.SpanContext{}
	}
	of = s.election(key.election)
	of.claim(key.token)
	of.early = early{key.token, s.start(ctx, key)}
	return of.early.span.SpanContext()
}

// Link returns an option that links a span to the term of a ctx from [Hook.WithTerm]. The
// link carries the election and the token. Without a term the option does nothing.
func Link(ctx context.Context) trace.SpanStartOption {
	if link, ok := ctx.Value(linkKey{}).(trace.Link); ok && link.SpanContext.IsValid() {
		return trace.WithLinks(link)
	}
	return trace.WithLinks()
}

package otelhooks

import (
	"context"
	"fmt"
	"sync"

	"github.com/pgelector/pgelector/hooks"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// spans starts and ends the spans of campaigns and terms.
type spans struct {
	tracer trace.Tracer

	mu      sync.Mutex
	current map[termKey]trace.Span      // current terms, started by OnElected or WithTerm
	leading map[hooks.Origin]trace.Span // current terms by candidate, from OnElected on
	last    map[string]ended            // the newest ended term of each election
	granted map[hooks.Origin]int        // the attempt that was granted, between OnCampaign and OnElected
	failure map[hooks.Origin]error      // why an attempt failed, between OnError and OnCampaign
}

// termKey identifies a term.
type termKey struct {
	election string
	token    int64
}

type ended struct {
	token int64
	span  trace.SpanContext
}

func newSpans(tracer trace.Tracer) *spans {
	return &spans{
		tracer:  tracer,
		current: map[termKey]trace.Span{},
		leading: map[hooks.Origin]trace.Span{},
		last:    map[string]ended{},
		granted: map[hooks.Origin]int{},
		failure: map[hooks.Origin]error{},
	}
}

// attempted records the span of a campaign that failed for good. For a granted one it keeps
// the number of attempts, for elected.
func (s *spans) attempted(ctx context.Context, e hooks.Campaign) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.failure[e.Origin]
	delete(s.failure, e.Origin)
	switch {
	case e.Outcome == hooks.Granted:
		s.granted[e.Origin] = e.Attempt
	case e.Outcome == hooks.Failed && e.Next == 0:
		_, span := s.tracer.Start(ctx, "pgelector.campaign", trace.WithTimestamp(e.At.Add(-e.Took)),
			trace.WithAttributes(about(e.Origin, attemptsKey.Int(e.Attempt))...))
		if err != nil {
			span.RecordError(err, trace.WithTimestamp(e.At))
			span.SetStatus(codes.Error, err.Error())
		}
		span.End(trace.WithTimestamp(e.At))
	}
}

// elected records the campaign's span and starts the term's.
func (s *spans) elected(ctx context.Context, e hooks.Elected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, campaign := s.tracer.Start(ctx, "pgelector.campaign", trace.WithTimestamp(e.At.Add(-e.Waited)),
		trace.WithAttributes(about(e.Origin, attemptsKey.Int(s.granted[e.Origin]))...))
	campaign.End(trace.WithTimestamp(e.At))
	delete(s.granted, e.Origin)

	term := s.term(ctx, termKey{e.Election, e.Token}, trace.WithTimestamp(e.At))
	term.AddLink(trace.Link{SpanContext: campaign.SpanContext()})
	term.SetAttributes(about(e.Origin)...)
	s.leading[e.Origin] = term
}

// term returns the span of a term, and starts it if there is none.
func (s *spans) term(ctx context.Context, key termKey, opts ...trace.SpanStartOption) trace.Span {
	span := s.current[key]
	if span == nil {
		_, span = s.tracer.Start(ctx, "pgelector.term", append(opts, trace.WithNewRoot(), trace.WithAttributes(key.attributes()...))...)
		s.current[key] = span
	}
	return span
}

// failed adds an event to the current term's span.
func (s *spans) failed(e hooks.Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Op == hooks.OpCampaign {
		s.failure[e.Origin] = e.Err
		return
	}
	if term := s.leading[e.Origin]; term != nil {
		term.RecordError(e.Err, trace.WithTimestamp(e.At), trace.WithAttributes(opKey.String(string(e.Op))))
	}
}

// demoted ends the term's span, and records the resignation or demotion.
func (s *spans) demoted(ctx context.Context, e hooks.Demoted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := termKey{e.Election, e.Token}
	term := s.term(ctx, key)
	s.last[e.Election] = ended{e.Token, term.SpanContext()}
	delete(s.current, key)
	delete(s.leading, e.Origin)

	term.SetAttributes(reasonKey.String(string(e.Reason)))
	name := "pgelector.resignation"
	if e.Reason != hooks.Resigned && e.Reason != hooks.Requested && e.Reason != hooks.Shutdown {
		name = "pgelector.demotion"
		term.SetStatus(codes.Error, fmt.Sprint(e.Err))
	}
	_, ending := s.tracer.Start(trace.ContextWithSpan(ctx, term), name, trace.WithTimestamp(e.At),
		trace.WithAttributes(about(e.Origin, tokenKey.Int64(e.Token), reasonKey.String(string(e.Reason)))...))
	ending.End()
	term.End(trace.WithTimestamp(e.At))
}

// about returns the attributes of a candidate's span.
func about(o hooks.Origin, more ...attribute.KeyValue) []attribute.KeyValue {
	return append(more, electionKey.String(o.Election), candidateKey.String(o.CandidateID), lockKey.Int64(o.Key))
}

func (k termKey) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{electionKey.String(k.election), tokenKey.Int64(k.token)}
}

type linkKey struct{}

// WithTerm returns a context with which [Link] links spans to the term's span. The hook
// must be among the hooks of the term's elector. WithTerm may be called at any time, also
// before OnElected, which runs concurrently with the work.
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
	switch last, known := s.last[key.election]; {
	case known && last.token == key.token:
		return last.span
	case known && last.token > key.token:
		return trace.SpanContext{}
	}
	return s.term(ctx, key).SpanContext()
}

// Link returns an option that links a span to the term of a ctx from [Hook.WithTerm]. The
// link carries the election and the token. Without a term the option does nothing.
func Link(ctx context.Context) trace.SpanStartOption {
	if link, ok := ctx.Value(linkKey{}).(trace.Link); ok && link.SpanContext.IsValid() {
		return trace.WithLinks(link)
	}
	return trace.WithLinks()
}

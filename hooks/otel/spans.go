package otelhooks

import (
	"context"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/pgelector/pgelector/hooks"
)

// spans are those of campaigns and terms.
type spans struct {
	tracer trace.Tracer

	mu      sync.Mutex
	going   map[termKey]trace.Span      // terms that have begun: told by the elector or by the work, whichever was first
	leading map[hooks.Origin]trace.Span // the same, by their candidates, once the elector has told
	last    map[string]ended            // the newest term that has ended, of each election
	granted map[hooks.Origin]int        // which attempt it was, from OnCampaign until OnElected, which comes next
	failure map[hooks.Origin]error      // why an attempt failed, from OnError until OnCampaign, which comes next
}

// termKey names a term: of one election no two have the same token.
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
		going:   map[termKey]trace.Span{},
		leading: map[hooks.Origin]trace.Span{},
		last:    map[string]ended{},
		granted: map[hooks.Origin]int{},
		failure: map[hooks.Origin]error{},
	}
}

// attempted records a campaign that failed for good; of one that was granted it
// notes what its span is to tell.
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

// elected records the campaign, which is over, and begins the term.
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

// term returns the span of a term, which it begins if need be.
func (s *spans) term(ctx context.Context, key termKey, opts ...trace.SpanStartOption) trace.Span {
	span := s.going[key]
	if span == nil {
		_, span = s.tracer.Start(ctx, "pgelector.term", append(opts, trace.WithNewRoot(), trace.WithAttributes(key.attributes()...))...)
		s.going[key] = span
	}
	return span
}

// failed adds an event to the term that goes on.
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

// demoted ends the term, and records how it was wound down.
func (s *spans) demoted(ctx context.Context, e hooks.Demoted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := termKey{e.Election, e.Token}
	term := s.term(ctx, key)
	s.last[e.Election] = ended{e.Token, term.SpanContext()}
	delete(s.going, key)
	delete(s.leading, e.Origin)

	term.SetAttributes(reasonKey.String(string(e.Reason)))
	name := "pgelector.resignation"
	if e.Reason != hooks.Resigned && e.Reason != hooks.Shutdown {
		name = "pgelector.demotion"
		term.SetStatus(codes.Error, fmt.Sprint(e.Err))
	}
	_, wound := s.tracer.Start(trace.ContextWithSpan(ctx, term), name, trace.WithTimestamp(e.At),
		trace.WithAttributes(about(e.Origin, tokenKey.Int64(e.Token), reasonKey.String(string(e.Reason)))...))
	wound.End()
	term.End(trace.WithTimestamp(e.At))
}

// about are the attributes of a candidate's span.
func about(o hooks.Origin, more ...attribute.KeyValue) []attribute.KeyValue {
	return append(more, electionKey.String(o.Election), candidateKey.String(o.CandidateID), lockKey.Int64(o.Key))
}

func (k termKey) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{electionKey.String(k.election), tokenKey.Int64(k.token)}
}

package otelhooks

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

type linkKey struct{}

// WithTerm returns a context by which [Link] links spans to the term's span. The
// hook must be one of the elector whose term it is. It may be called at any
// time, also before OnElected, which does not wait for the work, nor the work
// for it.
func (h *Hook) WithTerm(ctx context.Context, election string, token int64) context.Context {
	key := termKey{election, token}
	return context.WithValue(ctx, linkKey{}, trace.Link{SpanContext: h.spans.contextOf(ctx, key), Attributes: key.attributes()})
}

// contextOf is what a link to the term needs. It begins the term's span if need
// be, but not of a term that is over, which nobody would end. Of a term
// before the last one nothing is known any more.
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

// Link links a span to the term that ctx was made for by [Hook.WithTerm]. The
// link has the election and the token. Without such a term it does nothing.
func Link(ctx context.Context) trace.SpanStartOption {
	if link, ok := ctx.Value(linkKey{}).(trace.Link); ok && link.SpanContext.IsValid() {
		return trace.WithLinks(link)
	}
	return trace.WithLinks()
}

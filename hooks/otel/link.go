package otelhooks

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

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

//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	otelhooks "github.com/pgelector/pgelector/hooks/otel"
)

// traced is a candidate with OpenTelemetry's SDK and an exporter into memory.
type traced struct {
	*candidate
	hook     *otelhooks.Hook
	tracers  *sdktrace.TracerProvider
	exporter *tracetest.InMemoryExporter
}

func (s *server) standTraced(t *testing.T, d drivers, i int, election string) traced {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	hook, err := otelhooks.New(nil, tracers)
	check(t, err)
	return traced{s.stand(t, d.open(t, i, s.DSN()), election, elector.WithHooks(hook)), hook, tracers, exporter}
}

// work makes a span in each term, linked to it.
func (c traced) work(ctx context.Context, term *elector.Term) error {
	ctx = c.hook.WithTerm(ctx, c.Election(), term.Token())
	ctx, span := c.tracers.Tracer("work").Start(ctx, "work", otelhooks.Link(ctx))
	span.End()
	<-ctx.Done()
	return nil
}

// spans returns the spans with the name, in order of their end.
func (c traced) spans(name string) (all []tracetest.SpanStub) {
	for _, span := range c.exporter.GetSpans() {
		if span.Name == name {
			all = append(all, span)
		}
	}
	return all
}

// worked waits until the work of n terms has begun: a term that ends earlier has none.
func (c traced) worked(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("the work of %d terms begins", n), func() bool { return len(c.spans("work")) >= n })
}

func TestEachTermIsATraceToWhichTheWorkLinks(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		c := s.standTraced(t, d, 0, s.election(t))
		c.run(t, c.work)
		lost := c.elected(t)
		c.worked(t, 1)
		after := c.after()
		s.terminate(t, s.holders(t, c.Key())[0])
		given := next[hooks.Elected](t, after, nil)
		c.worked(t, 2)
		c.end(t)

		campaigns, terms, works := c.spans("pgelector.campaign"), c.spans("pgelector.term"), c.spans("work")
		if len(campaigns) != 2 || len(terms) != 2 || len(works) != 2 {
			t.Fatalf("%d campaigns, %d terms, %d works; want 2 of each", len(campaigns), len(terms), len(works))
		}
		for i, elected := range []hooks.Elected{lost, given} {
			term := terms[i]
			if !links(term, campaigns[i]) || !links(works[i], term) {
				t.Errorf("term %d: no link to its campaign, or from its work", i)
			}
			if token, found := attribute(term, "pgelector.token"); !found || token != elected.Token {
				t.Errorf("term %d says token %v, want %d", i, token, elected.Token)
			}
			if d := c.rec.Demoted()[i]; !term.EndTime.Equal(d.At) {
				t.Errorf("term %d ends %v after its context", i, term.EndTime.Sub(d.At))
			}
		}
		if terms[0].Status.Code != codes.Error || terms[1].Status.Code != codes.Unset {
			t.Errorf("the lost term is %v, the one given up %v", terms[0].Status, terms[1].Status)
		}
		if n := len(c.spans("pgelector.demotion")); n != 1 {
			t.Errorf("%d demotions", n)
		}
		if n := len(c.spans("pgelector.resignation")); n != 1 {
			t.Errorf("%d resignations", n)
		}
	})
}

func links(from, to tracetest.SpanStub) bool {
	for _, link := range from.Links {
		if link.SpanContext.Equal(to.SpanContext) {
			return true
		}
	}
	return false
}

func attribute(s tracetest.SpanStub, key string) (value any, found bool) {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.AsInterface(), true
		}
	}
	return nil, false
}

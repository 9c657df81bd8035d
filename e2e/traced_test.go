//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/XSAM/otelsql"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/pgelector/pgelector/dashboard"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/roster"
	"github.com/pgelector/pgelector/shard"
)

// A tracing is a pool whose statements OpenTelemetry traces.
type tracing struct {
	pool  *sql.DB
	spans *tracetest.InMemoryExporter
	from  trace.Tracer
}

func (d drivers) traced(t *testing.T, dsn string) *tracing {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	pool, err := otelsql.Open(d.name(0), dsn, otelsql.WithTracerProvider(provider))
	check(t, err)
	t.Cleanup(func() { expect(t, pool.Close()) })
	return &tracing{pool, spans, provider.Tracer("test")}
}

// within calls do in a span, and returns the id of its trace.
func (r *tracing) within(ctx context.Context, call string, do func(ctx context.Context)) trace.TraceID {
	ctx, span := r.from.Start(ctx, call)
	defer span.End()
	do(ctx)
	return span.SpanContext().TraceID()
}

// of are the names of the spans of a trace, without the first.
func (r *tracing) of(id trace.TraceID) (names []string) {
	for _, span := range r.spans.GetSpans() {
		if span.SpanContext.TraceID() == id && span.Parent.IsValid() {
			names = append(names, span.Name)
		}
	}
	return names
}

// A trace ends with its call: what the library sends by itself, for months, is no part of the trace of the call that
// began it, whichever part of the library sends.
func TestATraceHasNothingThatTheLibrarySendsByItself(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		schema := s.schema(t)
		long := func(ctx context.Context, do func(ctx context.Context)) {
			ctx, stop := context.WithTimeout(ctx, 3*time.Second)
			defer stop()
			do(ctx)
		}
		everywhere := func(t *testing.T, r *tracing, e *elector.Elector) (*roster.Roster, http.Handler) {
			published := rosterOn(t, r.pool, schema)
			check(t, published.Add(e))
			monitor, err := health.New(r.pool, health.WithCache(0))
			check(t, err)
			check(t, monitor.Add(e))
			page, err := dashboard.New(r.pool, dashboard.WithRoster(published), dashboard.WithElections(e.Election()))
			check(t, err)
			mux := http.NewServeMux()
			mux.Handle("/health", monitor)
			mux.Handle("/page", page)
			return published, mux
		}
		get := func(ctx context.Context, h http.Handler, path string) {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
		}
		for name, do := range map[string]func(t *testing.T, ctx context.Context, r *tracing, c *candidate){
			"a leader": func(t *testing.T, ctx context.Context, r *tracing, c *candidate) {
				_, served := everywhere(t, r, c.Elector)
				_ = c.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
					for range 3 {
						get(ctx, served, "/health")
						get(ctx, served, "/page")
					}
					<-ctx.Done()
					return nil
				})
			},
			"a deputy": func(t *testing.T, ctx context.Context, r *tracing, c *candidate) {
				leader := s.stand(t, d.open(t, 0, s.DSN()), c.Election()).run(t, nil)
				leader.elected(t)
				_ = c.Run(ctx, nil)
			},
			"an observer": func(t *testing.T, ctx context.Context, r *tracing, c *candidate) {
				published, _ := everywhere(t, r, c.Elector)
				for range published.Observe(ctx, c.Elector) {
				}
			},
			"a member": func(t *testing.T, ctx context.Context, r *tracing, c *candidate) {
				shards, err := shard.NewSet("a", "b", "c")
				check(t, err)
				_ = shard.Run(ctx, r.pool, unique("group"), shards, func(ctx context.Context, _ string, _ *elector.Term) error { <-ctx.Done(); return nil })
			},
		} {
			t.Run(name, func(t *testing.T) {
				r := d.traced(t, s.DSN())
				c := s.stand(t, r.pool, s.election(t), elector.WithValidateInterval(100*time.Millisecond))
				id := r.within(context.Background(), "Run", func(ctx context.Context) { long(ctx, func(ctx context.Context) { do(t, ctx, r, c) }) })
				if names := r.of(id); len(names) > 0 {
					t.Errorf("the trace of the call that began it has %d spans: %q", len(names), names)
				}
				if len(r.spans.GetSpans()) < 10 {
					t.Errorf("only %d spans were traced", len(r.spans.GetSpans()))
				}
			})
		}
	})
}

// What a call sends before it returns is a part of the call's trace.
func TestATraceHasWhatItsCallSends(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		r := d.traced(t, s.DSN())
		c := s.stand(t, r.pool, s.election(t))
		published := rosterOn(t, r.pool, s.schema(t))
		var term *elector.Term
		for _, call := range []struct {
			name string
			do   func(ctx context.Context) error
		}{
			{"TryCampaign", func(ctx context.Context) (err error) { term, _, err = c.TryCampaign(ctx); return err }},
			{"Verify", func(ctx context.Context) error { return term.Verify(ctx) }},
			{"InTx", func(ctx context.Context) error {
				return term.InTx(ctx, r.pool, nil, func(tx *sql.Tx) error { _, err := tx.ExecContext(ctx, "SELECT 1"); return err })
			}},
			{"Leader", func(ctx context.Context) error { _, err := c.Leader(ctx); return err }},
			{"Candidates", func(ctx context.Context) error { _, err := c.Candidates(ctx); return err }},
			{"roster.Candidates", func(ctx context.Context) error { _, err := published.Candidates(ctx, c.Key()); return err }},
			{"RequestResign", func(ctx context.Context) error {
				asking, stop := context.WithTimeout(ctx, time.Second)
				defer stop()
				_, _ = elector.RequestResign(asking, r.pool, c.Election())
				return nil
			}},
		} {
			id := r.within(soon(t), call.name, func(ctx context.Context) { expect(t, call.do(ctx)) })
			if names := r.of(id); !slices.Contains(names, "sql.conn.query") && !slices.Contains(names, "sql.conn.exec") {
				t.Errorf("the trace of %s has no statement: %q", call.name, names)
			}
		}
		_ = term.Resign(soon(t))
	})
}

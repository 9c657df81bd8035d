package otelhooks_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pgelector/pgelector/hooks"
	otelhooks "github.com/pgelector/pgelector/hooks/otel"
)

// span returns the only exported span with that name.
func (b bench) span(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range b.exporter.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %s, want 1", len(found), name)
	}
	return found[0]
}

func says(s tracetest.SpanStub, key string, value any) bool {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.AsInterface() == value
		}
	}
	return false
}

func links(s tracetest.SpanStub, to tracetest.SpanStub) bool {
	for _, l := range s.Links {
		if l.SpanContext.SpanID() == to.SpanContext.SpanID() && l.SpanContext.TraceID() == to.SpanContext.TraceID() {
			return true
		}
	}
	return false
}

func TestATermIsATraceThatLinksToItsCampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ctx, around := b.tracers.Tracer("").Start(t.Context(), "startup")
		end := b.elect(ctx, us, 745)
		elected := time.Now()
		time.Sleep(time.Hour)
		end()
		cancelled := time.Now()
		time.Sleep(time.Second) // until the work has returned
		b.OnDemoted(t.Context(), hooks.Demoted{Origin: us, Token: 745, Reason: hooks.Resigned, Err: errLost, At: cancelled})

		campaign, term, resignation := b.span(t, "pgelector.campaign"), b.span(t, "pgelector.term"), b.span(t, "pgelector.resignation")
		if campaign.Parent.SpanID() != around.SpanContext().SpanID() {
			t.Error("the campaign is not a child of the caller's span")
		}
		if campaign.StartTime != elected.Add(-time.Minute) || campaign.EndTime != elected || !says(campaign, "pgelector.attempts", int64(3)) {
			t.Errorf("campaign: %+v", campaign)
		}
		if term.Parent.IsValid() || term.SpanContext.TraceID() == campaign.SpanContext.TraceID() || !links(term, campaign) {
			t.Errorf("the term is not a new trace, or has no link to the campaign: %+v", term)
		}
		if term.StartTime != elected || term.EndTime != cancelled || term.Status.Code != codes.Unset {
			t.Errorf("term: %+v", term)
		}
		for key, value := range map[string]any{"pgelector.election": "orders", "pgelector.candidate": "web-1", "pgelector.key": int64(42),
			"pgelector.token": int64(745), "pgelector.reason": "resigned"} {
			if !says(term, key, value) {
				t.Errorf("the term does not say that %s is %v: %v", key, value, term.Attributes)
			}
		}
		if resignation.Parent.SpanID() != term.SpanContext.SpanID() || resignation.StartTime != cancelled || resignation.EndTime != time.Now() {
			t.Errorf("resignation: %+v", resignation)
		}
	})
}

func TestALostTermIsAnErrorWithItsFailures(t *testing.T) {
	b := newBench(t)
	defer b.elect(t.Context(), us, 1)()
	b.OnError(t.Context(), hooks.Failure{Origin: us, Op: hooks.OpHeartbeat, Err: errLost, At: time.Now()})
	b.demote(us, 1, hooks.SessionLost)
	term := b.span(t, "pgelector.term")
	if term.Status.Code != codes.Error || term.Status.Description != errLost.Error() {
		t.Errorf("status %+v", term.Status)
	}
	if len(term.Events) != 1 || !says(tracetest.SpanStub{Attributes: term.Events[0].Attributes}, "pgelector.op", "heartbeat") {
		t.Errorf("events %+v", term.Events)
	}
	if demotion := b.span(t, "pgelector.demotion"); demotion.Parent.SpanID() != term.SpanContext.SpanID() {
		t.Errorf("demotion: %+v", demotion)
	}
}

func TestSpansOfTheWorkLinkToTheTermInAnyOrder(t *testing.T) {
	for name, first := range map[string]bool{"the elector": false, "the work": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			var ctx context.Context
			if first {
				ctx = b.WithTerm(t.Context(), "orders", 1)
			}
			end := b.elect(t.Context(), us, 1)
			if !first {
				ctx = b.WithTerm(t.Context(), "orders", 1)
			}
			_, work := b.tracers.Tracer("").Start(ctx, "publish", otelhooks.Link(ctx))
			work.End()
			end()
			b.demote(us, 1, hooks.Resigned)
			term, publish := b.span(t, "pgelector.term"), b.span(t, "publish")
			if !links(publish, term) || publish.Parent.IsValid() {
				t.Errorf("the work has no link to the term, or is its child: %+v", publish)
			}
			attributes := tracetest.SpanStub{Attributes: publish.Links[0].Attributes}
			if !says(attributes, "pgelector.token", int64(1)) || !says(attributes, "pgelector.election", "orders") {
				t.Errorf("the link says %v", publish.Links[0].Attributes)
			}
			if !links(term, b.span(t, "pgelector.campaign")) || !says(term, "pgelector.candidate", "web-1") {
				t.Errorf("term: %+v", term)
			}
		})
	}
}

// Otherwise that term's span would never end and never be exported.
func TestALateSpanOfTheWorkStartsNoTermSpan(t *testing.T) {
	b := newBench(t)
	b.elect(t.Context(), us, 1)()
	b.demote(us, 1, hooks.Resigned)
	b.elect(t.Context(), us, 2)()
	b.demote(us, 2, hooks.SessionLost)
	b.exporter.Reset()
	for token, wantLink := range map[int64]bool{1: false, 2: true} {
		ctx := b.WithTerm(t.Context(), "orders", token)
		_, work := b.tracers.Tracer("").Start(ctx, "late", otelhooks.Link(ctx))
		work.End()
		if late := b.span(t, "late"); (len(late.Links) == 1) != wantLink {
			t.Errorf("token %d: links %+v", token, late.Links)
		}
		b.exporter.Reset()
	}
}

func TestWithoutATermThereIsNoLink(t *testing.T) {
	b := newBench(t)
	_, work := b.tracers.Tracer("").Start(t.Context(), "work", otelhooks.Link(t.Context()))
	work.End()
	if n := len(b.span(t, "work").Links); n != 0 {
		t.Errorf("%d links", n)
	}
}

func TestAPermanentlyFailedCampaignIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		attempt := func(n int, next time.Duration) {
			b.OnError(t.Context(), hooks.Failure{Origin: us, Op: hooks.OpCampaign, Err: errLost, At: time.Now(), Attempt: n, Permanent: next == 0})
			b.OnCampaign(t.Context(), hooks.Campaign{Origin: us, Attempt: n, Outcome: hooks.Failed, At: time.Now(), Took: time.Second, Next: next})
		}
		attempt(1, time.Second)
		b.OnCampaign(t.Context(), hooks.Campaign{Origin: us, Attempt: 2, Outcome: hooks.Busy}) // waiting in the server: no pause follows
		if n := len(b.exporter.GetSpans()); n != 0 {
			t.Errorf("%d spans of a campaign that goes on", n)
		}
		attempt(3, 0)
		campaign := b.span(t, "pgelector.campaign")
		if campaign.Status.Code != codes.Error || campaign.Status.Description != errLost.Error() || len(campaign.Events) != 1 {
			t.Errorf("campaign: %+v", campaign)
		}
		if campaign.StartTime != time.Now().Add(-time.Second) || !says(campaign, "pgelector.attempts", int64(3)) {
			t.Errorf("campaign: %+v", campaign)
		}
	})
}

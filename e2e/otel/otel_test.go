package otelhooks_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/hooks"
	otelhooks "github.com/pgelector/pgelector/hooks/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const validity = 7 * time.Second

var (
	us      = hooks.Origin{Election: "orders", Key: 42, CandidateID: "web-1"}
	errLost = errors.New("the server closed the connection")
)

// bench is a hook on OpenTelemetry's SDK, with the exported data.
type bench struct {
	*otelhooks.Hook
	reader   *sdkmetric.ManualReader
	exporter *tracetest.InMemoryExporter
	tracers  *sdktrace.TracerProvider
}

func newBench(t *testing.T) bench {
	t.Helper()
	b := bench{reader: sdkmetric.NewManualReader(), exporter: tracetest.NewInMemoryExporter()}
	b.tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(b.exporter))
	hook, err := otelhooks.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader)), b.tracers, otelhooks.WithServer("shop", "db.internal", 5432))
	must.Check(t, err)
	b.Hook = hook
	return b
}

// elect calls the hook as for a campaign of three attempts and one minute that succeeds.
func (b bench) elect(ctx context.Context, who hooks.Origin, token int64) context.CancelFunc {
	ctx, cancel := context.WithCancel(ctx)
	b.OnCampaign(ctx, hooks.Campaign{Origin: who, Attempt: 3, Outcome: hooks.Granted, At: time.Now()})
	b.OnElected(ctx, hooks.Elected{Origin: who, Token: token, At: time.Now(), Campaigned: time.Minute, Deadline: time.Now().Add(validity)})
	return cancel
}

func (b bench) demote(who hooks.Origin, token int64, reason hooks.Reason) {
	b.OnDemoted(context.Background(), hooks.Demoted{Origin: who, Token: token, Reason: reason, Err: errLost, At: time.Now(), Held: 20 * time.Second})
}

// collect returns the metrics by name.
func (b bench) collect(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	must.Check(t, b.reader.Collect(t.Context(), &all))
	byName := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// everything calls the hook once for each kind of event.
func (b bench) everything(t *testing.T, who hooks.Origin) {
	for _, outcome := range hooks.Outcomes() {
		b.OnCampaign(t.Context(), hooks.Campaign{Origin: who, Outcome: outcome, Next: time.Second})
	}
	for _, op := range hooks.Ops() {
		b.OnError(t.Context(), hooks.Failure{Origin: who, Op: op, Err: errLost})
	}
	defer b.elect(t.Context(), who, 1)()
	b.OnHeartbeat(t.Context(), hooks.Heartbeat{Origin: who, Token: 1, Took: 3 * time.Millisecond, Deadline: time.Now().Add(validity)})
	b.demote(who, 1, hooks.Resigned)
	b.Ticks("nightly", "passed over", 7)
}

func TestNewNeedsAProvider(t *testing.T) {
	if _, err := otelhooks.New(nil, nil); err == nil {
		t.Error("no error without a provider")
	}
	for name, make := range map[string]func() (*otelhooks.Hook, error){
		"metrics only": func() (*otelhooks.Hook, error) { return otelhooks.New(sdkmetric.NewMeterProvider(), nil) },
		"traces only":  func() (*otelhooks.Hook, error) { return otelhooks.New(nil, sdktrace.NewTracerProvider()) },
	} {
		h, err := make()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		bench{Hook: h}.everything(t, us)
	}
}

func TestThePackagesTableListsEachMetricWithItsKindAndUnit(t *testing.T) {
	b := newBench(t)
	b.everything(t, us)
	var measured, listed []string
	for name, m := range b.collect(t) {
		kind := ""
		switch m.Data.(type) {
		case metricdata.Sum[int64]:
			kind = "counter"
		case metricdata.Histogram[float64]:
			kind = "histogram"
		case metricdata.Gauge[int64], metricdata.Gauge[float64]:
			kind = "gauge"
		}
		measured = append(measured, name+" "+kind+" "+m.Unit)
	}
	source, err := os.ReadFile("../../hooks/otel/otel.go")
	must.Check(t, err)
	for _, row := range regexp.MustCompile(`(?m)^//\t(pgelector\.[\w.]+) +(gauge|counter|histogram) +(\S+) `).FindAllStringSubmatch(string(source), -1) {
		listed = append(listed, row[1]+" "+row[2]+" "+row[3])
	}
	slices.Sort(measured)
	slices.Sort(listed)
	if !slices.Equal(listed, measured) {
		t.Errorf("listed   %q\nmeasured %q", listed, measured)
	}
}

func TestTheGaugesNeverSayLeadingLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.elect(t.Context(), us, 1)()
		for _, tt := range []struct {
			after   time.Duration
			leader  int64
			remains float64
		}{{0, 1, 7}, {2 * time.Second, 1, 5}, {5 * time.Second, 0, 0}, {time.Hour, 0, 0}} {
			time.Sleep(tt.after)
			all := b.collect(t)
			leader := all["pgelector.leader"].Data.(metricdata.Gauge[int64]).DataPoints
			remains := all["pgelector.validity.remaining"].Data.(metricdata.Gauge[float64]).DataPoints
			if len(leader) != 1 || leader[0].Value != tt.leader || remains[0].Value != tt.remains {
				t.Errorf("leader %v, %v s remain; want %v and %v", leader, remains, tt.leader, tt.remains)
			}
		}
	})
}

func TestTheDeputyShowsUnlessTheCandidatePolls(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	b.OnCampaign(ctx, hooks.Campaign{Origin: us, Outcome: hooks.Busy, Polls: true})
	if m, ok := b.collect(t)["pgelector.deputy"]; ok {
		t.Errorf("a candidate that polls shows: %v", m)
	}
	for _, step := range []struct {
		hooks.Campaign
		want int64
	}{
		{hooks.Campaign{Origin: us, Outcome: hooks.Busy}, 0},
		{hooks.Campaign{Origin: us, Outcome: hooks.Busy, Deputy: true}, 1},
		{hooks.Campaign{Origin: us, Outcome: hooks.Granted}, 0},
	} {
		b.OnCampaign(ctx, step.Campaign)
		points := b.collect(t)["pgelector.deputy"].Data.(metricdata.Gauge[int64]).DataPoints
		if len(points) != 1 || points[0].Value != step.want {
			t.Errorf("after %+v: %v, want %d", step.Campaign, points, step.want)
		}
	}
}

func TestTheGaugesOfAClosedElectorEnd(t *testing.T) {
	b := newBench(t)
	b.everything(t, us)
	b.demote(us, 1, hooks.Shutdown)
	b.OnClosed(t.Context(), hooks.Closed{Origin: us})
	all := b.collect(t)
	for _, name := range []string{"pgelector.leader", "pgelector.deputy", "pgelector.transaction_scope", "pgelector.validity.remaining"} {
		if m, ok := all[name]; ok {
			t.Errorf("shown is %v", m)
		}
	}
	if _, ok := all["pgelector.terms.ended"]; !ok {
		t.Error("the counter of ended terms is not shown")
	}
}

// An exporter refuses a whole batch for one string that is no UTF-8.
func TestANameThatIsNoUTF8IsQuoted(t *testing.T) {
	b := newBench(t)
	b.everything(t, hooks.Origin{Election: "a\xff", Key: 1, CandidateID: "one"})
	var all metricdata.ResourceMetrics
	must.Check(t, b.reader.Collect(t.Context(), &all))
	shown := fmt.Sprintf("%+v %+v", all, b.exporter.GetSpans())
	if !utf8.ValidString(shown) || !strings.Contains(shown, `"a\xff"`) {
		t.Errorf("shown is %q", shown)
	}
}

func TestAnErrorThatIsNoUTF8IsMadeOne(t *testing.T) {
	b, err := newBench(t), errors.New("acc\xe8s refus\xe9")
	b.OnError(t.Context(), hooks.Failure{Origin: us, Op: hooks.OpCampaign, Err: err, At: time.Now(), Permanent: true})
	b.OnCampaign(t.Context(), hooks.Campaign{Origin: us, Attempt: 1, Outcome: hooks.Failed, At: time.Now()})
	defer b.elect(t.Context(), us, 1)()
	b.OnError(t.Context(), hooks.Failure{Origin: us, Op: hooks.OpHeartbeat, Err: err, At: time.Now()})
	b.OnDemoted(t.Context(), hooks.Demoted{Origin: us, Token: 1, Reason: hooks.SessionLost, Err: err, At: time.Now()})
	shown := fmt.Sprintf("%+v", b.exporter.GetSpans())
	if !utf8.ValidString(shown) || strings.Count(shown, "acc\uFFFDs refus\uFFFD") < 4 {
		t.Errorf("shown is %q", shown)
	}
}

// The attempts of a shared session are paced for all its elections: none has a next of its own.
func TestACampaignOfASharedSessionThatGoesOnHasNoSpan(t *testing.T) {
	b := newBench(t)
	failed := func(attempt int) {
		b.OnCampaign(t.Context(), hooks.Campaign{Origin: us, Attempt: attempt, Outcome: hooks.Failed, At: time.Now()})
	}
	failed(1) // a quick attempt, which OnError does not hear of
	failed(2)
	b.OnError(t.Context(), hooks.Failure{Origin: us, Op: hooks.OpCampaign, Err: errLost, At: time.Now(), Attempt: 2})
	failed(3)
	if n := len(b.exporter.GetSpans()); n != 0 {
		t.Errorf("%d spans of a campaign that goes on", n)
	}
}

func TestTheScopeOfTheLastAttemptShows(t *testing.T) {
	b := newBench(t)
	for _, inside := range []bool{false, true} {
		b.OnCampaign(t.Context(), hooks.Campaign{Origin: us, Outcome: hooks.Busy, InTransaction: inside})
		points := b.collect(t)["pgelector.transaction_scope"].Data.(metricdata.Gauge[int64]).DataPoints
		if len(points) != 1 || points[0].Value == 1 != inside {
			t.Errorf("inside a transaction %t: %v", inside, points)
		}
	}
}

func TestEachEventIsCountedWithTheElectionAndItsClosedSetOnly(t *testing.T) {
	b := newBench(t)
	b.everything(t, us)
	all := b.collect(t)
	for name, want := range map[string]map[attribute.Distinct]int64{
		"pgelector.terms.started":     {set(): 1},
		"pgelector.terms.ended":       {set("pgelector.reason", "resigned"): 1},
		"pgelector.campaign.attempts": {set("pgelector.outcome", "granted"): 2, set("pgelector.outcome", "busy"): 1, set("pgelector.outcome", "failed"): 1, set("pgelector.outcome", "too_early"): 1},
		"pgelector.failures":          opsOnce(),
	} {
		points := all[name].Data.(metricdata.Sum[int64]).DataPoints
		if len(points) != len(want) {
			t.Errorf("%s: %d series, want %d", name, len(points), len(want))
		}
		for _, p := range points {
			if p.Value != want[p.Attributes.Equivalent()] {
				t.Errorf("%s: %d with %v", name, p.Value, p.Attributes.ToSlice())
			}
		}
	}
	for name, sum := range map[string]float64{"pgelector.term.duration": 20, "pgelector.heartbeat.duration": 0.003} {
		if p := all[name].Data.(metricdata.Histogram[float64]).DataPoints; len(p) != 1 || p[0].Count != 1 || p[0].Sum != sum {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// set returns the attributes of a measurement: the election, and more.
func set(more ...string) attribute.Distinct {
	all := []attribute.KeyValue{attribute.String("pgelector.election", "orders")}
	for i := 0; i < len(more); i += 2 {
		all = append(all, attribute.String(more[i], more[i+1]))
	}
	s := attribute.NewSet(all...)
	return s.Equivalent()
}

func opsOnce() map[attribute.Distinct]int64 {
	all := map[attribute.Distinct]int64{}
	for _, op := range hooks.Ops() {
		all[set("pgelector.op", string(op))] = 1
	}
	return all
}

func TestOneHookServesAThousandElectionsAtOnce(t *testing.T) {
	b := newBench(t)
	var all sync.WaitGroup
	for i := range 1000 {
		who := hooks.Origin{Election: fmt.Sprint("shard-", i), CandidateID: "web-1"}
		all.Go(func() { b.everything(t, who) })
	}
	all.Wait()
	terms := 0
	for _, span := range b.exporter.GetSpans() {
		if span.Name == "pgelector.term" && span.Status.Code == codes.Unset {
			terms++
		}
	}
	if terms != 1000 {
		t.Errorf("%d terms were traced, want 1000", terms)
	}
}

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
		for key, value := range map[string]any{"db.system.name": "postgresql", "db.namespace": "shop", "server.address": "db.internal", "server.port": int64(5432), "pgelector.election": "orders", "pgelector.candidate": "web-1", "pgelector.key": int64(42),
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

// term returns the exported spans of a term.
func (b bench) term(token int64) (found []tracetest.SpanStub) {
	for _, s := range b.exporter.GetSpans() {
		if s.Name == "pgelector.term" && says(s, "pgelector.token", token) {
			found = append(found, s)
		}
	}
	return found
}

// The work of such a term may have called WithTerm. No event of the term follows.
func TestTheSpanOfATermThatEndedBeforeOnElectedEnds(t *testing.T) {
	for name, follows := range map[string]func(b bench){
		"with the next election":  func(b bench) { b.elect(t.Context(), us, 2) },
		"with the next WithTerm":  func(b bench) { b.WithTerm(t.Context(), "orders", 2) },
		"when the elector closes": func(b bench) { b.OnClosed(t.Context(), hooks.Closed{Origin: us}) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.OnCampaign(t.Context(), hooks.Campaign{Origin: us, Attempt: 1, Outcome: hooks.Granted})
			b.WithTerm(t.Context(), "orders", 1)
			follows(b)
			if first, next := b.term(1), b.term(2); len(first) != 1 || len(next) != 0 {
				t.Errorf("exported are %d spans of that term and %d of the next", len(first), len(next))
			}
		})
	}
}

// Otherwise that span would never end: the elector may be closed already.
func TestWithTermStartsNoSpanOfATermThatHasEnded(t *testing.T) {
	b := newBench(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	ctx := b.WithTerm(over, "orders", 1)
	_, work := b.tracers.Tracer("").Start(ctx, "late", otelhooks.Link(ctx))
	work.End()
	if late := b.span(t, "late"); len(late.Links) != 0 {
		t.Errorf("links %+v", late.Links)
	}
}

// The work of the first runs on after its lease, while the second leads.
func TestTheTermsOfTwoCandidatesOfAProcessEndEachByItself(t *testing.T) {
	for name, second := range map[string]hooks.Origin{
		"two ids":            {Election: "orders", Key: 42, CandidateID: "web-2"},
		"two of the same id": us,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.elect(t.Context(), us, 1)
			b.WithTerm(t.Context(), "orders", 2)
			b.elect(t.Context(), second, 2)
			b.demote(us, 1, hooks.LeaseExpired)
			b.OnClosed(t.Context(), hooks.Closed{Origin: us})
			b.OnError(t.Context(), hooks.Failure{Origin: second, Op: hooks.OpHeartbeat, Err: errLost})
			ctx := b.WithTerm(t.Context(), "orders", 2)
			_, work := b.tracers.Tracer("").Start(ctx, "publish", otelhooks.Link(ctx))
			work.End()
			b.demote(second, 2, hooks.Resigned)
			first, next := b.term(1), b.term(2)
			if len(first) != 1 || !says(first[0], "pgelector.reason", "lease_expired") {
				t.Errorf("the first term: %+v", first)
			}
			if len(next) != 1 || !says(next[0], "pgelector.reason", "resigned") || len(next[0].Events) != 1 || !links(b.span(t, "publish"), next[0]) {
				t.Errorf("the second term: %+v", next)
			}
		})
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

func TestTicksAreCountedByScheduleAndKind(t *testing.T) {
	b := newBench(t)
	b.Ticks("nightly", "passed over", 3)
	b.Ticks("nightly", "passed over", 4)
	points := b.collect(t)["pgelector.ticks"].Data.(metricdata.Sum[int64]).DataPoints
	want := attribute.NewSet(attribute.String("pgelector.schedule", "nightly"), attribute.String("pgelector.kind", "passed over"))
	if len(points) != 1 || points[0].Value != 7 || !points[0].Attributes.Equals(&want) {
		t.Errorf("%+v", points)
	}
}

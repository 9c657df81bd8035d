package otelhooks_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/hooks"
	otelhooks "github.com/pgelector/pgelector/hooks/otel"
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
	hook, err := otelhooks.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader)), b.tracers)
	if err != nil {
		t.Fatal(err)
	}
	b.Hook = hook
	return b
}

// elect calls the hook as for a campaign of three attempts and one minute that succeeds.
func (b bench) elect(ctx context.Context, who hooks.Origin, token int64) context.CancelFunc {
	ctx, cancel := context.WithCancel(ctx)
	b.OnCampaign(ctx, hooks.Campaign{Origin: who, Attempt: 3, Outcome: hooks.Granted, At: time.Now()})
	b.OnElected(ctx, hooks.Elected{Origin: who, Token: token, At: time.Now(), Waited: time.Minute, Deadline: time.Now().Add(validity)})
	return cancel
}

func (b bench) demote(who hooks.Origin, token int64, reason hooks.Reason) {
	b.OnDemoted(context.Background(), hooks.Demoted{Origin: who, Token: token, Reason: reason, Err: errLost, At: time.Now(), Held: 20 * time.Second})
}

// collect returns the metrics by name.
func (b bench) collect(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := b.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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

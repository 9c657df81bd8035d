package prometheushooks_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/hooks"
	prometheushooks "github.com/pgelector/pgelector/hooks/prometheus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const validity = time.Hour // longer than any pause of the machine

var us = hooks.Origin{Election: "orders", CandidateID: "web-1"}

// elect reports the start of a term to h, and returns the function that ends its context.
func elect(h *prometheushooks.Hook, who hooks.Origin) context.CancelFunc {
	ctx, cancel := context.WithCancel(context.Background())
	h.OnCampaign(ctx, hooks.Campaign{Origin: who, Outcome: hooks.Granted})
	h.OnElected(ctx, hooks.Elected{Origin: who, Token: 1, At: time.Now(), Deadline: time.Now().Add(validity)})
	return cancel
}

// everything calls h once for each kind of event.
func everything(h *prometheushooks.Hook, who hooks.Origin) {
	ctx := context.Background()
	for _, outcome := range hooks.Outcomes() {
		h.OnCampaign(ctx, hooks.Campaign{Origin: who, Outcome: outcome})
	}
	for _, op := range hooks.Ops() {
		h.OnError(ctx, hooks.Failure{Origin: who, Op: op})
	}
	for _, reason := range hooks.Reasons() {
		h.OnDemoted(ctx, hooks.Demoted{Origin: who, Reason: reason, Held: 20 * time.Second})
	}
	elect(h, who)
	h.OnHeartbeat(ctx, hooks.Heartbeat{Origin: who, Token: 1, Took: 3 * time.Millisecond, Deadline: time.Now().Add(validity)})
}

// gather returns the metrics of h by their names.
func gather(t *testing.T, h *prometheushooks.Hook) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(h); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		byName[f.GetName()] = f
	}
	return byName
}

// value returns the value of the metric's only series with that label value.
func value(t *testing.T, h *prometheushooks.Hook, name, label string) float64 {
	t.Helper()
	for _, m := range gather(t, h)[name].GetMetric() {
		if slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == label }) {
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	t.Fatalf("no series %s with %q", name, label)
	return 0
}

func TestTheMetricsFollowTheConventions(t *testing.T) {
	h := prometheushooks.New()
	everything(h, us)
	problems, err := testutil.CollectAndLint(h)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestThePackagesTableListsEachMetricWithItsType(t *testing.T) {
	h := prometheushooks.New()
	everything(h, us)
	var collected []string
	for name, f := range gather(t, h) {
		collected = append(collected, name+" "+strings.ToLower(f.GetType().String()))
	}
	var listed []string
	for _, row := range regexp.MustCompile(`(?m)^//\t(pgelector_\w+) +(gauge|counter|histogram) `).FindAllStringSubmatch(read(t, "../../hooks/prometheus/prometheus.go"), -1) {
		listed = append(listed, row[1]+" "+row[2])
	}
	slices.Sort(collected)
	slices.Sort(listed)
	if !slices.Equal(listed, collected) {
		t.Errorf("listed    %q\ncollected %q", listed, collected)
	}
}

func TestTheGaugesNeverSayLeadingLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := prometheushooks.New()
		defer elect(h, us)()
		for _, tt := range []struct {
			after           time.Duration
			leader, remains float64
		}{{0, 1, 3600}, {time.Minute, 1, 3540}, {59*time.Minute - 1, 1, 1e-9}, {1, 0, 0}, {time.Hour, 0, 0}} {
			time.Sleep(tt.after)
			l, r := value(t, h, "pgelector_leader", "orders"), value(t, h, "pgelector_validity_remaining_seconds", "orders")
			if l != tt.leader || r != tt.remains {
				t.Errorf("leader %v, %v s remain; want %v and %v", l, r, tt.leader, tt.remains)
			}
		}
	})
}

func TestTheDeputyShowsUnlessTheCandidatePolls(t *testing.T) {
	h, ctx := prometheushooks.New(), t.Context()
	h.OnCampaign(ctx, hooks.Campaign{Origin: us, Outcome: hooks.Busy, Polls: true})
	if f := gather(t, h)["pgelector_deputy"]; f != nil {
		t.Errorf("a candidate that polls shows: %v", f)
	}
	for deputy, want := range map[bool]float64{false: 0, true: 1} {
		h.OnCampaign(ctx, hooks.Campaign{Origin: us, Outcome: hooks.Busy, Deputy: deputy})
		if got := value(t, h, "pgelector_deputy", "orders"); got != want {
			t.Errorf("deputy %t: the gauge is %v", deputy, got)
		}
	}
	h.OnCampaign(ctx, hooks.Campaign{Origin: us, Outcome: hooks.Granted})
	if got := value(t, h, "pgelector_deputy", "orders"); got != 0 {
		t.Errorf("elected: the gauge is %v", got)
	}
}

func TestTheTermsStartIsThereOnlyWhileLeading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := prometheushooks.New()
		began := float64(time.Now().Unix())
		end := elect(h, us)
		if got := value(t, h, "pgelector_term_start_time_seconds", "orders"); got != began {
			t.Errorf("the term began at %v, want %v", got, began)
		}
		end()
		if f := gather(t, h)["pgelector_term_start_time_seconds"]; f != nil {
			t.Errorf("a term that has ended shows: %v", f)
		}
	})
}

func TestEachEventIsCountedOnceUnderItsLabel(t *testing.T) {
	h := prometheushooks.New()
	everything(h, us)
	for _, reason := range hooks.Reasons() {
		if got := value(t, h, "pgelector_terms_ended_total", string(reason)); got != 1 {
			t.Errorf("%s: %v terms ended, want 1", reason, got)
		}
	}
	for _, op := range hooks.Ops() {
		if got := value(t, h, "pgelector_failures_total", string(op)); got != 1 {
			t.Errorf("%s: %v failures, want 1", op, got)
		}
	}
	for outcome, want := range map[hooks.Outcome]float64{hooks.Granted: 2, hooks.Busy: 1, hooks.Failed: 1} {
		if got := value(t, h, "pgelector_campaign_attempts_total", string(outcome)); got != want {
			t.Errorf("%s: %v attempts, want %v", outcome, got, want)
		}
	}
	all := gather(t, h)
	beats := all["pgelector_heartbeat_duration_seconds"].GetMetric()[0].GetHistogram()
	if beats.GetSampleCount() != 1 || beats.GetSampleSum() != 0.003 {
		t.Errorf("heartbeats: %v", beats)
	}
	terms := all["pgelector_term_duration_seconds"].GetMetric()[0].GetHistogram()
	if n := uint64(len(hooks.Reasons())); terms.GetSampleCount() != n || terms.GetSampleSum() != float64(20*n) {
		t.Errorf("terms: %v", terms)
	}
}

// The package documentation has the same figures.
func TestAnElectionCostsAsManySeriesAsDocumented(t *testing.T) {
	h := prometheushooks.New()
	series := func() (n int) {
		for _, f := range gather(t, h) {
			for _, m := range f.GetMetric() {
				n++
				if histogram := m.GetHistogram(); histogram != nil {
					n += len(histogram.GetBucket()) + 2 // the bucket +Inf, the sum and the count
				}
			}
		}
		return n
	}
	if n := series(); n != 0 {
		t.Errorf("%d series before any event", n)
	}
	h.OnCampaign(t.Context(), hooks.Campaign{Origin: us, Outcome: hooks.Busy})
	if n := series(); n != 26 {
		t.Errorf("an election that is followed costs %d series, documented are 26", n)
	}
	elect(h, us)()
	if n := series(); n != 26+27 {
		t.Errorf("an election that was led costs %d series, documented are 26 + 27", n)
	}
	elect(h, us)
	if n := series(); n != 26+27+1 {
		t.Errorf("an election that is led costs %d series, documented are 26 + 27 + 1", n)
	}
}

func TestAFailureOfASharedConnectionMakesNoElectionWithoutALeader(t *testing.T) {
	h := prometheushooks.New()
	h.OnError(t.Context(), hooks.Failure{Op: hooks.OpCall})
	all := gather(t, h)
	if f := all["pgelector_leader"]; f != nil {
		t.Errorf("an election without a name is shown: %v", f)
	}
	if n := value(t, h, "pgelector_failures_total", "call"); n != 1 {
		t.Errorf("%v failures, want 1", n)
	}
}

func TestANameThatIsNotUTF8IsQuoted(t *testing.T) {
	h := prometheushooks.New()
	everything(h, hooks.Origin{Election: "caf\xe9"})
	if got := value(t, h, "pgelector_leader", `"caf\xe9"`); got != 1 {
		t.Errorf("leader is %v, want 1", got)
	}
}

func TestOneHookServesAThousandElectionsWhileItIsScraped(t *testing.T) {
	h := prometheushooks.New()
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() { everything(h, hooks.Origin{Election: fmt.Sprint("shard-", i)}) })
		if i%100 == 0 {
			all.Go(func() { gather(t, h) })
		}
	}
	all.Wait()
	if n := len(gather(t, h)["pgelector_leader"].GetMetric()); n != 1000 {
		t.Errorf("%d elections, want 1000", n)
	}
}

// metricsHandler returns the hook for elector.WithHooks and the handler for /metrics.
func metricsHandler(candidateID string) (*prometheushooks.Hook, http.Handler, error) {
	hook, registry := prometheushooks.New(), prometheus.NewRegistry()
	// Without this wrapping there is no label for the candidate.
	named := prometheus.WrapRegistererWith(prometheus.Labels{"candidate": candidateID}, registry)
	if err := named.Register(hook); err != nil {
		return nil, nil, err
	}
	return hook, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

func TestTheCandidateCanBeALabel(t *testing.T) {
	hook, handler, err := metricsHandler("web-1")
	if err != nil {
		t.Fatal(err)
	}
	defer elect(hook, us)()
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if want := `pgelector_leader{candidate="web-1",election="orders"} 1`; !strings.Contains(answer.Body.String(), want) {
		t.Errorf("want %s in\n%s", want, answer.Body)
	}
}

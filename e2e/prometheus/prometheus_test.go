//go:build unix

package prometheushooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/hooks"
	prometheushooks "github.com/pgelector/pgelector/hooks/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
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
	h.Beyond("billing")(ctx, 2, nil)
	h.Ticks("nightly", "done", 1)
	h.Ticks("nightly", "passed over", 7)
	elect(h, who)
	h.OnHeartbeat(ctx, hooks.Heartbeat{Origin: who, Token: 1, Took: 3 * time.Millisecond, Deadline: time.Now().Add(validity)})
}

// gather returns the metrics of h by their names.
func gather(t *testing.T, h *prometheushooks.Hook) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	must.Check(t, registry.Register(h))
	families, err := registry.Gather()
	must.Check(t, err)
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
	must.Check(t, err)
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
		began := float64(time.Now().Unix())
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
			if tt.leader == 0 {
				if f := gather(t, h)["pgelector_term_start_time_seconds"]; f != nil {
					t.Errorf("a term that has ended shows: %v", f)
				}
			} else if got := value(t, h, "pgelector_term_start_time_seconds", "orders"); got != began {
				t.Errorf("the term began at %v, want %v", got, began)
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
	for kind, want := range map[string]float64{"done": 1, "passed over": 7} {
		if got := value(t, h, "pgelector_ticks_total", kind); got != want {
			t.Errorf("%s: %v ticks, want %v", kind, got, want)
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
	if n := series(); n != 30 {
		t.Errorf("an election that is followed costs %d series, documented are 30", n)
	}
	elect(h, us)()
	if n := series(); n != 30+27 {
		t.Errorf("an election that was led costs %d series, documented are 30 + 27", n)
	}
	elect(h, us)
	if n := series(); n != 30+27+1 {
		t.Errorf("an election that is led costs %d series, documented are 30 + 27 + 1", n)
	}
}

func TestTheSeriesOfAClosedElectorEnd(t *testing.T) {
	synctest.Test(t, seriesOfAClosedElectorEnd)
}

func seriesOfAClosedElectorEnd(t *testing.T) {
	h, ctx := prometheushooks.New(), t.Context()
	other := hooks.Origin{Election: "reports", CandidateID: "web-1"}
	for _, who := range []hooks.Origin{us, other} {
		everything(h, who)
	}
	h.OnError(ctx, hooks.Failure{Op: hooks.OpCall})
	// shown returns how many series of each metric an election has.
	shown := func(election string) map[string]int {
		all := map[string]int{}
		for name, f := range gather(t, h) {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "election" && l.GetValue() == election {
						all[name]++
					}
				}
			}
		}
		return all
	}
	h.OnDemoted(ctx, hooks.Demoted{Origin: us, Token: 1, Reason: hooks.Shutdown})
	h.OnClosed(ctx, hooks.Closed{Origin: us})
	last := gather(t, h)
	ended := 0.0
	for _, m := range last["pgelector_terms_ended_total"].GetMetric() {
		ended += m.GetCounter().GetValue()
	}
	if leaders, want := len(last["pgelector_leader"].GetMetric()), float64(2*len(hooks.Reasons())+1); leaders != 1 || ended != want {
		t.Errorf("next scrape: %d elections have a leader gauge, %v terms ended; want 1 and %v", leaders, ended, want)
	}
	time.Sleep(15 * time.Minute) // another reader
	if all := shown("orders"); len(all) != 6 {
		t.Errorf("a quarter of an hour later it has %v", all)
	}
	time.Sleep(time.Second)
	gather(t, h)
	if all := shown("orders"); len(all) != 0 {
		t.Errorf("the scrape after it shows %v", all)
	}
	if all := shown("reports"); len(all) != 11 {
		t.Errorf("the other election has %v", all)
	}
	if n := value(t, h, "pgelector_failures_total", ""); n != 1 {
		t.Errorf("%v failures of no election, want 1", n)
	}
	h.OnCampaign(ctx, hooks.Campaign{Origin: us, Outcome: hooks.Busy}) // it comes back
	gather(t, h)
	if all := shown("orders"); len(all) != 8 || all["pgelector_failures_total"] != len(hooks.Ops()) {
		t.Errorf("back again it shows %v", all)
	}
	h.OnClosed(ctx, hooks.Closed{Origin: us})
	gather(t, h)
	time.Sleep(15*time.Minute + time.Second)
	gather(t, h)
	if all := shown("orders"); len(all) != 0 {
		t.Errorf("closed again it shows %v", all)
	}
}

// The counters of all are deleted in one scrape, which a reader waits for: for 10 s, by default.
func TestAScrapeAfterManyElectionsWereClosedIsQuick(t *testing.T) {
	const n = 3000
	synctest.Test(t, func(t *testing.T) { // whose time does not pass meanwhile
		h := prometheushooks.New()
		counters := func() int { return len(gather(t, h)["pgelector_terms_started_total"].GetMetric()) }
		shard := func(i int) hooks.Origin { return hooks.Origin{Election: fmt.Sprint("shard-", i)} }
		for i := range n {
			h.OnCampaign(t.Context(), hooks.Campaign{Origin: shard(i), Outcome: hooks.Busy})
		}
		if all := counters(); all != n {
			t.Errorf("%d elections have counters", all)
		}
		for i := range n {
			h.OnClosed(t.Context(), hooks.Closed{Origin: shard(i)})
		}
		gather(t, h)
		time.Sleep(16 * time.Minute)
		began := processorTime(t)
		gather(t, h)
		if took := processorTime(t) - began; took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		if all := counters(); all != 0 {
			t.Errorf("%d elections have counters still", all)
		}
	})
}

func processorTime(t *testing.T) time.Duration {
	var used syscall.Rusage
	must.Expect(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
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

func TestTheCandidateCanBeALabel(t *testing.T) {
	hook, registry := prometheushooks.New(), prometheus.NewRegistry()
	must.Check(t, prometheus.WrapRegistererWith(prometheus.Labels{"candidate": "web-1"}, registry).Register(hook))
	defer elect(hook, us)()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if want := `pgelector_leader{candidate="web-1",election="orders"} 1`; !strings.Contains(answer.Body.String(), want) {
		t.Errorf("want %s in\n%s", want, answer.Body)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must.Check(t, err)
	return string(text)
}

func TestTheAlertsFireOnlyWhenTheyShould(t *testing.T) {
	program, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: it comes with Prometheus (Debian: apt-get install prometheus)")
	}
	if out, err := exec.Command(program, "test", "rules", "alerts_test.yaml").CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

func TestEachAlertIsTested(t *testing.T) {
	tests := read(t, "alerts_test.yaml")
	for _, alert := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(prometheushooks.Alerts, -1) {
		if !strings.Contains(tests, "- alertname: "+alert[1]+"\n") {
			t.Errorf("alerts_test.yaml does not test %s", alert[1])
		}
	}
}

var metricName = regexp.MustCompile(`pgelector_[a-z_]+`)

// known returns the names of the hook's metrics, as used in queries.
func known(t *testing.T) []string {
	h := prometheushooks.New()
	everything(h, us)
	var names []string
	for name, family := range gather(t, h) {
		if family.GetMetric()[0].GetHistogram() == nil {
			names = append(names, name)
			continue
		}
		names = append(names, name+"_bucket", name+"_sum", name+"_count")
	}
	return names
}

func TestTheAlertsUseExistingMetricsAndLabels(t *testing.T) {
	names := known(t)
	for _, name := range metricName.FindAllString(prometheushooks.Alerts, -1) {
		if !slices.Contains(names, name) {
			t.Errorf("there is no metric %s", name)
		}
	}
	h := prometheushooks.New()
	everything(h, us)
	all := gather(t, h)
	selectors := regexp.MustCompile(`(pgelector_[a-z_]+)\{([a-z]+)!?=~?"([a-z_|]+)"`).FindAllStringSubmatch(prometheushooks.Alerts, -1)
	if len(selectors) < 6 {
		t.Errorf("only %q select by a label", selectors)
	}
	for _, selector := range selectors {
		for value := range strings.SplitSeq(selector[3], "|") {
			if !slices.ContainsFunc(all[selector[1]].GetMetric(), func(m *dto.Metric) bool {
				return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == selector[2] && l.GetValue() == value })
			}) {
				t.Errorf("no series of %s has %s=%q", selector[1], selector[2], value)
			}
		}
	}
}

// dashboard is the part of the JSON that the tests read.
type dashboard struct {
	Panels []struct {
		ID      int
		Title   string
		Targets []struct{ Expr string }
		GridPos struct{ X, Y, W, H int }
	}
	Templating  struct{ List []struct{ Query any } }
	Annotations struct{ List []struct{ Expr string } }
}

func parsed(t *testing.T) (d dashboard) {
	t.Helper()
	must.Check(t, json.Unmarshal([]byte(prometheushooks.Dashboard), &d))
	return d
}

func (d dashboard) queries() (all []string) {
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			all = append(all, target.Expr)
		}
	}
	for _, annotation := range d.Annotations.List {
		all = append(all, annotation.Expr)
	}
	return all
}

func TestTheDashboardShowsEachMetric(t *testing.T) {
	d, names, shown := parsed(t), known(t), map[string]bool{}
	for _, query := range d.queries() {
		found := metricName.FindAllString(query, -1)
		if len(found) == 0 {
			t.Errorf("the query uses no metric: %s", query)
		}
		for _, name := range found {
			if !slices.Contains(names, name) {
				t.Errorf("there is no metric %s: %s", name, query)
			}
			shown[name] = true
		}
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_sum") || strings.HasSuffix(name, "_count") {
			continue
		}
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

func TestTheDashboardCountsWhatTheAlertSaysNobodyLeads(t *testing.T) {
	rule := regexp.MustCompile(`(?s)- alert: PgelectorNobodyLeads\s+expr: (?:>-)?(.+?)\s+for:`).FindStringSubmatch(prometheushooks.Alerts)
	if rule == nil {
		t.Fatal("no such alert")
	}
	joined := func(query string) string { return strings.Join(strings.Fields(query), "") }
	want := joined("count(" + rule[1] + ") or vector(0)")
	for _, panel := range parsed(t).Panels {
		if panel.Title == "Without a leader" {
			if got := joined(strings.ReplaceAll(panel.Targets[0].Expr, `{election=~"$election"}`, "")); got != want {
				t.Errorf("the panel counts\n%s, the alert fires at\n%s", got, want)
			}
			return
		}
	}
	t.Error("no such panel")
}

func TestTheDashboardsPanelsDoNotOverlap(t *testing.T) {
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, panel := range parsed(t).Panels {
		if ids[panel.ID] {
			t.Errorf("%s: the id %d is another panel's", panel.Title, panel.ID)
		}
		ids[panel.ID] = true
		for x := range panel.GridPos.W {
			for y := range panel.GridPos.H {
				cell := [2]int{panel.GridPos.X + x, panel.GridPos.Y + y}
				if other := taken[cell]; other != "" || cell[0] >= 24 {
					t.Fatalf("%s lies upon %q, or leaves the page", panel.Title, other)
				}
				taken[cell] = panel.Title
			}
		}
	}
}

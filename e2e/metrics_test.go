//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	prometheushooks "github.com/pgelector/pgelector/hooks/prometheus"
)

func number[E any](all []E, match func(E) bool) (n int) {
	for _, e := range all {
		if match(e) {
			n++
		}
	}
	return n
}

// Once the server may release the lock, no metric may show the leader as leading. Here the
// leader is cut off and does not know it.
func TestTheGaugesOfACutOffLeaderFallBeforeTheServerFreesTheLock(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		l := behindAProxy(t)
		g := newTarget(t, "a")
		c := l.stand(t, d, 0, l.election(t), elector.WithHooks(g.hook)).run(t, nil)
		c.elected(t)
		wait[hooks.Heartbeat](t, c, nil)
		l.proxy.BlackHole()
		for free := false; !free; {
			free = len(l.holders(t, c.Key())) == 0 // before the scrape, which must show no leader if it is free
			scrape := g.scrape(t)
			leader, left := scrape[g.of(c, "pgelector_leader")], scrape[g.of(c, "pgelector_validity_remaining_seconds")]
			if (leader == 1) != (left > 0) {
				t.Errorf("leader is %v with %v s left", leader, left)
			}
			if free && leader != 0 {
				t.Errorf("the lock is free, and the leader shows %v s left", left)
			}
		}
	})
}

func TestTheAlertsFireOnRealScrapes(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool is not installed: it comes with Prometheus (Debian: apt-get install prometheus)")
	}
	overDrivers(t, func(t *testing.T, d drivers) {
		cluster := own(t)
		s := on(t, cluster)
		election := s.election(t)
		release := s.occupy(t, elector.KeyFromName(election))
		var row timeline
		first, a := s.standScraped(t, d, 0, election)
		second, b := s.standScraped(t, d, 1, election)
		all := []*candidate{first, second}
		for _, c := range all {
			c.run(t, nil).follows(t)
		}
		row.add(t, 5, a, b) // minutes 0 to 4: an unscraped session holds the lock
		release()
		eventually(t, "one is shown as the leader", func() bool {
			return a.scrape(t)[a.of(first, "pgelector_leader")]+b.scrape(t)[b.of(second, "pgelector_leader")] == 1
		})
		row.add(t, 10, a, b) // 5 to 14
		check(t, cluster.Kill())
		eventually(t, "nobody leads", func() bool { return !first.IsLeader() && !second.IsLeader() })
		for range 8 { // 15 to 22
			for _, c := range all {
				next(t, c.after(), func(e hooks.Campaign) bool { return e.Outcome == hooks.Failed })
			}
			row.add(t, 1, a, b)
		}
		nobody := fmt.Sprintf(`ALERTS{alertname="PgelectorNobodyLeads",alertstate="firing",election=%q,severity="critical"}`, election)
		away := func(instance string) string {
			return fmt.Sprintf(`ALERTS{alertname="PgelectorDatabaseAway",alertstate="firing",election=%q,instance=%q,severity="warning"}`, election, instance)
		}
		row.firing(t, map[int][]string{0: nil, 4: {nobody}, 6: nil, 14: nil, 22: {nobody, away("a"), away("b")}})
	})
}

// occupy holds the lock on a connection that belongs to no candidate, until release.
func (s *server) occupy(t *testing.T, key int64) (release func()) {
	t.Helper()
	conn, err := s.admin.Conn(soon(t))
	check(t, err)
	if !one[bool](t, conn, "SELECT pg_try_advisory_lock($1)", key) {
		t.Fatal("the lock is held")
	}
	released := false
	release = func() {
		if !released {
			released = true
			_, _ = conn.ExecContext(context.Background(), "SELECT pg_advisory_unlock($1)", key)
			_ = conn.Close()
		}
	}
	t.Cleanup(release)
	return release
}

// target is a scrape target, as of one process.
type target struct {
	instance string
	server   *httptest.Server
	hook     *prometheushooks.Hook
}

func newTarget(t *testing.T, instance string) *target {
	t.Helper()
	hook, registry := prometheushooks.New(), prometheus.NewRegistry()
	hook.Beyond("shards") // as a group does
	check(t, registry.Register(hook))
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	t.Cleanup(server.Close)
	return &target{instance, server, hook}
}

// scrape gets the metrics over HTTP and returns the value of each series, by the name used in
// queries.
func (g *target) scrape(t *testing.T) map[string]float64 {
	t.Helper()
	response, err := g.server.Client().Get(g.server.URL)
	check(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("scrape: %s", response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	check(t, err)
	all := map[string]float64{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			series := func(suffix, le string) string { return g.series(name+suffix, m, le) }
			switch family.GetType() {
			case dto.MetricType_GAUGE:
				all[series("", "")] = m.GetGauge().GetValue()
			case dto.MetricType_COUNTER:
				all[series("", "")] = m.GetCounter().GetValue()
			case dto.MetricType_HISTOGRAM:
				h := m.GetHistogram()
				all[series("_count", "")], all[series("_sum", "")] = float64(h.GetSampleCount()), h.GetSampleSum()
				for _, b := range h.GetBucket() {
					all[series("_bucket", strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64))] = float64(b.GetCumulativeCount())
				}
			}
		}
	}
	return all
}

// series returns the name of a series, with the instance that Prometheus adds.
func (g *target) series(name string, m *dto.Metric, le string) string {
	labels := []string{"instance=" + strconv.Quote(g.instance)}
	for _, l := range m.GetLabel() {
		labels = append(labels, l.GetName()+"="+strconv.Quote(l.GetValue()))
	}
	if le != "" {
		labels = append(labels, "le="+strconv.Quote(le))
	}
	slices.Sort(labels)
	return name + "{" + strings.Join(labels, ",") + "}"
}

// of returns the name of a series of the candidate's election.
func (g *target) of(c *candidate, name string, more ...string) string {
	m := &dto.Metric{}
	for i, labels := 0, append([]string{"election", c.Election()}, more...); i < len(labels); i += 2 {
		m.Label = append(m.Label, &dto.LabelPair{Name: &labels[i], Value: &labels[i+1]})
	}
	return g.series(name, m, "")
}

// standScraped makes a candidate with a scrape target.
func (s *server) standScraped(t *testing.T, d drivers, i int, election string) (*candidate, *target) {
	t.Helper()
	g := newTarget(t, string(rune('a'+i)))
	return s.stand(t, d.open(t, i, s.DSN()), election, elector.WithHooks(g.hook)), g
}

// timeline is a series of scrapes, a minute apart.
type timeline []map[string]float64

// add adds a scrape of all targets, repeated for that many minutes.
func (l *timeline) add(t *testing.T, minutes int, targets ...*target) {
	t.Helper()
	all := map[string]float64{}
	for _, g := range targets {
		maps.Copy(all, g.scrape(t))
	}
	for range minutes {
		*l = append(*l, all)
	}
}

// firing makes promtool evaluate the alerts over the timeline. At each minute exactly the
// expected alerts must fire; they are named as in a query.
func (l timeline) firing(t *testing.T, expected map[int][]string) {
	t.Helper()
	type sample struct {
		Labels string  `json:"labels"`
		Value  float64 `json:"value"`
	}
	type expression struct {
		Expr    string   `json:"expr"`
		Time    string   `json:"eval_time"`
		Samples []sample `json:"exp_samples"`
	}
	var tests []expression
	for minute, alerts := range expected {
		e := expression{Expr: `ALERTS{alertstate="firing"}`, Time: fmt.Sprint(minute, "m")}
		for _, alert := range alerts {
			e.Samples = append(e.Samples, sample{alert, 1})
		}
		tests = append(tests, e)
	}
	var input []map[string]string
	for series := range l.series() {
		values := make([]string, len(l))
		for i, scrape := range l {
			values[i] = "_"
			if v, there := scrape[series]; there {
				values[i] = strconv.FormatFloat(v, 'f', -1, 64)
			}
		}
		input = append(input, map[string]string{"series": series, "values": strings.Join(values, " ")})
	}
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "alerts.yaml"), []byte(prometheushooks.Alerts), 0o600))
	file, err := json.Marshal(map[string]any{ // which is YAML too
		"rule_files": []string{"alerts.yaml"}, "evaluation_interval": "30s",
		"tests": []any{map[string]any{"interval": "1m", "input_series": input, "promql_expr_test": tests}},
	})
	check(t, err)
	path := filepath.Join(dir, "test.yaml")
	check(t, os.WriteFile(path, file, 0o600))
	if out, err := exec.Command("promtool", "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

func (l timeline) series() map[string]bool {
	all := map[string]bool{}
	for _, scrape := range l {
		for series := range scrape {
			all[series] = true
		}
	}
	return all
}

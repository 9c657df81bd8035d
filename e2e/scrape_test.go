//go:build unix

package e2e_test

import (
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
	prometheushooks "github.com/pgelector/pgelector/hooks/prometheus"
)

// target is what Prometheus would scrape of one process.
type target struct {
	instance string
	server   *httptest.Server
	hook     *prometheushooks.Hook
}

func newTarget(t *testing.T, instance string) *target {
	t.Helper()
	hook, registry := prometheushooks.New(), prometheus.NewRegistry()
	check(t, registry.Register(hook))
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	t.Cleanup(server.Close)
	return &target{instance, server, hook}
}

// scrape gets the metrics by HTTP and returns the value of each series, by the
// name that it has in a query.
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

// series is the name of a series, with the instance that Prometheus adds.
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

// of is the name of a series of the candidate's election.
func (g *target) of(c *candidate, name string, more ...string) string {
	m := &dto.Metric{}
	for i, labels := 0, append([]string{"election", c.Election()}, more...); i < len(labels); i += 2 {
		m.Label = append(m.Label, &dto.LabelPair{Name: &labels[i], Value: &labels[i+1]})
	}
	return g.series(name, m, "")
}

// standScraped makes a candidate whose process is a target.
func (s *server) standScraped(t *testing.T, d drivers, i int, election string) (*candidate, *target) {
	t.Helper()
	g := newTarget(t, string(rune('a'+i)))
	return s.stand(t, d.open(t, i, s.DSN()), election, elector.WithHooks(g.hook)), g
}

// timeline is what Prometheus would have of a row of scrapes, a minute apart.
type timeline []map[string]float64

// add adds scrapes of all targets, repeated for so many minutes.
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

// firing has promtool evaluate the alerts over the timeline: at each minute
// exactly those must fire. An alert is named as it is in a query.
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

package prometheushooks_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	prometheushooks "github.com/pgelector/pgelector/hooks/prometheus"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// promtool runs the checker that comes with Prometheus.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: it comes with Prometheus (Debian: apt-get install prometheus)")
	}
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestTheAlertsFireOnlyWhenTheyShould(t *testing.T) {
	promtool(t, "test", "rules", "alerts_test.yaml")
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

func TestTheAlertsUseExistingMetrics(t *testing.T) {
	names := known(t)
	for _, name := range metricName.FindAllString(prometheushooks.Alerts, -1) {
		if !slices.Contains(names, name) {
			t.Errorf("there is no metric %s", name)
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
	if err := json.Unmarshal([]byte(prometheushooks.Dashboard), &d); err != nil {
		t.Fatal(err)
	}
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

// Grafana's variables are not PromQL, so the test replaces each by a value.
func TestTheDashboardsQueriesArePromQL(t *testing.T) {
	values := strings.NewReplacer("$__rate_interval", "1m", "$__interval", "1m", "$__range", "1h", "$election", ".*")
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for i, query := range parsed(t).queries() {
		text, err := json.Marshal(values.Replace(query))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&rules, "  - {record: query_%d, expr: %s}\n", i, text)
	}
	path := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(path, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", path)
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

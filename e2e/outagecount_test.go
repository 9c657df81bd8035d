//go:build unix

package e2e_test

import (
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	prometheushooks "github.com/pgelector/pgelector/hooks/prometheus"
	sloghooks "github.com/pgelector/pgelector/hooks/slog"
)

func TestTheLogCountsTheFailedAttemptsOfAnOutageAsTheMetricDoes(t *testing.T) {
	t.Parallel()
	cluster := own(t)
	s := on(t, cluster)
	election, log, metric := s.election(t), &must.Buffer{}, prometheushooks.New()
	s.stand(t, pgx.open(t, 0, s.DSN()), election).run(t, nil).elected(t)
	c := s.stand(t, pgx.open(t, 1, s.DSN()), election, elector.WithHooks(metric, sloghooks.New(slog.New(slog.NewTextHandler(log, nil))))).run(t, nil)
	c.follows(t)
	check(t, cluster.Kill())
	failed := c.after()
	for range 6 {
		next(t, failed, func(e hooks.Campaign) bool { return e.Outcome == hooks.Failed })
	}
	check(t, cluster.Resume(soon(t)))
	var said []string
	eventually(t, "the log has the number", func() bool {
		said = regexp.MustCompile(`msg=(?:elected|"attempts succeed again") .*failed_attempts=(\d+)`).FindStringSubmatch(log.String())
		return said != nil
	})
	if strings.Contains(log.String(), " attempt=") {
		t.Errorf("a line counts other attempts, too:\n%s", log)
	}
	counted := 0
	for _, e := range c.rec.Campaigns() {
		if e.Outcome == hooks.Failed {
			counted++
		}
	}
	registry := prometheus.NewRegistry()
	check(t, registry.Register(metric))
	families, err := registry.Gather()
	check(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "pgelector_campaign_attempts_total" && strings.Contains(m.String(), `"failed"`) && int(m.GetCounter().GetValue()) != counted {
				t.Errorf("the metric counts %v, events are %d", m.GetCounter().GetValue(), counted)
			}
		}
	}
	if said[1] != strconv.Itoa(counted) {
		t.Errorf("the log says %s, and %d attempts have failed:\n%s", said[1], counted, log)
	}
}

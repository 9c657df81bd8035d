//go:build unix

package e2e_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	prometheushooks "github.com/pgelector/pgelector/hooks/prometheus"
)

// Once the server may release the lock, no metric may show the leader as leading. Here the
// leader is cut off and does not know it.
func TestTheGaugesOfACutOffLeaderFallBeforeTheServerFreesTheLock(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		l := behindAProxy(t)
		g := newTarget(t)
		c := l.stand(t, d, 0, l.election(t), briefly, elector.WithHooks(g.hook)).run(t, nil)
		c.elected(t)
		wait[hooks.Heartbeat](t, c, nil)
		l.proxy.BlackHole()
		for free := false; !free; {
			free = len(l.holders(t, c.Key())) == 0 // before the scrape, which must show no leader if it is free
			scrape := g.scrape(t)
			leader, left := scrape["pgelector_leader"], scrape["pgelector_validity_remaining_seconds"]
			if (leader == 1) != (left > 0) {
				t.Errorf("leader is %v with %v s left", leader, left)
			}
			if free && leader != 0 {
				t.Errorf("the lock is free, and the leader shows %v s left", left)
			}
		}
	})
}

// target is a scrape target, as of one process.
type target struct {
	server *httptest.Server
	hook   *prometheushooks.Hook
}

func newTarget(t *testing.T) *target {
	t.Helper()
	hook, registry := prometheushooks.New(), prometheus.NewRegistry()
	hook.Beyond("shards") // as a group does
	check(t, registry.Register(hook))
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	t.Cleanup(server.Close)
	return &target{server, hook}
}

// scrape gets the metrics over HTTP and returns the value of each gauge by its name, as of one election.
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
			if gauge := m.GetGauge(); gauge != nil {
				all[name] = gauge.GetValue()
			}
		}
	}
	return all
}

// standScraped makes a candidate with a scrape target.
func (s *server) standScraped(t *testing.T, d drivers, i int, election string) (*candidate, *target) {
	t.Helper()
	g := newTarget(t)
	return s.stand(t, d.open(t, i, s.DSN()), election, elector.WithHooks(g.hook)), g
}

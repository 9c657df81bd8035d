//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	prometheushooks "github.com/pgelector/pgelector/hooks/prometheus"
)

// candidate is one with the default settings, on a link of its own, which serves
// its metrics.
type candidate struct {
	elector *elector.Elector
	pool    *sql.DB
	proxy   *pgcluster.Proxy
	server  *httptest.Server
}

func stand(ctx context.Context, cluster *pgcluster.Cluster, id string) (*candidate, error) {
	proxy, err := cluster.Proxy(ctx)
	if err != nil {
		return nil, err
	}
	pool, err := sql.Open("pgx", proxy.DSN())
	if err != nil {
		return nil, err
	}
	hook, registry := prometheushooks.New(), prometheus.NewRegistry()
	if err := registry.Register(hook); err != nil {
		return nil, err
	}
	e, err := elector.New(pool, "orders", elector.WithCandidateID(id), elector.WithHooks(hook))
	if err != nil {
		return nil, err
	}
	c := &candidate{e, pool, proxy, httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))}
	return c, e.Start(ctx)
}

func (c *candidate) leave() {
	c.proxy.Heal()
	_ = c.elector.Stop(context.Background())
	_ = c.pool.Close()
	c.server.Close()
}

// scrape returns two of the metrics; a candidate that has not seen its first
// event has none.
func (c *candidate) scrape() (leader int, left float64, err error) {
	response, err := http.Get(c.server.URL)
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return 0, 0, fmt.Errorf("scrape: %w", err)
	}
	value := func(name string) (sum float64) {
		for _, m := range families[name].GetMetric() {
			sum += m.GetGauge().GetValue()
		}
		return sum
	}
	return int(value("pgelector_leader")), math.Round(100*value("pgelector_validity_remaining_seconds")) / 100, nil
}

//go:build unix

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	prometheushooks "github.com/pgelector/pgelector/hooks/prometheus"
)

const seconds = 60

// record runs an election of three candidates on a throw-away server, injects faults, scrapes the
// candidates' metrics over HTTP, and writes them to the file.
func record(ctx context.Context, file string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*seconds*time.Second)
	defer cancel()
	cluster, err := pgcluster.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	var all []*candidate
	for _, id := range []string{"web-1", "web-2", "web-3"} {
		c, err := startScraped(ctx, cluster, id)
		if err != nil {
			return err
		}
		defer c.leave()
		all = append(all, c)
	}
	recorded, err := scrape(ctx, cluster, all)
	if err != nil {
		return err
	}
	text, err := json.Marshal(recorded)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// fault is a fault of the leader or of the server.
type fault struct {
	second float64
	what   string // LEADER stands for the leader's id
	inject func(context.Context, *pgcluster.Cluster, *candidate) error
}

var faults = []fault{
	{8, "LEADER resigns", func(ctx context.Context, _ *pgcluster.Cluster, c *candidate) error {
		term, leading := c.elector.Term()
		if !leading {
			return errors.New("nobody leads")
		}
		return term.Resign(ctx)
	}},
	{17, "LEADER's backend terminated", func(ctx context.Context, cluster *pgcluster.Cluster, c *candidate) error {
		leader, err := c.elector.Leader(ctx)
		if err != nil {
			return err
		}
		return cluster.Exec(ctx, fmt.Sprintf("SELECT pg_terminate_backend(%d)", leader.PID))
	}},
	{27, "LEADER cut off", func(_ context.Context, _ *pgcluster.Cluster, c *candidate) error {
		c.proxy.BlackHole()
		time.AfterFunc(17*time.Second, c.proxy.Heal)
		return nil
	}},
	{50, "server restarted", func(ctx context.Context, cluster *pgcluster.Cluster, _ *candidate) error {
		return cluster.Restart(ctx, pgcluster.Fast)
	}},
}

// scrape scrapes all candidates at each interval and injects the faults.
func scrape(ctx context.Context, cluster *pgcluster.Cluster, all []*candidate) (recorded timeline, err error) {
	recorded.Candidates = make([]series, len(all))
	injected := make(chan error, len(faults))
	left := faults
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for tick := range int(seconds * time.Second / interval) {
		leader, err := scrapeOnce(&recorded, all)
		if err != nil {
			return recorded, err
		}
		second := float64(tick) * interval.Seconds()
		if len(left) > 0 && second >= left[0].second && leader != nil {
			f := left[0]
			left = left[1:]
			recorded.Events = append(recorded.Events, occurrence{Second: second, What: strings.ReplaceAll(f.what, "LEADER", leader.elector.CandidateID())})
			go func() { injected <- f.inject(ctx, cluster, leader) }()
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return recorded, context.Cause(ctx)
		}
	}
	for range len(faults) - len(left) {
		err = errors.Join(err, <-injected)
	}
	if len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("nobody led at second %v", left[0].second))
	}
	return recorded, err
}

// scrapeOnce scrapes each candidate and returns the one that reports to lead.
func scrapeOnce(recorded *timeline, all []*candidate) (leader *candidate, err error) {
	for i, c := range all {
		leads, left, err := c.scrape()
		if err != nil {
			return nil, err
		}
		seen := &recorded.Candidates[i]
		seen.ID = c.elector.CandidateID()
		seen.Leader, seen.Left = append(seen.Leader, leads), append(seen.Left, left)
		if leads == 1 {
			leader = c
		}
	}
	return leader, nil
}

// candidate has the default settings and its own link to the server, and serves its metrics.
type candidate struct {
	elector *elector.Elector
	pool    *sql.DB
	proxy   *pgcluster.Proxy
	server  *httptest.Server
}

func startScraped(ctx context.Context, cluster *pgcluster.Cluster, id string) (*candidate, error) {
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

// scrape returns two of the metrics. They are 0 before the candidate's first event.
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

// Package prometheushooks measures an election for Prometheus.
//
//	hook := prometheushooks.New()
//	registry.MustRegister(hook) // for instance prometheus.DefaultRegisterer
//	e, err := elector.New(pool, "orders", elector.WithHooks(hook))
//
// These are the metrics. All have the label election; durations are seconds.
//
//	pgelector_leader                       gauge      1 if this process leads, else 0
//	pgelector_deputy                       gauge      1 if this process is the deputy, else 0; absent if it never becomes it (elector.Poll)
//	pgelector_transaction_scope            gauge      1 if this process leads, or would, inside a transaction (elector.TransactionScope), else 0
//	pgelector_validity_remaining_seconds   gauge      until the term ends unless a heartbeat extends it; 0 if not leading
//	pgelector_term_start_time_seconds      gauge      when the term began, since the Unix epoch; only while leading
//	pgelector_terms_started_total          counter    terms that began
//	pgelector_terms_ended_total            counter    terms that ended; reason as of hooks.Reason
//	pgelector_term_duration_seconds        histogram  terms that ended: how long each was held
//	pgelector_heartbeat_duration_seconds   histogram  answered heartbeats: the round trip
//	pgelector_campaign_attempts_total      counter    attempts to be elected; outcome as of hooks.Outcome
//	pgelector_failures_total               counter    what went wrong; op as of hooks.Op
//	pgelector_shards_beyond                gauge      shards that no member may lead; the label is group, not election (Hook.Beyond)
//	pgelector_ticks_total                  counter    ticks, by kind as of ticks.Kind; the label is schedule, not election (Hook.Ticks)
//
// The gauges of a term are computed from the clocks at the time of the scrape. They never
// say that this process leads after its validity has run out, not even just after a freeze.
//
// # Series
//
// A process has 30 series for each election in which it has a candidate, from the first
// event on. Every label value exists from the start, so that rate() sees the first
// increase. An election that the process leads has one more; one that it has ever led has
// 27 more, for the two histograms. A thousand elections, all led by one process, are
// 58,000 series. If that is too many, drop the histograms when you scrape, or give those
// electors no hook. Failures of an elector.Session's connection have the election "".
//
// The gauges of an election end when all its electors in the process are closed
// (elector.Elector.Close, or Close of the session). The counters are collected for another
// 15 minutes, so that each reader sees the last events. An election that comes back starts
// them at 0.
//
// A name that is not UTF-8 is quoted as by strconv.Quote. The candidate id is no label,
// because by default each process has a new one. To add a candidate id, or to tell two
// databases with the same elections apart, register the hook with
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"candidate": id}, registry)
//
// While a hook blocks, the counters stand still, and the gauges are right; see package [metrics].
package prometheushooks

import (
	"context"
	_ "embed"
	"maps"
	"sync"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/metrics"
	"github.com/prometheus/client_golang/prometheus"
)

// Dashboard is a Grafana dashboard, as JSON to import. It shows all elections, or those
// selected.
//
//go:embed dashboard.json
var Dashboard string

// Alerts are alerting rules for Prometheus, as YAML.
//
//go:embed alerts.yaml
var Alerts string

// Hook is a hook and the [prometheus.Collector] to register. It is made by [New]. Any
// number of electors may share one Hook, also concurrently.
type Hook struct {
	*events
	counts *counts
	beyond *prometheus.GaugeVec
	ticks  *prometheus.CounterVec
}

type events = metrics.Hook

var _ prometheus.Collector = (*Hook)(nil)

// New returns a hook without series.
func New() *Hook {
	c := newCounts()
	return &Hook{events: metrics.New(c), counts: c, beyond: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "pgelector_shards_beyond",
		Help: "Shards of the group that no member may lead, because each has a bound (shard.WithMost)."}, []string{"group"}),
		ticks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pgelector_ticks_total",
			Help: "Ticks of the schedule in this process, by what happened to them."}, []string{"kind", "schedule"})}
}

// Beyond returns a function for shard.WithBeyond: it keeps the gauge of shards that no member of the
// group may lead. The gauge is 0 from this call on. It may be called from any goroutine.
func (h *Hook) Beyond(group string) func(ctx context.Context, shards int, unled []string) {
	g := h.beyond.WithLabelValues(metrics.Label(group))
	return func(_ context.Context, shards int, _ []string) { g.Set(float64(shards)) }
}

// Ticks counts ticks: it is for ticks.WithCounter. It may be called from any goroutine.
func (h *Hook) Ticks(schedule, kind string, n int) {
	h.ticks.WithLabelValues(kind, metrics.Label(schedule)).Add(float64(n))
}

var (
	leader = prometheus.NewDesc("pgelector_leader",
		"1 if this process leads the election, by its clock at the time of the scrape, else 0.", byElection, nil)
	deputy = prometheus.NewDesc("pgelector_deputy",
		"1 if this process is the deputy of the election's leader, else 0; absent if it never becomes the deputy.", byElection, nil)
	scope = prometheus.NewDesc("pgelector_transaction_scope",
		"1 if this process holds the lock inside a transaction when it leads, as through a transaction pooler, else 0.", byElection, nil)
	remaining = prometheus.NewDesc("pgelector_validity_remaining_seconds",
		"The time until the term ends unless a heartbeat extends it, at the time of the scrape; 0 if this process does not lead.", byElection, nil)
	started = prometheus.NewDesc("pgelector_term_start_time_seconds",
		"When the term of this process began, in seconds since the Unix epoch; absent if it does not lead.", byElection, nil)
)

// Describe implements [prometheus.Collector].
func (h *Hook) Describe(descs chan<- *prometheus.Desc) {
	descs <- leader
	descs <- deputy
	descs <- scope
	descs <- remaining
	descs <- started
	for _, c := range h.counts.all() {
		c.Describe(descs)
	}
	h.beyond.Describe(descs)
	h.ticks.Describe(descs)
}

// Collect implements [prometheus.Collector]. It is safe for concurrent use.
func (h *Hook) Collect(collected chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, election string) {
		collected <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, election)
	}
	known := h.counts.known()
	for _, s := range h.Standings() {
		election := h.counts.label(s.Election)
		delete(known, election)
		h.counts.begin(election)
		gauge(remaining, s.Left.Seconds(), election)
		gauge(leader, number(s.Leading), election)
		gauge(scope, number(s.InTransaction), election)
		if !s.Polls {
			gauge(deputy, number(s.Deputy), election)
		}
		if s.Leading {
			gauge(started, float64(s.Since.UnixNano())/float64(time.Second), election)
		}
	}
	for _, c := range h.counts.all() {
		c.Collect(collected)
	}
	h.beyond.Collect(collected)
	h.ticks.Collect(collected)
	for election := range known {
		h.counts.end(election)
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

var byElection = []string{"election"}

// counts is the sink that feeds Prometheus's counters and histograms.
type counts struct {
	began, ended, attempts, failures *prometheus.CounterVec
	held, heartbeats                 *prometheus.HistogramVec

	mu        sync.Mutex
	elections map[string]time.Time // that have counters, but not ""; since when none of their electors is open, if so
}

var _ metrics.Sink = (*counts)(nil)

func newCounts() *counts {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append(labels, byElection...))
	}
	histogram := func(name, help string, buckets ...float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, byElection)
	}
	const minute, hour = 60, 3600
	return &counts{
		began:    counter("pgelector_terms_started_total", "Terms of this process that began."),
		ended:    counter("pgelector_terms_ended_total", "Terms of this process that ended, by reason.", "reason"),
		attempts: counter("pgelector_campaign_attempts_total", "Attempts of this process to be elected, by outcome.", "outcome"),
		failures: counter("pgelector_failures_total", "Failures, by operation.", "op"),
		held: histogram("pgelector_term_duration_seconds", "The duration of ended terms.",
			1, 10, minute, 10*minute, hour, 6*hour, 24*hour, 7*24*hour),
		heartbeats: histogram("pgelector_heartbeat_duration_seconds", "The round trips of answered heartbeats.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10),
		elections: map[string]time.Time{},
	}
}

func (c *counts) all() []prometheus.Collector {
	return []prometheus.Collector{c.began, c.ended, c.attempts, c.failures, c.held, c.heartbeats}
}

// each calls do with every counter of an election.
func (c *counts) each(election string, do func(of *prometheus.CounterVec, labels ...string)) {
	do(c.began, election)
	for _, reason := range hooks.Reasons() {
		do(c.ended, string(reason), election)
	}
	for _, outcome := range hooks.Outcomes() {
		do(c.attempts, string(outcome), election)
	}
	for _, op := range hooks.Ops() {
		do(c.failures, string(op), election)
	}
}

// begin starts every counter of an election at 0. The histograms have many series, and
// start with the first term.
func (c *counts) begin(election string) {
	c.each(election, func(of *prometheus.CounterVec, labels ...string) { of.WithLabelValues(labels...) })
}

// keepCounters is how long the counters of an election are collected after its last elector was
// closed: each reader must see the last events.
const keepCounters = 15 * time.Minute

// end removes the counters of an election that has had no open elector for long.
func (c *counts) end(election string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch since := c.elections[election]; {
	case since.IsZero():
		c.elections[election] = time.Now()
	case time.Since(since) > keepCounters:
		delete(c.elections, election)
		c.each(election, func(of *prometheus.CounterVec, labels ...string) { of.DeleteLabelValues(labels...) })
		c.held.DeleteLabelValues(election)
		c.heartbeats.DeleteLabelValues(election)
	}
}

// known returns the elections that have counters.
func (c *counts) known() map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.elections)
}

// label returns an election's label, which then has counters. Failures of a shared session's
// connection have none: their counter stays.
func (c *counts) label(election string) string {
	name := metrics.Label(election)
	if election != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.elections[name] = time.Time{}
	}
	return name
}

func (c *counts) TermBegan(_ context.Context, election string) {
	name := c.label(election)
	c.began.WithLabelValues(name).Inc()
	c.held.WithLabelValues(name)
	c.heartbeats.WithLabelValues(name)
}

func (c *counts) TermEnded(_ context.Context, election string, reason hooks.Reason, held time.Duration) {
	name := c.label(election)
	c.ended.WithLabelValues(string(reason), name).Inc()
	c.held.WithLabelValues(name).Observe(held.Seconds())
}

func (c *counts) HeartbeatAnswered(_ context.Context, election string, took time.Duration) {
	c.heartbeats.WithLabelValues(c.label(election)).Observe(took.Seconds())
}

func (c *counts) AttemptMade(_ context.Context, election string, outcome hooks.Outcome, _ time.Duration) {
	c.attempts.WithLabelValues(string(outcome), c.label(election)).Inc()
}

func (c *counts) FailureSeen(_ context.Context, election string, op hooks.Op) {
	c.failures.WithLabelValues(string(op), c.label(election)).Inc()
}

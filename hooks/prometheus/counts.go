package prometheushooks

import (
	"context"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/metrics"
)

var byElection = []string{"election"}

// counts is the sink that feeds Prometheus's counters and histograms.
type counts struct {
	began, ended, attempts, failures *prometheus.CounterVec
	held, heartbeats                 *prometheus.HistogramVec
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
	}
}

func (c *counts) all() []prometheus.Collector {
	return []prometheus.Collector{c.began, c.ended, c.attempts, c.failures, c.held, c.heartbeats}
}

// begin starts every counter of an election at 0. The histograms have many series, and
// start with the first term.
func (c *counts) begin(election string) {
	c.began.WithLabelValues(election)
	for _, reason := range hooks.Reasons() {
		c.ended.WithLabelValues(string(reason), election)
	}
	for _, outcome := range hooks.Outcomes() {
		c.attempts.WithLabelValues(string(outcome), election)
	}
	for _, op := range hooks.Ops() {
		c.failures.WithLabelValues(string(op), election)
	}
}

func (c *counts) TermBegan(_ context.Context, election string) {
	c.began.WithLabelValues(label(election)).Inc()
	c.held.WithLabelValues(label(election))
	c.heartbeats.WithLabelValues(label(election))
}

func (c *counts) TermEnded(_ context.Context, election string, reason hooks.Reason, held time.Duration) {
	c.ended.WithLabelValues(string(reason), label(election)).Inc()
	c.held.WithLabelValues(label(election)).Observe(held.Seconds())
}

func (c *counts) HeartbeatAnswered(_ context.Context, election string, took time.Duration) {
	c.heartbeats.WithLabelValues(label(election)).Observe(took.Seconds())
}

func (c *counts) AttemptMade(_ context.Context, election string, outcome hooks.Outcome, _ time.Duration) {
	c.attempts.WithLabelValues(string(outcome), label(election)).Inc()
}

func (c *counts) FailureSeen(_ context.Context, election string, op hooks.Op) {
	c.failures.WithLabelValues(string(op), label(election)).Inc()
}

// label returns the election's name as a label. Prometheus panics on invalid UTF-8.
func label(election string) string {
	if utf8.ValidString(election) {
		return election
	}
	return strconv.Quote(election)
}

package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pgelector/pgelector/e2e/scraping/timeline"
)

// recorded is the output of e2e/scraping.
//
//go:embed metrics.json
var recorded []byte

// The layout of the picture of the metrics.
const (
	metricsLeft   = 128.0 // where the time begins
	metricsWidth  = 740.0
	rowHeight     = 24.0
	rowsTop       = 96.0
	validityTop   = 248.0
	validityHigh  = 150.0
	validityScale = 8.0 // seconds
)

// metrics draws what Prometheus scraped: who leads, and how long the leader's term remains
// valid.
func metrics(c *canvas) {
	var t timeline.Timeline
	if err := json.Unmarshal(recorded, &t); err != nil {
		panic(err) // it is a file of this package
	}
	n := len(t.Candidates[0].Leader)
	total := float64(n) * timeline.Interval.Seconds()
	x := func(second float64) float64 { return metricsLeft + second*metricsWidth/total }
	tick := func(i int) float64 { return x(float64(i) * timeline.Interval.Seconds()) }

	c.title = "Scraped metrics of three candidates over a minute: the validity of the leader's term falls between two heartbeats, and after each fault another leads; two are shown as leading only where the server ended the session of the first."
	c.width, c.height = 900, 470
	c.label(20, 24, 15, c.text, "start", "600", "pgelector_leader")
	c.label(20, validityTop-12, 15, c.text, "start", "600", "pgelector_validity_remaining_seconds")
	for i, e := range t.Events {
		c.stroke(x(e.Second), 66, x(e.Second), rowsTop+4*(rowHeight+4))
		c.stroke(x(e.Second), validityTop, x(e.Second), validityTop+validityHigh)
		c.note(x(e.Second)-4, 40+18*float64(i%2), "start", e.What)
	}
	drawLeaders(c, t, n, tick)
	drawValidity(c, t, tick)
	for s := 0; float64(s) <= total; s += 10 {
		c.note(x(float64(s)), validityTop+validityHigh+22, "middle", fmt.Sprintf("%d s", s))
	}
	c.note(20, 456, "start", fmt.Sprintf("Real scrapes, one each %v, of a real election with the default settings. Drawn by make docs.", timeline.Interval))
}

// drawLeaders draws a row for each candidate, and one for the time without a leader.
func drawLeaders(c *canvas, t timeline.Timeline, n int, tick func(int) float64) {
	leads := make([]bool, n)
	for row, candidate := range t.Candidates {
		y := rowsTop + float64(row)*(rowHeight+4)
		c.label(metricsLeft-14, y+17, 14, c.text, "end", "500", candidate.ID)
		c.bar(tick(0), y, tick(n)-tick(0), rowHeight, c.quiet, c.on)
		spans(n, func(i int) bool { return candidate.Leader[i] == 1 }, func(from, to int) {
			c.bar(tick(from), y, tick(to)-tick(from), rowHeight, c.good, c.onGood, "leads")
		})
		for i, leader := range candidate.Leader {
			leads[i] = leads[i] || leader == 1
		}
	}
	y := rowsTop + float64(len(t.Candidates))*(rowHeight+4)
	c.label(metricsLeft-14, y+17, 14, c.text, "end", "500", "nobody")
	spans(n, func(i int) bool { return !leads[i] }, func(from, to int) {
		c.bar(tick(from), y, tick(to)-tick(from), rowHeight, c.bad, c.onBad)
	})
}

// drawValidity draws a line for each term.
func drawValidity(c *canvas, t timeline.Timeline, tick func(int) float64) {
	y := func(left float64) float64 { return validityTop + validityHigh*(1-left/validityScale) }
	for s := 0.0; s <= validityScale; s += 2 {
		c.add(`<path d="M%.1f %.1f H%.1f" stroke="%s" stroke-width="0.5" opacity="0.5"/>`, metricsLeft, y(s), metricsLeft+metricsWidth, c.faint)
		c.note(metricsLeft-14, y(s)+4, "end", fmt.Sprintf("%g s", s))
	}
	for _, candidate := range t.Candidates {
		spans(len(candidate.Left), func(i int) bool { return candidate.Left[i] > 0 }, func(from, to int) {
			var d strings.Builder
			for i := from; i < to; i++ {
				fmt.Fprintf(&d, "%s%.1f %.1f ", map[bool]string{true: "M", false: "L"}[i == from], tick(i), y(candidate.Left[i]))
			}
			if to < len(candidate.Left) {
				fmt.Fprintf(&d, "L%.1f %.1f", tick(to), y(0))
			}
			c.add(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5" stroke-linejoin="round"/>`, d.String(), c.onGood)
		})
	}
}

// spans calls draw for each maximal run of scrapes for which is returns true.
func spans(n int, is func(int) bool, draw func(from, to int)) {
	for from := 0; from < n; from++ {
		if !is(from) {
			continue
		}
		to := from
		for to < n && is(to) {
			to++
		}
		draw(from, to)
		from = to
	}
}

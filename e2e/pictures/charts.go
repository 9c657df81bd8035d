//go:build unix

package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"strings"
	"time"

	"github.com/pgelector/pgelector/e2e/figures"
)

// The rows of the chart, and their systems in bench/results.json.
var compared = []struct{ name, system string }{
	{"pgelector, lease 10 s", "pgelector default, pgx"},
	{"pgelector, lease 1 s *", "pgelector fastest, pgx"},
	{"bare advisory lock", "raw lock, pgx"},
	{"lease table, lease 1 s", "goose table, fastest"},
	{"river, lease 15 s", "river"},
	{"etcd, TTL 2 s", "etcd, fastest"},
}

// The marks of the chart: the longest of the medians of these faults.
var marked = []struct {
	name, long string // on a phone, and else
	faults     []string
	shape      string  // around 0, 0
	x          float64 // where its column ends on a phone
	width      float64 // of its name there
	ink        func(palette) string
}{
	{"resigned", "resigned", []string{"clean resignation"}, `<circle r="5" fill="%s"/>`, 246, 62, func(p palette) string { return p.onGood }},
	{"kill -9", "was killed (kill -9)", []string{"kill -9"}, `<rect x="-4.5" y="-4.5" width="9" height="9" fill="%s"/>`, 316, 44, func(p palette) string { return p.onWarn }},
	{"silent", "fell silent (frozen, or its link cut)", []string{"SIGSTOP", "black-holed link"}, `<path d="M0 -6 L6 5 L-6 5 Z" fill="%s"/>`, 388, 42, func(p palette) string { return p.onBad }},
}

// gaps are the results of the bench.
type gaps struct{ figures.Gaps }

func readGaps(file string) gaps {
	results, err := figures.Read(file)
	if err != nil {
		log.Fatal(err)
	}
	return gaps{results}
}

// longest returns the longest of the medians of a system after some faults.
func (g gaps) longest(system string, faults []string) (ms float64) {
	for _, fault := range faults {
		median, err := g.Median(system, fault)
		if err != nil {
			log.Fatal(err)
		}
		ms = max(ms, median)
	}
	return ms
}

const (
	chartTitle = "How long nobody leads after the leader resigned, was killed, or fell silent: three marks for each of six systems, on a logarithmic scale"
	shortest   = 0.5 // ms, where the scale begins
	starred    = "* WithTakeover(Wait), lease 1 s"
)

var ticks = []string{"1 ms", "10 ms", "100 ms", "1 s", "10 s"}

// decades returns how far a time is from the beginning of the scale.
func decades(ms float64) float64 { return math.Log10(min(max(ms, shortest), 1e5) / shortest) }

// failover draws how long nobody leads after a fault, as wide as a page.
func (g gaps) failover(c *canvas) {
	const (
		left, lane, high, top = 200.0, 17.0, 62.0, 74.0
		decade                = 130.0
	)
	place := func(ms float64) float64 { return left + decade*decades(ms) }
	c.title = chartTitle
	c.width, c.height = 880, 500
	c.label(12, 22, 15, c.text, "start", "600", "How long nobody leads after the leader …")
	for i, m := range marked {
		x := []float64{18, 108, 268}[i]
		c.mark(m.shape, m.ink(c.palette), x, 44.5)
		c.label(x+11, 49, 13, m.ink(c.palette), "start", "600", m.long)
	}
	bottom := top + high*float64(len(compared))
	for i, tick := range ticks {
		x := place(math.Pow10(i))
		c.add(`<path d="M%.1f %.1f V%.1f" stroke="%s"/>`, x, top-6, bottom-4, c.quiet)
		c.note(x, bottom+14, "middle", tick)
	}
	for i, row := range compared {
		y := top + high*float64(i)
		if i > 0 {
			c.add(`<path d="M12 %.1f H868" stroke="%s"/>`, y-6, c.quiet)
		}
		c.label(12, y+lane+8, 14, c.text, "start", "600", row.name)
		for j, m := range marked {
			longest, y := g.longest(row.system, m.faults), y+lane*float64(j)+8
			if math.IsInf(longest, 1) {
				c.label(868, y+5, 13, m.ink(c.palette), "end", "500", figures.Duration(longest))
				c.mark(m.shape, m.ink(c.palette), 818, y)
				continue
			}
			c.label(place(longest)+12, y+5, 13, m.ink(c.palette), "start", "500", figures.Duration(longest))
			c.mark(m.shape, m.ink(c.palette), place(longest), y)
		}
	}
	c.note(12, bottom+38, "start", "Medians, on a logarithmic scale. "+starred)
}

// failoverOnPhone draws the same, narrow enough to be read on a phone.
func (g gaps) failoverOnPhone(c *canvas) {
	place := func(ms float64) float64 { return 20 + 68*decades(ms) }
	c.title = chartTitle
	c.width, c.height = narrow, 456
	c.label(12, 22, 15, c.text, "start", "600", "How long nobody leads after a fault")
	for _, m := range marked {
		c.label(m.x, 50, 13, m.ink(c.palette), "end", "600", m.name)
		c.mark(m.shape, m.ink(c.palette), m.x-m.width-10, 45.5)
	}
	for i, row := range compared {
		y := 78 + 54*float64(i)
		c.label(12, y, 14, c.text, "start", "600", row.name)
		c.add(`<path d="M12 %.1f H388" stroke="%s"/>`, y+19, c.quiet)
		for i, m := range marked {
			longest := g.longest(row.system, m.faults)
			c.label(m.x, y, 13, m.ink(c.palette), "end", "500", figures.Duration(longest))
			if !math.IsInf(longest, 1) {
				c.mark(m.shape, m.ink(c.palette), place(longest), y+8+11*float64(i))
			}
		}
	}
	for i, tick := range ticks {
		c.note(place(math.Pow10(i)), 402, "middle", tick)
	}
	c.note(12, 424, "start", "Medians, log scale. Silent: frozen, or its link cut.", starred)
}

// mark draws a shape at a point.
func (c *canvas) mark(shape, ink string, x, y float64) {
	c.add(`<g transform="translate(%.1f %.1f)">`+shape+`</g>`, x, y, ink)
}

// recorded is the output of record.
//
//go:embed metrics.json
var recorded []byte

// interval is the time between two scrapes.
const interval = 250 * time.Millisecond

// timeline is a series of scrapes of the metrics of an election's candidates.
type timeline struct {
	Events     []occurrence `json:"events"`
	Candidates []series     `json:"candidates"`
}

// occurrence is a fault.
type occurrence struct {
	Second float64 `json:"second"` // since the first scrape
	What   string  `json:"what"`
}

// series has a value for each scrape of a candidate.
type series struct {
	ID     string    `json:"id"`
	Leader []int     `json:"leader"` // pgelector_leader
	Left   []float64 `json:"left"`   // pgelector_validity_remaining_seconds
}

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
	var t timeline
	if err := json.Unmarshal(recorded, &t); err != nil {
		panic(err) // it is a file of this package
	}
	n := len(t.Candidates[0].Leader)
	total := float64(n) * interval.Seconds()
	x := func(second float64) float64 { return metricsLeft + second*metricsWidth/total }
	tick := func(i int) float64 { return x(float64(i) * interval.Seconds()) }

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
	c.note(20, 456, "start", fmt.Sprintf("Real scrapes, one each %v, of a real election with the default settings. Drawn by make docs.", interval))
}

// drawLeaders draws a row for each candidate, and one for the time without a leader.
func drawLeaders(c *canvas, t timeline, n int, tick func(int) float64) {
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
func drawValidity(c *canvas, t timeline, tick func(int) float64) {
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

// The shards of four members, at each step. A capital letter is one that has just moved.
var moving = []struct {
	what   string
	shards [4]string // "" if the member is away
}{
	{"three members", [4]string{"abcd", "efgh", "ijkl", ""}},
	{"a fourth joins", [4]string{"abc", "efg", "ijk", "DHL"}},
	{"the second is killed", [4]string{"abcE", "", "ijkF", "dhlG"}},
	{"and is back", [4]string{"abc", "EFG", "ijk", "dhl"}},
}

// shards draws which shards move as members join and leave.
func shards(c *canvas) {
	c.title = "Twelve shards of three members: a fourth that joins takes one of each; those of one that is killed go to the others; as it comes back, it takes one of each again. No two members exchange shards."
	c.width, c.height = narrow, 442
	const (
		side = 26.0
		lane = 36.0
		wide = 196.0 // of one step
		high = 190.0
	)
	for s, at := range moving {
		x, y := 12+wide*float64(s%2), 24+high*float64(s/2)
		c.label(x, y, 14, c.text, "start", "600", at.what)
		for m, names := range at.shards {
			y := y + 14 + lane*float64(m)
			c.note(x, y+19, "start", fmt.Sprint("member ", m+1))
			if names == "" {
				c.note(x+72, y+19, "start", "away")
			}
			for i, name := range names {
				fill, ink := c.quiet, c.on
				if name < 'a' {
					fill, ink, name = c.good, c.onGood, name+'a'-'A'
				}
				c.bar(x+72+(side+2)*float64(i), y, side, side, fill, ink, string(name))
			}
		}
	}
	c.bar(12, 396, 16, 16, c.good, c.onGood)
	c.note(36, 409, "start", "has just moved: its work returned first, unless", "its member was killed. All others stay.")
}

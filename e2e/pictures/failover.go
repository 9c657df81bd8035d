package main

import (
	"encoding/json"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"slices"
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
	name   string
	faults []string
	shape  string  // around 0, 0
	x      float64 // where its column ends
	width  float64 // of its name
	ink    func(palette) string
}{
	{"resigned", []string{"clean resignation"}, `<circle r="5" fill="%s"/>`, 246, 62, func(p palette) string { return p.onGood }},
	{"kill -9", []string{"kill -9"}, `<rect x="-4.5" y="-4.5" width="9" height="9" fill="%s"/>`, 316, 44, func(p palette) string { return p.onWarn }},
	{"silent", []string{"SIGSTOP", "black-holed link"}, `<path d="M0 -6 L6 5 L-6 5 Z" fill="%s"/>`, 388, 42, func(p palette) string { return p.onBad }},
}

// failover returns a function that draws how long nobody leads after a fault, from the results
// of the bench. It is narrow, so that it can be read on a phone.
func failover(file string) func(*canvas) {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		log.Fatal(err)
	}
	var run struct {
		Failovers []struct {
			System, Fault string
			Gap           *float64 // ms; nil is never
		}
	}
	if err := json.Unmarshal(text, &run); err != nil {
		log.Fatal(file, ": ", err)
	}
	median := func(system, fault string) float64 {
		var all []float64
		for _, f := range run.Failovers {
			if f.System == system && f.Fault == fault {
				if f.Gap == nil {
					return math.Inf(1)
				}
				all = append(all, *f.Gap)
			}
		}
		if len(all) == 0 {
			log.Fatalf("%s has no %s of %s", file, fault, system)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return func(c *canvas) {
		c.title = "How long nobody leads after the leader resigned, was killed, or fell silent"
		c.width, c.height = 400, 430
		c.label(12, 22, 15, c.text, "start", "600", "How long nobody leads after a fault")
		for _, m := range marked {
			c.label(m.x, 50, 13, m.ink(c.palette), "end", "600", m.name)
			c.mark(m.shape, m.ink(c.palette), m.x-m.width-10, 45.5)
		}
		place := func(ms float64) float64 { return 20 + 68*math.Log10(min(max(ms, 0.5), 1e5)/0.5) }
		for i, row := range compared {
			y := 78 + 50*float64(i)
			c.label(12, y, 14, c.text, "start", "600", row.name)
			c.add(`<path d="M12 %.1f H388" stroke="%s"/>`, y+17, c.quiet)
			for i, m := range marked {
				longest := 0.0
				for _, fault := range m.faults {
					longest = max(longest, median(row.system, fault))
				}
				c.label(m.x, y, 13, m.ink(c.palette), "end", "500", short(longest))
				if !math.IsInf(longest, 1) {
					c.mark(m.shape, m.ink(c.palette), place(longest), y+12+5*float64(i))
				}
			}
		}
		for i, tick := range []string{"1 ms", "10 ms", "100 ms", "1 s", "10 s"} {
			c.note(place(math.Pow10(i)), 374, "middle", tick)
		}
		c.note(12, 396, "start", "Medians, log scale. Silent: frozen, or its link cut.", "* WithStandby(Wait), WithWatch")
	}
}

// mark draws a shape at a point.
func (c *canvas) mark(shape, ink string, x, y float64) {
	c.add(`<g transform="translate(%.1f %.1f)">`+shape+`</g>`, x, y, ink)
}

// short formats milliseconds with two digits.
func short(ms float64) string {
	switch {
	case math.IsInf(ms, 1):
		return "never"
	case ms < 0.995:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 9.95:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 995:
		return fmt.Sprintf("%.0f ms", ms)
	case ms < 9950:
		return fmt.Sprintf("%.1f s", ms/1000)
	}
	return fmt.Sprintf("%.0f s", ms/1000)
}

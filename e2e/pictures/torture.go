package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"log"
	"strings"

	"github.com/pgelector/pgelector/e2e/history"
)

// tortureSummary is the summary of one long run of e2e/torture.
//
//go:embed torture.json
var tortureSummary []byte

// The kinds of faults, and the faults of each kind.
var kinds = []struct {
	name   string
	faults string
	fill   func(palette) string
}{
	{"processes", "kill freeze resign leave", func(p palette) string { return p.quiet }},
	{"sessions and pools", "terminate cancel discard close limit", func(p palette) string { return p.warn }},
	{"servers", "crash restart stall full promote split", func(p palette) string { return p.bad }},
	{"the network", "hole slow reset pooler unplug deaf mute", func(p palette) string { return p.faint }},
}

// The layout of the picture, which consists of strips.
const (
	strips     = 12
	stripLeft  = 62.0
	stripWidth = 820.0
	laneHeight = 8.0
	faultLane  = 9.0
	stripsTop  = 104.0
)

// torture draws who led when in a run, and the faults above it.
func torture(c *canvas) {
	var run history.Timeline
	if err := json.Unmarshal(tortureSummary, &run); err != nil {
		log.Fatal("the summary of the run: ", err)
	}
	minutes := max(1, (run.Length+60_000*strips-1)/(60_000*strips)) // of a strip
	span := minutes * 60_000
	height := faultLane + laneHeight*float64(len(run.Rows)) + 18
	used := (run.Length + span - 1) / span
	c.title = fmt.Sprintf("Who led when in a run of %d minutes, with %d faults: after each of them, somebody again.", run.Length/60_000, len(run.Faults))
	c.width, c.height = 900, int(stripsTop+height*float64(used)+16*float64(len(run.Rows)+1)/2+14)
	c.key()
	rows := map[string]int{}
	for i, row := range run.Rows {
		rows[row[:1]] = i
	}
	for i := range used {
		c.strip(stripsTop+height*float64(i), i*span, span, run, rows)
	}
	for i, row := range run.Rows {
		c.note(stripLeft+410*float64(i%2), float64(c.height)-float64((len(run.Rows)+1)/2-i/2)*17+8, "start", row)
	}
}

// key explains the colours.
func (c *canvas) key() {
	for i, kind := range kinds {
		y := 16 + 20*float64(i)
		c.add(`<rect x="%.1f" y="%.1f" width="22" height="9" fill="%s"/>`, stripLeft, y-8, kind.fill(c.palette))
		c.label(stripLeft+32, y, 13, c.text, "start", "600", "faults of "+kind.name)
		c.note(stripLeft+246, y, "start", strings.ReplaceAll(kind.faults, " ", ", "))
	}
	c.add(`<rect x="%.1f" y="8" width="22" height="9" fill="%s"/>`, stripLeft+560, c.onGood)
	c.label(stripLeft+592, 16, 13, c.text, "start", "600", "a candidate leads")
	c.note(stripLeft+592, 36, "start", "one row for each candidate,", "as listed below")
}

// strip draws the part of the run that starts at from.
func (c *canvas) strip(top float64, from, span int, run history.Timeline, rows map[string]int) {
	x := func(at int) float64 { return stripLeft + stripWidth*float64(min(max(at-from, 0), span))/float64(span) }
	bars := func(stretches []history.Stretch, fill string, place func(name string) (y, height float64, drawn bool)) {
		var d strings.Builder
		for _, s := range stretches {
			y, height, drawn := place(s.Name)
			if drawn && s.To >= from && s.From < from+span {
				width := max(x(s.To)-x(s.From), 0.7)
				fmt.Fprintf(&d, "M%.1f %.1fh%.1fv%.1fh-%.1fz", x(s.From), y, width, height, width)
			}
		}
		if d.Len() > 0 {
			c.add(`<path d="%s" fill="%s"/>`, d.String(), fill)
		}
	}
	c.note(stripLeft-16, top+faultLane, "end", fmt.Sprintf("%d min", from/60_000))
	for i := range len(rows) {
		y := top + faultLane + laneHeight*float64(i+1)
		c.add(`<path d="M%.1f %.1fh%.1f" stroke="%s" stroke-width="0.5"/>`, stripLeft, y, x(run.Length)-stripLeft, c.quiet)
		c.label(stripLeft-6, y-1, 7, c.faint, "middle", "400", run.Rows[i][:1])
	}
	for _, kind := range kinds {
		bars(run.Faults, kind.fill(c.palette), func(name string) (float64, float64, bool) {
			return top, faultLane - 2, strings.Contains(" "+kind.faults+" ", " "+name+" ")
		})
	}
	bars(run.Terms, c.onGood, func(name string) (float64, float64, bool) {
		i, known := rows[name]
		return top + faultLane + laneHeight*float64(i) + 1, laneHeight - 1, known
	})
}

//go:build linux

package main

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
)

// asynchronous reports whether replication was asynchronous during the episode.
func (e episode) asynchronous() bool { return asynchronous(e.mode()) }

// mode returns the mode of the run at the time.
func (e episode) mode() string { return mode(e.text) }

func mode(text string) string {
	_, mode, _ := strings.Cut(text, ", ")
	return mode
}

// An episode lasts from the start of a fault until a candidate leads in a healthy cluster
// again.
type episode struct {
	text              string
	struck, calm, end history.Time
}

func episodes(events []history.Event) (all []episode) {
	terms := history.Terms(events)
	for _, e := range events {
		switch e.Kind {
		case history.Struck:
			all = append(all, episode{text: e.Text, struck: e.At, calm: math.MaxInt64, end: math.MaxInt64})
		case history.Calm:
			if last := len(all) - 1; last >= 0 && all[last].calm == math.MaxInt64 {
				all[last].calm, all[last].end = e.At, ledSince(terms, e.At)
			}
		}
	}
	return all
}

// ledSince returns the first moment at or after at when a candidate led.
func ledSince(terms []history.Term, at history.Time) history.Time {
	led := history.Time(math.MaxInt64)
	for _, t := range terms {
		if t.End >= at {
			led = min(led, max(t.Begin, at))
		}
	}
	return led
}

// episodeOf returns the first episode that was not over at the moment. Events between two
// faults count for the second.
func episodeOf(all []episode, at history.Time) *episode {
	i := slices.IndexFunc(all, func(e episode) bool { return at <= e.calm })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// nextLed returns when a candidate led again after the first time without a leader.
func (e episode) nextLed(led []stretch) (at history.Time, is bool) {
	for _, s := range led {
		if s.from > e.struck && s.from <= e.end {
			return s.from, true
		}
	}
	return 0, false
}

// watched reports whether the former leader's route was watched.
func (e episode) watched(open []stretch) bool {
	return slices.ContainsFunc(open, func(s stretch) bool { return s.to > e.struck && s.from < e.end })
}

// stretch is an interval of time.
type stretch struct{ from, to history.Time }

// union merges overlapping intervals.
func union(all []stretch) (merged []stretch) {
	slices.SortFunc(all, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	for _, s := range all {
		if last := len(merged) - 1; last >= 0 && s.from <= merged[last].to {
			merged[last].to = max(merged[last].to, s.to)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// length returns how much of the window lies in the intervals in but not in without. Both must
// be unions.
func length(window stretch, in, without []stretch) (sum time.Duration) {
	for _, s := range in {
		from, to := max(s.from, window.from), min(s.to, window.to)
		if to <= from {
			continue
		}
		sum += to.Sub(from)
		for _, not := range without {
			if a, b := max(from, not.from), min(to, not.to); b > a {
				sum -= b.Sub(a)
			}
		}
	}
	return sum
}

// row is the cost of one kind of fault in one mode.
type row struct {
	text                     string
	times                    int
	without                  []time.Duration // per fault: the time without a leader while a primary took writes
	back                     []time.Duration // the time until the next term while the former leader's route reached a primary
	overlap                  time.Duration   // the longest overlap
	acknowledged, lost, quit int
	discarded                int // of the lost: those lost with a timeline
}

// measure returns a row for each kind of fault and mode.
func measure(events []history.Event) []row {
	rows, order := map[string]*row{}, []string{}
	of := func(text string) *row {
		if rows[text] == nil {
			rows[text] = &row{text: text}
			order = append(order, text)
		}
		return rows[text]
	}
	first := fleet.Of("", events)
	var led, writable, open []stretch
	for _, t := range history.Terms(first) {
		led = append(led, stretch{t.Begin, t.End})
	}
	kept := keptOf(events)
	for _, e := range events {
		switch s := (stretch{e.At, e.At.Add(e.Took)}); e.Kind {
		case history.Writable:
			writable = append(writable, s)
		case history.Reached:
			open = append(open, s)
		}
	}
	led, writable, open = union(led), union(writable), union(open)
	all := episodes(first)
	for _, e := range all {
		r := of(e.text)
		r.times++
		if e.end != math.MaxInt64 {
			r.without = append(r.without, length(stretch{e.struck, e.end}, writable, led))
			if next, is := e.nextLed(led); is && e.watched(open) {
				r.back = append(r.back, length(stretch{e.struck, next}, open, led))
			}
		}
	}
	for _, o := range overlaps(first) {
		if e := episodeOf(all, o.from); e != nil {
			of(e.text).overlap = max(of(e.text).overlap, o.took)
		}
	}
	for _, e := range events {
		in := episodeOf(all, e.At)
		switch {
		case in == nil:
		case e.Kind == history.Quit:
			of(in.text).quit++
		case e.Kind == history.Wrote:
			of(in.text).acknowledged++
			if !kept.writes[e.New] {
				of(in.text).lost++
				if !kept.registers[e.Register] {
					of(in.text).discarded++
				}
			}
		}
	}
	slices.Sort(order)
	var result []row
	for _, text := range order {
		slices.Sort(rows[text].without)
		slices.Sort(rows[text].back)
		result = append(result, *rows[text])
	}
	return result
}

// quantile returns a quantile of sorted values.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(math.Ceil(q*float64(len(sorted))))-1)]
}

package dashboard

import (
	"fmt"
	"slices"
	"time"

	"github.com/pgelector/pgelector/roster"
)

// timeline shows who led when.
type timeline struct {
	Label    string // text alternative
	Bars     []bar
	From, To moment
	Legend   []entry // of bars without a candidate
}

// entry explains a class of bars.
type entry struct{ Class, Text string }

// bar is one bar, on a scale of 0 to span.
type bar struct {
	X, Width int
	Y, High  int // a term is high, and the time between two terms is low: colours alone would not tell them apart
	Class    string
	Title    string
}

const (
	span   = 1000
	narrow = 2      // minimum width of a bar
	hues   = 24     // in the style sheet
	rest   = "rest" // candidates that share a colour, since there are no more
	vacant = "vacant"
	nobody = "unknown"
	minGap = 3 // minimum width of a gap
	high   = 28
	low    = 8
)

// colour assigns a colour of its own to each candidate that led, in order of their terms, as long as there are some.
func colour(of map[string]string, terms []roster.Term) {
	for _, t := range slices.Backward(terms) {
		switch {
		case of[t.CandidateID] != "":
		case len(of) < hues:
			of[t.CandidateID] = fmt.Sprintf("c%d", len(of))
		default:
			of[t.CandidateID] = rest
		}
	}
}

// draw returns the timeline of terms, given newest first. It is empty before the oldest one.
func draw(terms []roster.Term, colours map[string]string, from, now time.Time) *timeline {
	s := scale{from: from, length: now.Sub(from)}
	if s.length <= 0 { // the first term has just begun
		s.length = time.Second
	}
	t := &timeline{From: at(from), To: at(now)}
	last := later(from, terms[len(terms)-1].ElectedAt) // the end of the last bar
	shown := 0
	for _, term := range slices.Backward(terms) {
		until, known := end(term, now)
		if until.Before(from) {
			continue
		}
		shown++
		t.gap(s, last, term.ElectedAt, vacant, "nobody led")
		title := fmt.Sprintf("%s led from %s for %s", term.CandidateID, at(term.ElectedAt).Text, lasting(until.Sub(term.ElectedAt)))
		class := colours[term.CandidateID]
		switch {
		case term.Reason == "":
			title += ", and still leads"
		case !known:
			title, class = fmt.Sprintf("%s led from %s; the end is unknown", term.CandidateID, at(term.ElectedAt).Text), nobody
		default:
			title += ": " + term.Reason
		}
		t.bar(s, term.ElectedAt, until, class, title)
		last = until
	}
	t.gap(s, last, now, vacant, "nobody led")
	for _, e := range []entry{{vacant, "nobody led"}, {nobody, "unknown"}, {rest, "others"}} {
		if slices.ContainsFunc(t.Bars, func(b bar) bool { return b.Class == e.Class }) {
			t.Legend = append(t.Legend, e)
		}
	}
	t.Label = fmt.Sprintf("Timeline of %d terms, from %s to %s UTC", shown, t.From.Text, t.To.Text)
	return t
}

// end returns when a term ended, if it is known.
func end(t roster.Term, now time.Time) (until time.Time, known bool) {
	switch {
	case !t.EndedAt.IsZero():
		return t.EndedAt, true
	case t.Reason == "":
		return now, true
	}
	return now, false
}

// scale maps times to the timeline.
type scale struct {
	from   time.Time
	length time.Duration
}

func (s scale) place(t time.Time) int {
	share := float64(t.Sub(s.from)) / float64(s.length)
	return int(min(max(share, 0), 1) * span)
}

func (t *timeline) bar(s scale, from, until time.Time, class, title string) {
	x := min(s.place(from), span-narrow)
	b := bar{X: x, Width: max(s.place(until)-x, narrow), High: high, Class: class, Title: title}
	if class == vacant || class == nobody {
		b.Y, b.High = high-low, low
	}
	t.Bars = append(t.Bars, b)
}

// gap adds a bar if it is wide enough to see.
func (t *timeline) gap(s scale, from, until time.Time, class, title string) {
	if s.place(until)-s.place(from) >= minGap {
		t.bar(s, from, until, class, fmt.Sprintf("%s from %s for %s", title, at(from).Text, lasting(until.Sub(from))))
	}
}

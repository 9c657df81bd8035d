package dashboard

import (
	"fmt"
	"slices"
	"time"

	"github.com/pgelector/pgelector/roster"
)

// timeline is the picture of who led when.
type timeline struct {
	Label    string // what it shows, for those who do not see it
	Bars     []bar
	From, To moment
	Legend   []entry // of the bars that are nobody's
}

// entry says what a class of bars stands for.
type entry struct{ Class, Text string }

// bar is a piece of it, on a scale of 0 to span.
type bar struct {
	X, Width int
	Class    string
	Title    string
}

const (
	span     = 1000
	narrow   = 2 // of a bar, so that it can be seen
	hues     = 8 // that the style sheet has
	vacant   = "vacant"
	nobody   = "unknown"
	showsGap = 3 // of the span; a shorter gap is the thickness of a line
)

// colour gives each candidate that led a colour, by the order in which they did.
func colour(terms []roster.Term) map[string]string {
	of := map[string]string{}
	for _, t := range slices.Backward(terms) {
		if of[t.CandidateID] == "" {
			of[t.CandidateID] = fmt.Sprintf("c%d", len(of)%hues)
		}
	}
	return of
}

// draw makes the timeline of terms, which come with the newest first; nil if
// there is nothing to show.
func draw(terms []roster.Term, colours map[string]string, now time.Time, window time.Duration) *timeline {
	if len(terms) == 0 {
		return nil
	}
	from := now.Add(-window)
	if oldest := terms[len(terms)-1].ElectedAt; oldest.After(from) {
		from = oldest
	}
	s := scale{from: from, length: now.Sub(from)}
	if s.length <= 0 { // the first term has just begun
		s.length = time.Second
	}
	t := &timeline{From: at(from), To: at(now)}
	last := from // up to where it is drawn
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
			title, class = fmt.Sprintf("%s led from %s, and nobody knows until when", term.CandidateID, at(term.ElectedAt).Text), nobody
		default:
			title += ": " + term.Reason
		}
		t.bar(s, term.ElectedAt, until, class, title)
		last = until
	}
	t.gap(s, last, now, vacant, "nobody led")
	for _, e := range []entry{{vacant, "nobody led"}, {nobody, "not known"}} {
		if slices.ContainsFunc(t.Bars, func(b bar) bool { return b.Class == e.Class }) {
			t.Legend = append(t.Legend, e)
		}
	}
	t.Label = fmt.Sprintf("Timeline of %d terms, from %s to %s UTC", shown, t.From.Text, t.To.Text)
	return t
}

// end is when a term ended, as far as it is known.
func end(t roster.Term, now time.Time) (until time.Time, known bool) {
	switch {
	case !t.EndedAt.IsZero():
		return t.EndedAt, true
	case t.Reason == "":
		return now, true
	}
	return now, false
}

// scale places moments in the picture.
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
	t.Bars = append(t.Bars, bar{X: x, Width: max(s.place(until)-x, narrow), Class: class, Title: title})
}

// gap is a bar if it is wide enough to mean something.
func (t *timeline) gap(s scale, from, until time.Time, class, title string) {
	if s.place(until)-s.place(from) >= showsGap {
		t.bar(s, from, until, class, fmt.Sprintf("%s from %s for %s", title, at(from).Text, lasting(until.Sub(from))))
	}
}

package dashboard

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pgelector/pgelector/roster"
)

// moment is a point in time.
type moment struct{ Text, ISO string }

func at(t time.Time) moment {
	t = t.UTC()
	return moment{t.Format("2006-01-02 15:04:05"), t.Format(time.RFC3339)}
}

// lasting formats a duration in its two largest units.
func lasting(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%d d %d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// about formats a duration in one unit.
func about(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d.Round(time.Minute)/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d.Round(time.Hour)/time.Hour)
	}
	return fmt.Sprintf("%d d", d.Round(24*time.Hour)/(24*time.Hour))
}

// Bounds of what the page shows of candidates. Package roster publishes little more, but
// whoever may write its tables may write anything.
const (
	maxText   = 200       // bytes of one text
	maxPairs  = 20        // pairs of a candidate's metadata
	maxOnPage = 128 << 10 // bytes of all metadata
)

// Names up to these lengths, in characters, stay on one line.
const (
	shortName = 20 // in a table
	wholeName = 63 // in a table of a wide page: no candidate's id is longer
	shortPart = 20 // of a name that breaks at its hyphens
)

// wrap returns the class of a name: how the style sheet may break it. A name whose parts are short breaks between them, and
// another anywhere.
func wrap(name string) string {
	class := "id parts"
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '-' || unicode.IsSpace(r) }) {
		if utf8.RuneCountInString(part) > shortPart {
			class = "id"
		}
	}
	switch n := utf8.RuneCountInString(name); {
	case n <= shortName:
		return "id short"
	case n <= wholeName:
		return class + " whole"
	}
	return class
}

// clip cuts every text of the candidates except metadata.
func (f *facts) clip() {
	for i := range f.locks {
		row := &f.locks[i]
		clipAll(&row.ApplicationName, &row.Usename, &row.ClientAddr)
	}
	for i := range f.candidates {
		c := &f.candidates[i]
		clipAll(&c.Election, &c.CandidateID, &c.Version, &c.Why)
	}
	for i := range f.terms {
		t := &f.terms[i]
		clipAll(&t.Election, &t.CandidateID, &t.Reason, &t.Err)
	}
}

func clipAll(texts ...*string) {
	for _, text := range texts {
		*text = clipped(*text)
	}
}

// clipped returns text, cut to maxText bytes.
func clipped(text string) string {
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// metadata returns the pairs to show, and the number of the others. It subtracts the shown
// bytes from budget.
func metadata(c roster.Candidate, budget *int) (shown []pair, more int) {
	all := maps.Clone(c.Metadata)
	if all == nil {
		all = map[string]string{}
	}
	for key, value := range c.HealthMetadata {
		all["health: "+key] = value
	}
	for i, key := range slices.Sorted(maps.Keys(all)) {
		p := pair{clipped(key), clipped(all[key])}
		if size := len(p.Key) + len(p.Value); i < maxPairs && size <= *budget {
			*budget -= size
			shown = append(shown, p)
			continue
		}
		return shown, len(all) - i
	}
	return shown, 0
}

// sentence returns a reason of a term as people say it.
func sentence(reason string) string { return strings.ReplaceAll(reason, "_", " ") }

package dashboard

import (
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/pgelector/pgelector/roster"
)

// Bounds of what the page shows of candidates. Package roster publishes little more, but
// whoever may write its tables may write anything.
const (
	maxText   = 200       // bytes of one text
	maxPairs  = 20        // pairs of a candidate's metadata
	maxOnPage = 128 << 10 // bytes of all metadata
)

// clip cuts every text of the candidates except metadata.
func (f *facts) clip() {
	for i := range f.locks {
		row := &f.locks[i]
		clipAll(&row.ApplicationName, &row.Usename, &row.ClientAddr)
	}
	for i := range f.candidates {
		c := &f.candidates[i]
		clipAll(&c.Election, &c.ID, &c.Version)
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
	for i, key := range slices.Sorted(maps.Keys(c.Metadata)) {
		p := pair{clipped(key), clipped(c.Metadata[key])}
		if size := len(p.Key) + len(p.Value); i < maxPairs && size <= *budget {
			*budget -= size
			shown = append(shown, p)
			continue
		}
		return shown, len(c.Metadata) - i
	}
	return shown, 0
}

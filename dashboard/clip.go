package dashboard

import (
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/pgelector/pgelector/roster"
)

// How much of what candidates tell is shown at the most, in bytes. Package roster
// publishes little more, but whoever may write its tables may write anything.
const (
	maxText   = 200       // of a name, a version, a reason, an error, or one value of metadata
	maxPairs  = 20        // of the metadata of a candidate
	maxOnPage = 128 << 10 // of the metadata of all candidates
)

// clip cuts every text that candidates have told, but for metadata.
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

// clipped is a text that is not longer than maxText.
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

// metadata are the pairs that are shown of a candidate, and how many are not. What is
// shown is taken from the room that the page has left.
func metadata(c roster.Candidate, room *int) (shown []pair, more int) {
	for i, key := range slices.Sorted(maps.Keys(c.Metadata)) {
		p := pair{clipped(key), clipped(c.Metadata[key])}
		if size := len(p.Key) + len(p.Value); i < maxPairs && size <= *room {
			*room -= size
			shown = append(shown, p)
			continue
		}
		return shown, len(c.Metadata) - i
	}
	return shown, 0
}

package dashboard

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/roster"
)

// Whoever may write the roster's tables may write megabytes into each column.
func TestMegabytesInTheRosterMakeAShortPage(t *testing.T) {
	long := strings.Repeat("€", 2<<20)
	f := factsOf(long)
	f.locks = append(f.locks, db.AdvisoryLocksRow{Key: 5, Granted: true, ApplicationName: long, Usename: long, ClientAddr: long})
	w := get(pageOf(t, f, nil), "GET", "/")
	body := w.Body.String()
	if len(body) > 64<<10 || strings.Count(body, "€…") < 10 || !utf8.ValidString(body) {
		t.Errorf("%d bytes, of which %d texts are cut", len(body), strings.Count(body, "€…"))
	}
}

// Package roster publishes at most 8 KiB for each.
func TestMuchMetadataOfManyCandidatesIsNotAllShown(t *testing.T) {
	many := map[string]string{}
	for i := range 70 {
		many[fmt.Sprintf("%03d", i)] = strings.Repeat("m", 110)
	}
	f := facts{at: noon}
	for i := range maxElections * maxCandidates {
		f.candidates = append(f.candidates, roster.Candidate{Key: int64(i / maxCandidates), ID: fmt.Sprint("candidate ", i),
			State: roster.Live, Metadata: maps.Clone(many)})
	}
	h := pageOf(t, f, nil)
	if size := get(h, "GET", "/").Body.Len(); size > 2<<20 {
		t.Errorf("the page has %d bytes", size)
	}
	p := h.page(f, nil)
	first, last := p.Elections[0].Candidates[0], p.Elections[maxElections-1].Candidates[maxCandidates-1]
	if len(first.Metadata) != maxPairs || first.Hidden != 70-maxPairs || first.Metadata[0] != (pair{"000", many["000"]}) {
		t.Errorf("of the first candidate %d pairs are shown, and %d not", len(first.Metadata), first.Hidden)
	}
	if len(last.Metadata) != 0 || last.Hidden != 70 {
		t.Errorf("of the last candidate %d pairs are shown, and %d not", len(last.Metadata), last.Hidden)
	}
}

package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/scraping/timeline"
)

func TestTheCommittedPicturesAreUpToDate(t *testing.T) {
	for name, want := range pictures("../../docs/pictures") {
		if got, err := os.ReadFile("../../docs/pictures/" + name); err != nil || string(got) != want {
			t.Errorf("%s is not up to date (%v): run 'make docs'", name, err)
		}
	}
}

func TestTheRecordingCoversTheWholeMinute(t *testing.T) {
	var scraped timeline.Timeline
	if err := json.Unmarshal(recorded, &scraped); err != nil {
		t.Fatal(err)
	}
	if len(scraped.Events) != 4 || len(scraped.Candidates) != 3 {
		t.Errorf("%d events and %d candidates", len(scraped.Events), len(scraped.Candidates))
	}
	for _, c := range scraped.Candidates {
		if n := int(time.Minute / timeline.Interval); len(c.Leader) != n || len(c.Left) != n {
			t.Errorf("%s: %d and %d values, want %d", c.ID, len(c.Leader), len(c.Left), n)
		}
		for i := range c.Leader {
			if (c.Leader[i] == 1) != (c.Left[i] > 0) {
				t.Errorf("%s: scrape %d: leader %d with %v s left", c.ID, i, c.Leader[i], c.Left[i])
			}
		}
	}
}

func TestTheArithmeticMatchesTheElector(t *testing.T) {
	for file, constants := range map[string][]string{
		"elector/options.go":        {`defaultLease\s*= 10 \* time.Second`, `drainShare\s*= 5 `, `heartbeatShare\s*= 5 `},
		"internal/session/lease.go": {`marginShare\s*= 10 `},
	} {
		source, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range constants {
			if !regexp.MustCompile(want).Match(source) {
				t.Errorf("%s no longer has %q, which the picture of the lease uses", file, want)
			}
		}
	}
}

func TestEveryFaultOfTheRunHasAColour(t *testing.T) {
	coloured := ""
	for _, kind := range kinds {
		coloured += " " + kind.faults + " "
	}
	var run history.Timeline
	if err := json.Unmarshal(tortureSummary, &run); err != nil {
		t.Fatal(err)
	}
	for _, f := range run.Faults {
		if strings.Count(coloured, " "+f.Name+" ") != 1 {
			t.Errorf("the fault %s must have exactly one kind", f.Name)
		}
	}
}

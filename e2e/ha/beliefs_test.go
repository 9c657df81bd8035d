//go:build linux

package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
)

// of returns the history of a process of a kind.
func of(k kind, events []history.Event) []history.Event {
	for i := range events {
		if events[i].Kind == history.Hello {
			events[i].Driver, events[i].Lease, events[i].Idle = k.driver, k.lease, k.idle
		}
	}
	return events
}

// moved returns a history with a fault of the mode leases at 10. a leads until 10.5, though its
// work returns at 15, and b from the given time on.
func moved(k kind, from float64) []history.Event {
	a := of(k, process("a", first, 1, 10.5))
	for i := range a {
		if a[i].Kind == history.Ended {
			a[i].At = second(15)
		}
	}
	return slices.Concat(a, of(k, process("b", later, from, 30)), []history.Event{
		{Kind: history.Primary, Text: "n1", Token: 1, At: second(0), Took: lasts(0, 10.3)},
		{Kind: history.Struck, Text: "switchover, leases", At: second(10)},
		{Kind: history.Calm, At: second(17)},
	})
}

func TestBelievedMeasuresAnswersOfIsLeaderAndNotWorkThatReturnsLate(t *testing.T) {
	k := kind{"lib/pq", time.Minute, true}
	for from, overlap := range map[float64]time.Duration{10.25: 250 * time.Millisecond, 11: 0} {
		got := believed(moved(k, from))
		if want := []belief{{k, 1, overlap, 200 * time.Millisecond}}; !slices.Equal(got, want) {
			t.Errorf("b leads from %v: %+v, want %+v", from, got, want)
		}
	}
}

func TestBelievedCountsOnlyFaultsOfTheModeLeases(t *testing.T) {
	if got := believed(failover()); len(got) > 0 {
		t.Errorf("got %+v", got)
	}
}

func TestTheResultSaysWhetherAGoalIsMissed(t *testing.T) {
	for want, k := range map[string]kind{
		"With pgx the goal of 50 ms is **missed**: two believed for 250 ms at most.": {"pgx", 10 * time.Second, false},
		"With lib/pq the goal of 350 ms is met: two believed for 250 ms at most.":    {"lib/pq", 10 * time.Second, false},
	} {
		path := t.TempDir() + "/page.md"
		r := judge(moved(k, 10.25))
		var printed strings.Builder
		r.print(&printed)
		if err := r.write(path, "make ha"); err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		row := "| " + k.driver + " | 10 s | `InTx` | 1 | 250 ms | " + short(k.goal()) + " | 200 ms |"
		for _, text := range []string{printed.String(), string(page)} {
			if !strings.Contains(text, want) || !strings.Contains(text, row) {
				t.Errorf("want %q and %q:\n%s", row, want, text)
			}
		}
	}
}

// A leader with a lease of a minute may lead on for longer on an old primary than one with the
// lease of the others.
func TestProveKnowsTheLeaseOfALeader(t *testing.T) {
	h := append(failover(), of(kind{"pgx", time.Minute, false}, process("c", later+1, 20, 25))...)
	for i := range h {
		if h[i].Process == "b" && h[i].Kind == history.Hello {
			h[i].Lease = time.Minute
		}
	}
	if claims := broken(h); slices.ContainsFunc(claims, func(c string) bool { return strings.Contains(c, "no two led at once") }) {
		t.Errorf("rejected: %q", claims)
	}
}

func TestAKindHasASeatOnEachRoute(t *testing.T) {
	for _, k := range kinds() {
		routes := map[string]bool{}
		for _, s := range k.seats() {
			routes[string(s.Route)] = true
			if s.DriverName() != k.driver || s.LeaseLength() != k.lease || s.Idle != k.idle {
				t.Errorf("%+v has the seat %+v", k, s)
			}
		}
		if len(routes) != 5 {
			t.Errorf("%+v has %d routes", k, len(routes))
		}
	}
}

func TestTheModeLeasesHasOnlyFaultsThatEndThePrimary(t *testing.T) {
	var names []string
	for _, f := range faults() {
		if f.possible(leases) {
			names = append(names, f.name)
		}
	}
	slices.Sort(names)
	if want := slices.Sorted(slices.Values(endsPrimary)); !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

//go:build linux

package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
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
	for from, beside := range map[float64]time.Duration{10.25: 250 * time.Millisecond, 11: 0} {
		got := believed(moved(k, from))
		if want := []belief{{k, 1, beside, 200 * time.Millisecond}}; !slices.Equal(got, want) {
			t.Errorf("b leads from %v: %+v, want %+v", from, got, want)
		}
	}
}

func TestBelievedCountsOnlyFaultsOfTheModeLeases(t *testing.T) {
	if got := believed(failover()); len(got) > 0 {
		t.Errorf("got %+v", got)
	}
}

func TestTheResultAndThePageSayHowLongAKindBelieved(t *testing.T) {
	path := t.TempDir() + "/page.md"
	r := judge(moved(kind{history.Pgx, 10 * time.Second, false}, 10.25))
	var printed strings.Builder
	r.print(&printed)
	if err := r.write(path, "make ha"); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{printed.String(), string(page)} {
		if row := "| pgx | 10 s | `InTx` | 1 | 250 ms | 200 ms |"; !strings.Contains(text, row) {
			t.Errorf("want %q:\n%s", row, text)
		}
	}
}

// Leader a believes for 250 ms beside the next one, on another primary, or after a crash on its own.
func TestALeaderIsToldThatItsPrimaryIsGone(t *testing.T) {
	on := func(fault string, k kind) []history.Event {
		h := rename(moved(k, 10.25), "switchover, leases", fault+", leases")
		for i := range h {
			if h[i].Kind == history.Primary {
				h[i].Took = lasts(0, 9) // it is gone when b leads
			}
		}
		return h
	}
	crashed := func(k kind) []history.Event {
		h := on("crash", k)
		for i := range h {
			if h[i].Process == "b" && h[i].Token != 0 {
				h[i].Token = first + 1
			}
		}
		return h
	}
	pgx, other := kind{history.Pgx, time.Minute, true}, kind{"lib/pq", time.Minute, true}
	for name, test := range map[string]struct {
		history []history.Event
		holds   bool
	}{
		"pgx, and another is promoted":                {on("switchover", pgx), false},
		"lib/pq, and another is promoted":             {on("switchover", other), true},
		"pgx, whose primary was frozen":               {on("freeze-postgres", pgx), true},
		"pgx, whose primary crashed and came back":    {crashed(pgx), false},
		"lib/pq, whose primary crashed and came back": {crashed(other), true},
	} {
		p := exclusion(fleet.Of("", append(test.history, promotions(test.history)...)))
		if p.Holds() != test.holds {
			t.Errorf("%s: %q", name, p.Violations)
		}
	}
}

// On an old primary that was frozen, a leader with a lease of a minute may lead on for longer than
// one with the lease of the others.
func TestProveKnowsTheLeaseOfALeader(t *testing.T) {
	for lease, holds := range map[time.Duration]bool{fleet.Lease: false, time.Minute: true} {
		h := append(rename(failover(), "lose, async", "freeze-both, async"), of(kind{history.Pgx, lease, false}, process("c", first+1, 12, 20))...)
		claims := broken(h)
		if slices.ContainsFunc(claims, func(c string) bool { return strings.Contains(c, "no two led at once") }) == holds {
			t.Errorf("a lease of %v: %q", lease, claims)
		}
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

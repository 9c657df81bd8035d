//go:build unix

package history

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// leading is a term, by two events.
func leading(process string, token int64, from, to int) []Event {
	return []Event{{Process: process, At: ms(from), Kind: Began, Token: token}, {Process: process, At: ms(to), Kind: Worked, Token: token}}
}

func join(all ...[]Event) (events []Event) {
	for _, some := range all {
		events = append(events, some...)
	}
	return events
}

func TestWhatSeversEverybodyExcusesWhatEndsWithinTheGraceOfIt(t *testing.T) {
	restart := []Event{{At: ms(50), Took: 30 * time.Millisecond, Kind: Severed}} // until 80
	for name, test := range map[string]struct {
		events []Event
		holds  bool
	}{
		"it ends within the grace":     {join(leading("A", 1, 0, 170), restart, leading("B", 2, 90, 200)), true},
		"it ends later":                {join(leading("A", 1, 0, 190), restart, leading("B", 2, 90, 200)), false},
		"the next began before":        {join(leading("A", 1, 0, 60), restart, leading("B", 2, 40, 200)), false},
		"it began after":               {join(restart, leading("A", 1, 85, 170), leading("B", 2, 90, 200)), false},
		"its token is the larger one":  {join(leading("A", 3, 0, 170), restart, leading("B", 2, 90, 200)), false},
		"nothing was severed":          {join(leading("A", 1, 0, 170), leading("B", 2, 90, 200)), false},
		"they do not overlap, however": {join(leading("A", 1, 0, 80), leading("B", 2, 90, 200)), true},
	} {
		if p := OneLeader(test.events, grace); p.Holds() != test.holds {
			t.Errorf("%s: %q, %q", name, p.Violations, p.Checked)
		}
	}
}

// on is a token of a timeline.
func on(timeline, xid int64) int64 { return timeline<<48 | xid }

func TestTwoPrimariesMayHaveALeaderEachUntilTheOldOneIsGone(t *testing.T) {
	split := []Event{{At: ms(50), Kind: Promoted, Token: 2}, {At: ms(100), Kind: Retired}}
	for name, test := range map[string]struct {
		events []Event
		holds  bool
	}{
		"the old one ends within the grace":    {join(leading("A", on(1, 9), 0, 190), split, leading("B", on(2, 5), 60, 300)), true},
		"the old one ends later":               {join(leading("A", on(1, 9), 0, 210), split, leading("B", on(2, 5), 60, 300)), false},
		"both are of the old timeline":         {join(leading("A", on(1, 9), 0, 150), split, leading("B", on(1, 10), 60, 300)), false},
		"both are of the new timeline":         {join(leading("A", on(2, 4), 55, 150), split, leading("B", on(2, 5), 60, 300)), false},
		"the new one led before the promotion": {join(leading("A", on(1, 9), 0, 90), split, leading("B", on(2, 5), 40, 300)), false},
		"the old one is elected after":         {join(split, leading("B", on(2, 5), 60, 300), leading("A", on(1, 9), 70, 90)), true},
		"no old one is retired": {join(leading("A", on(1, 9), 0, 190), split[:1],
			leading("B", on(2, 5), 60, 300)), false},
	} {
		if p := OneLeader(test.events, grace); p.Holds() != test.holds {
			t.Errorf("%s: %q, %q", name, p.Violations, p.Checked)
		}
	}
}

func TestATokenMayFallOnlyOnAPrimaryThatIsReplaced(t *testing.T) {
	split := []Event{{At: ms(50), Kind: Promoted, Token: 2}, {At: ms(100), Kind: Retired}}
	fresh := leading("B", on(2, 5), 60, 65)
	for name, test := range map[string]struct {
		late  []Event
		holds bool
	}{
		"on the old primary":                {leading("A", on(1, 9), 70, 90), true},
		"on the old primary, which is gone": {leading("A", on(1, 9), 110, 120), false},
		"on the new primary":                {leading("A", on(2, 4), 70, 90), false},
	} {
		if p := TokensRise(join(split, fresh, test.late)); p.Holds() != test.holds {
			t.Errorf("%s: %q", name, p.Violations)
		}
	}
}

func TestNothingIsClaimedOfAThawThatHasNoToken(t *testing.T) {
	thaw := []Event{{Process: "A", At: ms(50), Kind: Thawed}, {Process: "A", At: ms(51), Kind: Sample, Token: 7, Leading: true}}
	if p := ThawedKnow(thaw); !p.Holds() {
		t.Error(p.Violations)
	}
	thaw[0].Token = 7
	if p := ThawedKnow(thaw); p.Holds() {
		t.Error("a thawed leader believes in its term")
	}
	thaw[1].Token = 8
	if p := ThawedKnow(thaw); !p.Holds() { // it was elected anew
		t.Error(p.Violations)
	}
}

func TestAfterEachCalmSomebodyMustLeadWithinTheBound(t *testing.T) {
	calm := func(at int) []Event { return []Event{{At: ms(at), Kind: Calm}} }
	for name, test := range map[string]struct {
		events []Event
		says   string // in the violation; "" if there is none
	}{
		"in time":       {join(calm(10), leading("A", 1, 50, 60), calm(55), leading("B", 2, 150, 160)), ""},
		"too late":      {join(calm(10), leading("A", 1, 111, 120)), "nobody led for 101.0 ms"},
		"never":         {join(leading("A", 1, 0, 9), calm(10)), "nobody led after"},
		"without a one": {leading("A", 1, 0, 9), "no calm"},
	} {
		p := Recovers(test.events, grace)
		if said := strings.Join(p.Violations, "; "); (said == "") != (test.says == "") || !strings.Contains(said, test.says) {
			t.Errorf("%s: %q, want %q", name, said, test.says)
		}
	}
}

func TestTheTimelineHasTermsAndFaultsInMilliseconds(t *testing.T) {
	events := join(leading("A1", 1, 110, 150), []Event{{At: ms(160), Kind: Struck, Text: "kill"}, {At: ms(170), Kind: Healed, Text: "kill"}}, leading("B1", 2, 180, 200))
	got := NewTimeline(events, ms(100), func(process string) string { return process[:1] })
	want := Timeline{Length: 100, Terms: []Stretch{{"A", 10, 50}, {"B", 80, 100}}, Faults: []Stretch{{"kill", 60, 70}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

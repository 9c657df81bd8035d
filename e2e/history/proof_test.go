//go:build unix

package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const grace = 100 * time.Millisecond

// ms returns a time in milliseconds.
func ms(n int) Time { return Time(time.Duration(n) * time.Millisecond) }

// numbered numbers the events of each process, as a Recorder does.
func numbered(events ...Event) []Event {
	seq := make(map[string]int)
	for i, e := range events {
		if slices.Contains([]Kind{Killed, Frozen, Thawed, Severed, Died, Found}, e.Kind) {
			continue
		}
		seq[e.Process]++
		events[i].Seq = seq[e.Process]
	}
	return events
}

// good returns a history of three terms: A resigns, B is frozen, C is killed.
func good() []Event {
	return numbered(
		Event{Process: "A", At: ms(0), Kind: Hello, Driver: Pgx},
		Event{Process: "B", At: ms(0), Kind: Hello, Driver: "lib/pq"},
		Event{Process: "C", At: ms(0), Kind: Hello, Driver: Pgx},
		Event{Process: "A", At: ms(10), Kind: Elected, Token: 7},
		Event{Process: "A", At: ms(11), Kind: Began, Token: 7},
		Event{Process: "A", At: ms(12), Kind: Sample, Token: 7, Leading: true},
		Event{Process: "A", At: ms(20), Kind: Worked, Token: 7},
		Event{Process: "B", At: ms(25), Kind: Sample},
		Event{Process: "A", At: ms(30), Kind: Ended, Token: 7},
		Event{Process: "A", At: ms(31), Kind: Demoted, Token: 7},
		Event{Process: "B", At: ms(40), Kind: Elected, Token: 8},
		Event{Process: "B", At: ms(41), Kind: Began, Token: 8},
		Event{Process: "B", At: ms(50), Kind: Sample, Token: 8, Leading: true},
		Event{Process: "B", At: ms(51), Kind: Frozen, Token: 8},
		Event{Process: "C", At: ms(90), Kind: Elected, Token: 9},
		Event{Process: "C", At: ms(91), Kind: Began, Token: 9},
		Event{Process: "B", At: ms(99), Kind: Thawed, Token: 8},
		Event{Process: "B", At: ms(100), Kind: Sample},
		Event{Process: "B", At: ms(101), Kind: Ended, Token: 8, Overdue: true},
		Event{Process: "B", At: ms(102), Kind: Demoted, Token: 8},
		Event{Process: "C", At: ms(110), Kind: Worked, Token: 9},
		Event{Process: "C", At: ms(111), Kind: Killed, Token: 9},
		Event{Process: "A", At: ms(120), Kind: Bye},
		Event{Process: "B", At: ms(120), Kind: Bye},
	)
}

func TestVerifyAcceptsAGoodHistory(t *testing.T) {
	for _, p := range Verify(good(), grace) {
		if !p.Holds() {
			t.Errorf("%s: %q", p.Claim, p.Violations)
		}
	}
	if err := FailedProofs(Verify(good(), grace)); err != nil {
		t.Error(err)
	}
}

// Each of these histories contradicts the named claim, and maybe others.
func TestVerifyRejectsABadHistory(t *testing.T) {
	with := func(more ...Event) []Event { return append(good(), more...) }
	changed := func(kind Kind, process string, change func(*Event)) []Event {
		events := good()
		i := slices.IndexFunc(events, func(e Event) bool { return e.Kind == kind && e.Process == process })
		change(&events[i])
		return events
	}
	without := func(kind Kind, process string) []Event {
		return numbered(slices.DeleteFunc(good(), func(e Event) bool { return e.Kind == kind && e.Process == process })...)
	}
	severed := func(after int) []Event {
		return with(
			Event{Process: "A", At: ms(20), Kind: Severed, Token: 7},
			Event{Process: "A", At: ms(20 + after), Kind: Sample, Leading: true, Token: 7})
	}
	tests := []struct {
		name   string
		events []Event
		claim  string
		says   string
	}{
		{"an IsLeader() that says true late", with(Event{Process: "A", At: ms(45), Kind: Sample, Token: 7, Leading: true}),
			"no two led at once", "A (token 7) and B (token 8) both led for 4.0 ms"},
		{"a lead() that returns late", changed(Ended, "A", func(e *Event) { e.At = ms(43) }),
			"no two led at once", "A (token 7) and B (token 8) both led for 2.0 ms"},
		{"a step of work during another leader's term", with(Event{Process: "A", At: ms(44), Kind: Worked, Token: 7}),
			"no two led at once", "A (token 7)"},
		{"a term within another", changed(Began, "C", func(e *Event) { e.At = ms(45) }),
			"no two led at once", "B (token 8) and C (token 9)"},
		{"nobody ever leads", numbered(Event{Process: "A", Kind: Hello}, Event{Process: "A", Kind: Bye}),
			"no two led at once", "nobody"},
		{"a cut-off leader that led on for too long", severed(101),
			"no two led at once", "A (token 7) and B (token 8)"},
		{"a cut-off leader that was told too late", severed(101),
			"the cut-off leader learned", "led on for 101.0 ms after the server had ended its session (bound 100ms)"},
		{"a token that falls", changed(Began, "C", func(e *Event) { e.Token = 6 }),
			"tokens rose strictly", "C began with token 6 after B had begun with 8"},
		{"a token that repeats", changed(Began, "C", func(e *Event) { e.Token = 8 }),
			"tokens rose strictly", "token 8"},
		{"a doubled elected", changed(Hello, "C", func(e *Event) { e.Kind, e.Token = Elected, 5 }),
			"hooks alternated", "C was elected (token 9) while it was (token 5)"},
		{"a doubled demoted", changed(Bye, "A", func(e *Event) { e.Kind, e.Token = Demoted, 7 }),
			"hooks alternated", "A was demoted (token 7) while its term was 0"},
		{"a demoted of another term", changed(Demoted, "A", func(e *Event) { e.Token = 5 }),
			"hooks alternated", "A was demoted (token 5)"},
		{"a missing demoted", without(Demoted, "B"), "hooks alternated", "B was never demoted"},
		{"a missing event", slices.Delete(good(), 6, 7), "nothing is missing", "A"},
		{"a missing beginning", without(Hello, "B"), "nothing is missing", "begins with sample"},
		{"a missing end", without(Bye, "A"), "nothing is missing", "breaks off after demoted"},
		{"no event at all", nil, "nothing is missing", "nothing was recorded"},
		{"a thawed leader that believes", changed(Sample, "B", func(e *Event) { e.At = ms(99); e.Leading = true; e.Token = 8 }),
			"the thawed leader knew", "said true"},
		{"a thawed leader that is never asked", without(Sample, "B"), "the thawed leader knew", "never asked"},
		{"a thawed leader that works on", with(Event{Process: "B", At: ms(100), Kind: Worked, Token: 8}),
			"the thawed leader knew", "B worked on"},
	}
	for _, test := range tests {
		t.Run(test.name+" fails "+test.claim, func(t *testing.T) {
			proofs := Verify(test.events, grace)
			i := slices.IndexFunc(proofs, func(p Proof) bool { return p.Claim == test.claim })
			if i < 0 || proofs[i].Holds() {
				t.Fatalf("not detected: %+v", proofs)
			}
			if said := strings.Join(proofs[i].Violations, "; "); !strings.Contains(said, test.says) {
				t.Errorf("says %q, want %q", said, test.says)
			}
			if err := FailedProofs(proofs); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want %q", err, test.says)
			}
		})
	}
}

func TestASeveredLeaderMayBelieveUntilItIsTold(t *testing.T) {
	events := append(good(), Event{Process: "A", At: ms(20), Kind: Severed, Token: 7},
		Event{Process: "A", At: ms(45), Kind: Sample, Token: 7, Leading: true})
	if err := FailedProofs(Verify(events, grace)); err != nil {
		t.Error(err)
	}
	want := "the server ended 1 session of a leader, who stopped within 25.0 ms; they overlapped with the next leader, whose token was larger, for 4.0 ms"
	if got := SeveredLearn(events).Checked; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p := OneLeader(events, grace)
	if p.Claim != "no two led at once, except after the server had ended a session" || !strings.HasSuffix(p.Checked, "; 1 overlap after the server had ended a session, of 4.0 ms at most") {
		t.Errorf("it claims %q, and says %q", p.Claim, p.Checked)
	}
}

// One fault freezes it, and another kills it before the thaw.
func TestALeaderThatIsKilledWhileItIsFrozenIsNotAsked(t *testing.T) {
	events := slices.DeleteFunc(good(), func(e Event) bool { return e.Process == "B" && e.At > ms(51) && e.Kind != Thawed })
	i := slices.IndexFunc(events, func(e Event) bool { return e.Kind == Thawed })
	events = slices.Insert(events, i, Event{Process: "B", At: ms(60), Kind: Killed, Token: 8})
	if err := FailedProofs(Verify(numbered(events...), grace)); err != nil {
		t.Error(err)
	}
}

// The result of IsLeader was valid at some moment between call and return. Only a certain
// overlap contradicts the claim.
func TestASlowIsLeaderIsNotAnOverlap(t *testing.T) {
	early := Event{Process: "B", At: ms(28), Took: ms(13).Sub(0), Kind: Sample, Token: 8, Leading: true}
	late := Event{Process: "A", At: ms(29), Took: ms(20).Sub(0), Kind: Sample, Token: 7, Leading: true}
	if p := OneLeader(append(good(), early, late), grace); !p.Holds() {
		t.Error(p.Violations)
	}
}

func TestProofsReportWhatTheyChecked(t *testing.T) {
	var checked strings.Builder
	for _, p := range Verify(good(), grace) {
		fmt.Fprintf(&checked, "%s: %s\n", p.Claim, p.Checked)
	}
	want := `nothing is missing: 21 events of 3 processes, numbered without a gap
no two led at once: 3 terms compared; IsLeader() said true 2 times of 4; lead() took 2 steps
tokens rose strictly: 3 terms, tokens 7 to 9
hooks alternated: elected 3×, demoted 2× in 3 processes (who was killed was not demoted)
the thawed leader knew: the first IsLeader() of B after SIGCONT (1.0 ms) said false; no step of work after
`
	if checked.String() != want {
		t.Errorf("got\n%s\nwant\n%s", checked.String(), want)
	}
}

// leading returns a term as two events.
func leading(process string, token int64, from, to int) []Event {
	return []Event{{Process: process, At: ms(from), Kind: Began, Token: token}, {Process: process, At: ms(to), Kind: Worked, Token: token}}
}

func join(all ...[]Event) (events []Event) {
	for _, some := range all {
		events = append(events, some...)
	}
	return events
}

func TestASeveringOfAllSessionsAllowsOverlapsWithinTheGracePeriod(t *testing.T) {
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

// The server ends the session of A at 50, and B leads from 100.
func TestALeaderWhoseSessionEndedIsToldInTimeUnlessItsProcessOrItsNetworkStoodStill(t *testing.T) {
	lost := func(driver string, until int, more ...Event) []Event {
		return join([]Event{{Process: "A", Kind: Hello, Driver: driver}, {At: ms(50), Kind: Severed, Took: 10 * time.Millisecond}},
			leading("A", 1, 0, until), leading("B", 2, 100, 2000), more)
	}
	stood := func(at, since int) Event {
		return Event{Process: "A", At: ms(at), Kind: Sample, Stood: time.Duration(since) * time.Millisecond}
	}
	held := func(process string, from, to int) Event {
		return Event{Process: process, At: ms(from), Kind: Held, Took: ms(to).Sub(ms(from))}
	}
	for name, test := range map[string]struct {
		events []Event
		holds  bool
	}{
		"pgx is told":                           {lost(Pgx, 200), true},
		"pgx is not told":                       {lost(Pgx, 201), false},
		"lib/pq looks":                          {lost("lib/pq", 600), true},
		"lib/pq does not look":                  {lost("lib/pq", 601), false},
		"its work returns late":                 {lost(Pgx, 200, Event{Process: "A", At: ms(900), Kind: Ended, Token: 1}), true},
		"its work returns after the grace":      {lost(Pgx, 200, Event{Process: "A", At: ms(1061), Kind: Ended, Token: 1}), false},
		"it stood still":                        {lost(Pgx, 400, stood(300, 200)), true},
		"it stood still, and then was not told": {lost(Pgx, 401, stood(300, 200)), false},
		"it stood still before":                 {lost(Pgx, 201, stood(100, 90)), false},
		"it stood still twice, for some of it":  {lost(Pgx, 400, stood(200, 150), stood(320, 100)), true},
		"what was said was held back":           {lost(Pgx, 400, held("A", 20, 300)), true},
		"for less long":                         {lost(Pgx, 400, held("A", 20, 299)), false},
		"of another":                            {lost(Pgx, 400, held("B", 20, 300)), false},
		"both, at the same time":                {lost(Pgx, 400, stood(300, 200), held("A", 20, 300)), true},
		"both, and then it was not told":        {lost(Pgx, 401, stood(300, 200), held("A", 20, 300)), false},
	} {
		if p := OneLeader(test.events, time.Second); p.Holds() != test.holds {
			t.Errorf("%s: %q, %q", name, p.Violations, p.Checked)
		}
	}
}

func TestALeaderWhoseServersHostHasDiedMayOverlapForAsLongAsTheEventSays(t *testing.T) {
	died := func(took int) []Event {
		return []Event{{Process: "A", Token: 1, At: ms(50), Took: time.Duration(took) * time.Millisecond, Kind: Died}}
	}
	for name, test := range map[string]struct {
		events []Event
		holds  bool
	}{
		"it ends within its validity and drain":         {join(leading("A", 1, 0, 140), died(90), leading("B", 2, 70, 200)), true},
		"it ends later":                                 {join(leading("A", 1, 0, 150), died(90), leading("B", 2, 70, 200)), false},
		"with a lock delay":                             {join(leading("A", 1, 0, 75), died(0), leading("B", 2, 70, 200)), false},
		"with a lock delay, and no overlap":             {join(leading("A", 1, 0, 140), died(0), leading("B", 2, 150, 200)), true},
		"the next began before":                         {join(leading("A", 1, 0, 140), died(90), leading("B", 2, 40, 200)), false},
		"its token is the larger one":                   {join(leading("A", 1, 0, 140), died(90), leading("B", 0, 70, 200)), false},
		"it was another term":                           {join(leading("A", 7, 0, 140), died(90), leading("B", 8, 70, 200)), false},
		"another process led, which has been told":      {join(leading("C", 1, 0, 140), died(90), leading("B", 2, 70, 200)), false},
		"two lead beside it, on the server that is new": {join(leading("A", 1, 0, 140), died(90), leading("B", 2, 70, 200), leading("C", 3, 80, 200)), false},
	} {
		if p := OneLeader(test.events, grace); p.Holds() != test.holds {
			t.Errorf("%s: %q, %q", name, p.Violations, p.Checked)
		}
	}
}

// on returns a token with that timeline.
func on(timeline, xid int64) int64 { return timeline<<48 | xid }

func TestEachOfTwoPrimariesMayHaveALeaderUntilTheOldOneIsGone(t *testing.T) {
	split := []Event{{At: ms(50), Kind: Promoted, Token: 2}, {At: ms(100), Kind: Retired}}
	for name, test := range map[string]struct {
		events []Event
		holds  bool
	}{
		"the old one ends within the grace":    {join(leading("A", on(1, 9), 0, 190), split, leading("B", on(2, 5), 60, 300)), true},
		"the old one ends later":               {join(leading("A", on(1, 9), 0, 301), split, leading("B", on(2, 5), 60, 300)), false},
		"the old one is not told":              {join([]Event{{Process: "A", Kind: Hello, Driver: Pgx}}, leading("A", on(1, 9), 0, 201), split, leading("B", on(2, 5), 60, 900)), false},
		"both are of the old timeline":         {join(leading("A", on(1, 9), 0, 150), split, leading("B", on(1, 10), 60, 300)), false},
		"both are of the new timeline":         {join(leading("A", on(2, 4), 55, 150), split, leading("B", on(2, 5), 60, 300)), false},
		"the new one led before the promotion": {join(leading("A", on(1, 9), 0, 90), split, leading("B", on(2, 5), 40, 300)), false},
		"the old one is elected after":         {join(split, leading("B", on(2, 5), 60, 300), leading("A", on(1, 9), 70, 90)), true},
		"no old one is retired": {join(leading("A", on(1, 9), 0, 251), split[:1],
			leading("B", on(2, 5), 60, 300)), false},
	} {
		if p := OneLeader(test.events, 2*grace); p.Holds() != test.holds {
			t.Errorf("%s: %q, %q", name, p.Violations, p.Checked)
		}
	}
}

func TestATokenMayFallOnlyOnAReplacedPrimary(t *testing.T) {
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

func TestThawedKnowIgnoresAThawWithoutAToken(t *testing.T) {
	thaw := []Event{{Process: "A", At: ms(50), Kind: Thawed}, {Process: "A", At: ms(51), Kind: Sample, Token: 7, Leading: true}}
	if p := ThawedKnow(thaw); !p.Holds() {
		t.Error(p.Violations)
	}
	thaw[0].Token = 7
	if p := ThawedKnow(thaw); p.Holds() {
		t.Error("a thawed leader believes in its term")
	}
	thaw[1].Token = 8
	if p := ThawedKnow(thaw); !p.Holds() { // it was elected again
		t.Error(p.Violations)
	}
}

func TestRecoversRequiresALeaderWithinTheBoundAfterEachCalm(t *testing.T) {
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

// lateAttempts returns the end of a history: B checks and is frozen, C writes, B writes.
func lateAttempts() []Event {
	events := []Event{{Process: "B", At: ms(50), Kind: Checked, Token: 8, Leading: true}}
	for _, way := range Ways {
		late, holds := Event{Process: "B", At: ms(101), Kind: Refused, Token: 8, Way: way, Text: "stale"}, Event{Process: "C", Token: 9}
		if way == Unfenced {
			late.Kind, late.Text, holds = Wrote, "", Event{Process: "B", Token: 8}
		}
		events = append(events,
			Event{Process: "C", At: ms(92), Took: ms(2).Sub(0), Kind: Wrote, Token: 9, Way: way}, late,
			Event{Process: holds.Process, At: ms(110), Kind: Found, Token: holds.Token, Way: way})
	}
	return events
}

func TestLateWritesAcceptsRefusedFencedWrites(t *testing.T) {
	p := LateWrites(lateAttempts())
	want := "B (token 8) had checked, and wrote after C (token 9) had written; unfenced: it went through, and the store holds that of B; " +
		"Term.InTx: it was refused, and the store holds that of C; token: it was refused, and the store holds that of C"
	if !p.Holds() || p.Checked != want {
		t.Errorf("%q, violations %q", p.Checked, p.Violations)
	}
}

func TestLateWritesRejectsAHistoryThatShowsOtherwise(t *testing.T) {
	changed := func(kind Kind, way Way, change func(*Event)) []Event {
		events := lateAttempts()
		i := slices.IndexFunc(events, func(e Event) bool { return e.Kind == kind && e.Way == way && e.At != ms(92) })
		change(&events[i])
		return events
	}
	wentThrough := func(e *Event) { e.Kind = Wrote }
	tests := []struct {
		name   string
		events []Event
		says   string
	}{
		{"InTx lets it through", changed(Refused, InTx, wentThrough), "Term.InTx: the late write of B (token 8) went through"},
		{"the token lets it through", changed(Refused, ByToken, wentThrough), "token: the late write of B (token 8) went through"},
		{"the unfenced one is refused", changed(Wrote, Unfenced, func(e *Event) { e.Kind = Refused }), "unfenced: the late write of B (token 8) was refused"},
		{"one was in time", changed(Refused, InTx, func(e *Event) { e.At = ms(93) }), "Term.InTx: no write came late"},
		{"none was tried", changed(Refused, ByToken, func(e *Event) { e.Kind = Failed }), "token: no write came late"},
		{"refused, but it is there", changed(Found, InTx, func(e *Event) { e.Process, e.Token = "B", 8 }), "the store does not hold that of C"},
		{"gone through, but it is not there", changed(Found, Unfenced, func(e *Event) { e.Process, e.Token = "C", 9 }), "the store does not hold that of B"},
		{"the check came later", changed(Checked, "", func(e *Event) { e.At = ms(100) }), "had not checked before C wrote"},
		{"the check said no", changed(Checked, "", func(e *Event) { e.Leading = false }), "had not checked before C wrote"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if said := strings.Join(LateWrites(test.events).Violations, "; "); !strings.Contains(said, test.says) {
				t.Errorf("says %q, want %q", said, test.says)
			}
			err := FailedProofs(Verify(test.events, grace))
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want %q", err, test.says)
			}
		})
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestALogCollectsWhatARecorderWrites(t *testing.T) {
	var lines bytes.Buffer
	r := NewRecorder(&lines, "A")
	before := Now()
	r.Record(Event{Kind: Hello, Text: "pgx"})
	r.Record(Event{Kind: Sample, At: 5, Took: 3, Leading: true, Token: 1<<48 | 745, Deadline: 9})
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	var log Log
	if err := log.Collect(&lines); err != nil {
		t.Fatal(err)
	}
	events := log.Since(0)
	if len(events) != 2 || events[0].At < before || events[0].Text != "pgx" {
		t.Fatalf("got %+v", events)
	}
	if want := (Event{Process: "A", Seq: 2, Kind: Sample, At: 5, Took: 3, Leading: true, Token: 1<<48 | 745, Deadline: 9}); events[1] != want {
		t.Errorf("got %+v, want %+v", events[1], want)
	}
}

func TestCollectFailsOnALineThatIsNotAnEvent(t *testing.T) {
	if err := new(Log).Collect(strings.NewReader("{\"process\":\"A\"}\npanic: oh\n")); err == nil || !strings.Contains(err.Error(), "panic: oh") {
		t.Errorf("got %v", err)
	}
}

func TestAwaitReturnsTheNextEvents(t *testing.T) {
	var log Log
	go log.Add(Event{Process: "A"})
	events, err := log.Await(t.Context(), 0)
	if err != nil || len(events) != 1 {
		t.Fatalf("got %v, error %v", events, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := log.Await(ctx, 1); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause of the context", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestARecorderKeepsItsFirstError(t *testing.T) {
	r := NewRecorder(full{}, "A")
	r.Record(Event{Kind: Hello})
	r.Record(Event{Kind: Bye})
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "record hello: disk full") {
		t.Errorf("got %v", err)
	}
}

// Events keep their content when they are written and read again, and Verify does not
// panic on any order of events.
func FuzzCollectAndVerify(f *testing.F) {
	f.Add([]byte(`{"process":"a","seq":1,"at":1,"kind":"hello","pid":7}` + "\n" +
		`{"process":"a","seq":2,"at":5,"kind":"elected","token":9}` + "\n" +
		`{"process":"a","seq":3,"at":6,"kind":"sample","took":2,"leading":true,"token":9,"deadline":40}` + "\n" +
		`{"process":"b","at":7,"kind":"killed"}` + "\n"))
	f.Add([]byte(`{"process":"a","at":-1,"kind":"wrote","way":"token","token":-3}` + "\n"))
	for _, lines := range []string{"{}\n\n", `{"seq":1e99}`, `{"a":0}`, "{", "[0", "10", `"0"`, "\"\x80\"", "\"0\xff", "'", "\b", "\x7f\xff"} {
		f.Add([]byte(lines))
	}
	f.Fuzz(func(t *testing.T, lines []byte) {
		var log Log
		_ = log.Collect(bytes.NewReader(lines)) // what came before an error was collected
		events := log.Since(0)
		var written bytes.Buffer
		for _, e := range events {
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			written.Write(append(line, '\n'))
		}
		var again Log
		if err := again.Collect(&written); err != nil {
			t.Fatal(err)
		}
		if read := again.Since(0); len(events) > 0 && !reflect.DeepEqual(read, events) {
			t.Errorf("wrote %+v, read %+v", events, read)
		}
		if proofs := Verify(events, time.Second); len(proofs) == 0 {
			t.Error("nothing was proved or refuted")
		}
		LateWrites(events)
	})
}

//go:build unix

package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const grace = 100 * time.Millisecond

// ms is a time in milliseconds.
func ms(n int) Time { return Time(time.Duration(n) * time.Millisecond) }

// numbered gives the events of each process their numbers, as a Recorder does.
func numbered(events ...Event) []Event {
	seq := make(map[string]int)
	for i, e := range events {
		if slices.Contains([]Kind{Killed, Frozen, Thawed, Severed, Found}, e.Kind) {
			continue
		}
		seq[e.Process]++
		events[i].Seq = seq[e.Process]
	}
	return events
}

// good is a history of three terms: A resigns, B is frozen, C is killed.
func good() []Event {
	return numbered(
		Event{Process: "A", At: ms(0), Kind: Hello},
		Event{Process: "B", At: ms(0), Kind: Hello},
		Event{Process: "C", At: ms(0), Kind: Hello},
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

func TestAGoodHistoryIsProved(t *testing.T) {
	for _, p := range Verify(good(), grace) {
		if !p.Holds() {
			t.Errorf("%s: %q", p.Claim, p.Violations)
		}
	}
	if err := FailedProofs(Verify(good(), grace)); err != nil {
		t.Error(err)
	}
}

// Each of these histories contradicts the claim; it may contradict others, too.
func TestABadHistoryFailsItsProof(t *testing.T) {
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
			Event{Process: "A", At: ms(20 + after), Kind: Ended, Token: 7})
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
		{"a step of work beside another leader", with(Event{Process: "A", At: ms(44), Kind: Worked, Token: 7}),
			"no two led at once", "A (token 7)"},
		{"a term within another", changed(Began, "C", func(e *Event) { e.At = ms(45) }),
			"no two led at once", "B (token 8) and C (token 9)"},
		{"nobody ever leads", numbered(Event{Process: "A", Kind: Hello}, Event{Process: "A", Kind: Bye}),
			"no two led at once", "nobody"},
		{"a cut-off leader that led on for too long", severed(101),
			"no two led at once", "A (token 7) and B (token 8)"},
		{"a cut-off leader that led on for too long", severed(101),
			"the cut-off leader learned", "led on for 101.0 ms"},
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

func TestACutOffLeaderMayLeadOnForTheGrace(t *testing.T) {
	events := append(good(), Event{Process: "A", At: ms(20), Kind: Severed, Token: 7},
		Event{Process: "A", At: ms(45), Kind: Sample, Token: 7, Leading: true})
	if err := FailedProofs(Verify(events, grace)); err != nil {
		t.Error(err)
	}
	want := "the server ended 1 session of a leader, who stopped within 25.0 ms (bound 100ms); beside the next leader, whose token was larger, for 4.0 ms"
	if got := SeveredLearn(events, grace).Checked; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An answer was true at some moment between question and answer: only what is
// certain may contradict the claim.
func TestASlowAnswerIsNoOverlap(t *testing.T) {
	early := Event{Process: "B", At: ms(28), Took: ms(13).Sub(0), Kind: Sample, Token: 8, Leading: true}
	late := Event{Process: "A", At: ms(29), Took: ms(20).Sub(0), Kind: Sample, Token: 7, Leading: true}
	if p := OneLeader(append(good(), early, late), grace); !p.Holds() {
		t.Error(p.Violations)
	}
}

func TestProofsSayOverWhatTheyChecked(t *testing.T) {
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

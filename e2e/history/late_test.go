//go:build unix

package history

import (
	"slices"
	"strings"
	"testing"
)

// lateAttempts is the end of a history: B has checked and was frozen, C has
// written, B writes.
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

func TestALateWriteIsRefusedIfAndOnlyIfItIsFenced(t *testing.T) {
	p := LateWrites(lateAttempts())
	want := "B (token 8) had checked, and wrote after C (token 9) had written; unfenced: it went through, and the store holds that of B; " +
		"Term.InTx: it was refused, and the store holds that of C; token: it was refused, and the store holds that of C"
	if !p.Holds() || p.Checked != want {
		t.Errorf("%q, violations %q", p.Checked, p.Violations)
	}
}

func TestALateWriteThatShowsOtherwiseFailsItsProof(t *testing.T) {
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

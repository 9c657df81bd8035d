//go:build linux

package fleet

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A process may be killed after its write and before it records the outcome.
func TestAWriteWithoutARecordedOutcomeMayTakeEffect(t *testing.T) {
	write := func(kind history.Kind, process, before, after string, at history.Time) history.Event {
		return history.Event{Process: process, Kind: kind, Register: "r", Old: before, New: after, At: at, Took: 1}
	}
	killed := []history.Event{write(history.Writes, "a", "", "a-1", 10)}
	for name, test := range map[string]struct {
		then  []history.Event
		holds bool
	}{
		"it has":             {[]history.Event{write(history.Wrote, "b", "a-1", "b-1", 20)}, true},
		"it has not":         {[]history.Event{write(history.Wrote, "b", "", "b-1", 20)}, true},
		"it has, after next": {[]history.Event{write(history.Wrote, "b", "", "b-1", 20), write(history.Read, "c", "", "a-1", 30)}, false},
	} {
		if p := Linearizable(append(slices.Clone(killed), test.then...)); p.Holds() != test.holds {
			t.Errorf("%s: %q", name, p.Violations)
		}
	}
}

// The first write to a register names it. If its writer was killed, only a later read
// shows the name.
func TestAKilledFirstWriteBelongsToTheRegisterThatReadsIt(t *testing.T) {
	first := history.Event{Process: "a", Kind: history.Writes, New: "a-1", At: 10}
	read := history.Event{Process: "b", Kind: history.Read, Register: "r", New: "a-1", At: 20, Took: 1}
	if p := Linearizable([]history.Event{first, {Kind: history.Wrote, Register: "s", New: "c-1"}, read}); !p.Holds() {
		t.Errorf("rejected: %q", p.Violations)
	}
	if p := Linearizable([]history.Event{{Kind: history.Wrote, Register: "s", New: "c-1"}, read}); p.Holds() {
		t.Error("accepted a read of a value that nobody wrote")
	}
}

func TestOfIncludesEventsWithoutAnElection(t *testing.T) {
	events := []history.Event{{Kind: history.Hello, Seq: 1}, {Kind: history.Calm}, {Kind: history.Began, Seq: 2},
		{Kind: history.Began, Seq: 3, Election: SecondElection}}
	if got := Of("", events); len(got) != 3 || got[2].Seq != 2 {
		t.Errorf("of the first: %+v", got)
	}
	if got := Of(SecondElection, events); len(got) != 3 || got[2].Seq != 3 {
		t.Errorf("of the second: %+v", got)
	}
}

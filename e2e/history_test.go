//go:build unix

package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// entry is one line of a candidate's history. Terms are told in wall clock time,
// what a witness saw in that of the monotonic clock; both in nanoseconds.
type entry struct {
	ID       string
	Kind     kind
	Token    int64  `json:",omitempty"`
	From, To int64  `json:",omitempty"`
	Believes bool   `json:",omitempty"`
	Text     string `json:",omitempty"`
	Election string `json:",omitempty"` // of the many on a session
}

type kind string

const (
	ready    kind = "ready"    // to be told to shut down
	elected  kind = "elected"  // From: when
	demoted  kind = "demoted"  // From: when; Text: the reason
	renewed  kind = "renewed"  // From: when a heartbeat was answered; To: the deadline
	failed   kind = "failed"   // From: when; Text: the error
	believed kind = "believed" // From, To: for certain
	blinked  kind = "blinked"  // From, To: between two looks; Believes: what the second saw
	violated kind = "violated" // Text: how a hook's contract was broken
)

// judge returns a sentence for each way in which the history of an election
// breaks the promise: terms overlap by the candidates' own belief, tokens do not
// rise, a candidate is elected twice or demoted twice in a row.
//
// A leader whose session the server was made to end may believe in itself until
// its next heartbeat, beside the next leader: that is what the token is for.
// Such candidates are named, and are excused for terms that ended so.
func judge(history []entry, excused ...string) (verdict []string) {
	verdict = append(verdict, judgeTerms(history)...)
	verdict = append(verdict, judgeBeliefs(history, func(belief entry) bool {
		return slices.Contains(excused, belief.ID) && slices.ContainsFunc(history, func(e entry) bool {
			return e.Kind == demoted && e.ID == belief.ID && e.Token == belief.Token && e.Text == string(hooks.SessionLost)
		})
	})...)
	for _, e := range history {
		if e.Kind == violated {
			verdict = append(verdict, e.ID+" "+e.Text)
		}
	}
	return verdict
}

// judgeEach judges the elections of a history one by one.
func judgeEach(history []entry, excused ...string) (verdict []string) {
	each := map[string][]entry{}
	for _, e := range history {
		each[e.Election] = append(each[e.Election], e)
	}
	for election, entries := range each {
		for _, wrong := range judge(entries, excused...) {
			verdict = append(verdict, election+" "+wrong)
		}
	}
	return verdict
}

func judgeTerms(history []entry) (verdict []string) {
	leading := map[string]int64{} // the token of who leads
	var elections []entry
	for _, e := range history {
		token, leads := leading[e.ID]
		switch {
		case e.Kind == elected && leads:
			verdict = append(verdict, fmt.Sprintf("%s was elected with token %d while it led with token %d", e.ID, e.Token, token))
		case e.Kind == demoted && token != e.Token:
			verdict = append(verdict, fmt.Sprintf("%s was demoted from token %d while it led with token %d", e.ID, e.Token, token))
		}
		switch e.Kind {
		case elected:
			leading[e.ID] = e.Token
			elections = append(elections, e)
		case demoted:
			delete(leading, e.ID)
		}
	}
	return append(verdict, rising(elections, "elected")...)
}

func judgeBeliefs(history []entry, excused func(entry) bool) (verdict []string) {
	type term struct {
		id    string
		token int64
	}
	merged := map[term]entry{} // a belief is told piece by piece
	for _, e := range history {
		if e.Kind != believed {
			continue
		}
		at := term{e.ID, e.Token}
		if earlier, again := merged[at]; again {
			e.From, e.To = min(e.From, earlier.From), max(e.To, earlier.To)
		}
		merged[at] = e
	}
	var beliefs []entry
	for _, e := range merged {
		beliefs = append(beliefs, e)
	}
	verdict = rising(beliefs, "believing")
	for i := 1; i < len(beliefs); i++ { // in order, by now
		if a, b := beliefs[i-1], beliefs[i]; b.From < a.To && !excused(a) {
			verdict = append(verdict, fmt.Sprintf("%s (token %d) and %s (token %d) both believed to lead, for %d ns", a.ID, a.Token, b.ID, b.Token, a.To-b.From))
		}
	}
	return verdict
}

// rising sorts entries by time and checks that their tokens rise strictly.
func rising(entries []entry, what string) (verdict []string) {
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.From, b.From) })
	for i := 1; i < len(entries); i++ {
		if a, b := entries[i-1], entries[i]; b.Token <= a.Token {
			verdict = append(verdict, fmt.Sprintf("%s was %s with token %d after %s with token %d", b.ID, what, b.Token, a.ID, a.Token))
		}
	}
	return verdict
}

func TestTheJudgeSeesWhatIsWrong(t *testing.T) {
	good := []entry{
		{ID: "a", Kind: elected, Token: 1, From: 10}, {ID: "a", Kind: believed, Token: 1, From: 11, To: 15},
		{ID: "a", Kind: believed, Token: 1, From: 11, To: 20}, {ID: "a", Kind: demoted, Token: 1, From: 21},
		{ID: "b", Kind: elected, Token: 2, From: 30}, {ID: "b", Kind: believed, Token: 2, From: 31, To: 40},
		{ID: "a", Kind: elected, Token: 3, From: 50}, {ID: "a", Kind: believed, Token: 3, From: 51, To: 60},
	}
	if verdict := judge(good); len(verdict) > 0 {
		t.Errorf("nothing is wrong, but: %q", verdict)
	}
	ended := append(slices.Clone(good), entry{ID: "b", Kind: demoted, Token: 2, From: 55, Text: string(hooks.SessionLost)},
		entry{ID: "b", Kind: believed, Token: 2, From: 31, To: 55})
	if verdict := judge(ended); len(verdict) != 1 {
		t.Errorf("a session that was lost while its candidate led: %q", verdict)
	}
	if verdict := judge(ended, "b"); len(verdict) > 0 {
		t.Errorf("the same, excused: %q", verdict)
	}
	for name, bad := range map[string]entry{
		"a belief within another's":     {ID: "b", Kind: believed, Token: 2, From: 18, To: 19},
		"a belief that began before":    {ID: "b", Kind: believed, Token: 2, From: 5, To: 12},
		"a belief that goes on":         {ID: "a", Kind: believed, Token: 1, From: 11, To: 32},
		"a token that falls":            {ID: "b", Kind: elected, Token: 2, From: 70},
		"a token that is repeated":      {ID: "b", Kind: elected, Token: 3, From: 70},
		"elected twice":                 {ID: "a", Kind: elected, Token: 4, From: 70},
		"demoted from another's term":   {ID: "a", Kind: demoted, Token: 2, From: 70},
		"a broken contract of the hook": {ID: "a", Kind: violated, Text: "was called twice"},
	} {
		if len(judge(append(slices.Clone(good), bad))) == 0 {
			t.Errorf("%s: nothing was seen", name)
		}
	}
}

// A witness looks at IsLeader, again and again, and tells for how long the
// candidate believed that it leads. Each look has a time before and a time after
// it, on the one monotonic clock that all processes of a machine share. A belief
// counts from after the first look that saw it until before the last, so that
// two beliefs that overlap are so for certain.
type witness struct {
	e    *elector.Elector
	tell func(entry)
	spin bool

	belief entry // the one that goes on; Kind is "" if none
	told   int64 // up to when
	last   int64 // when the look before began
}

const (
	pauseBetweenLooks = 500 * time.Microsecond
	tellEvery         = 50 * time.Millisecond  // of a belief that goes on: what a kill may cost
	blinkAfter        = 400 * time.Millisecond // longer between two looks, the process was not running
)

func newWitness(e *elector.Elector, tell func(entry), spin bool) *witness {
	return &witness{e: e, tell: tell, spin: spin, last: monotonic()}
}

func (w *witness) watch(ctx context.Context) {
	for ctx.Err() == nil {
		w.look()
		if !w.spin {
			time.Sleep(pauseBetweenLooks)
		}
	}
	w.close()
}

func (w *witness) look() {
	before := monotonic()
	believes := w.e.IsLeader()
	after := monotonic()
	if before-w.last > int64(blinkAfter) {
		w.tell(entry{Kind: blinked, From: w.last, To: before, Believes: believes})
	}
	w.last = before
	if !believes {
		w.close()
		return
	}
	if term, leading := w.e.Term(); leading && term.Token() != w.belief.Token {
		w.close()
		w.belief = entry{Kind: believed, Token: term.Token(), From: after}
	}
	if w.belief.Kind == "" {
		return // it has just ended: which it was is not known
	}
	w.belief.To = max(before, w.belief.From)
	if before-w.told > int64(tellEvery) {
		w.tell(w.belief)
		w.told = before
	}
}

// close tells of the belief that has ended, if any.
func (w *witness) close() {
	if w.belief.Kind != "" {
		w.tell(w.belief)
	}
	w.belief = entry{}
}

// monotonic is the machine's clock that is never set, in nanoseconds.
func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

//go:build unix

package history

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Proof is a claim about a history, and the result of checking it.
type Proof struct {
	Claim      string
	Checked    string   // what was checked, and how much of it
	Violations []string // empty if the claim holds
}

// Holds reports whether the claim holds.
func (p Proof) Holds() bool { return len(p.Violations) == 0 }

func (p *Proof) violated(format string, args ...any) {
	p.Violations = append(p.Violations, fmt.Sprintf(format, args...))
}

// Verify checks every claim. The work of a leader whose session was severed may go on for grace:
// the lease without its margin.
func Verify(events []Event, grace time.Duration) []Proof {
	proofs := []Proof{Complete(events), OneLeader(events, grace), TokensRise(events), HooksAlternate(events)}
	if count(events, Thawed) > 0 {
		proofs = append(proofs, ThawedKnow(events))
	}
	if count(events, Severed) > 0 {
		proofs = append(proofs, SeveredLearn(events))
	}
	if count(events, Checked) > 0 {
		proofs = append(proofs, LateWrites(events))
	}
	return proofs
}

// Print prints one line per proof, and its violations below.
func Print(out io.Writer, proofs []Proof) {
	for _, p := range proofs {
		mark := "ok  "
		if !p.Holds() {
			mark = "FAIL"
		}
		fmt.Fprintf(out, "%s  %s: %s\n", mark, p.Claim, p.Checked)
		for _, v := range p.Violations {
			fmt.Fprintf(out, "      %s\n", strings.TrimSpace(v))
		}
	}
}

// FailedProofs joins the violations of all proofs into one error. It returns nil if there
// are none.
func FailedProofs(proofs []Proof) error {
	var failed []string
	for _, p := range proofs {
		for _, v := range p.Violations {
			failed = append(failed, fmt.Sprintf("not %q: %s", p.Claim, v))
		}
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("history: the proof failed: %s", strings.Join(failed, "; "))
}

func count(events []Event, kind Kind) (n int) {
	for _, e := range events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(n) + " " + noun + "s"
}

// thousands writes 12345 as 12,345.
func thousands(n int) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// Term is the time during which a process led, by what it did and believed.
type Term struct {
	Process    string
	Token      int64
	Begin, End Time
}

// span is a term, and how often it showed.
type span struct {
	Term
	trueAnswers, steps int
}

// spans returns one span per term, in order of their beginning.
func spans(events []Event) []*span {
	type term struct {
		process string
		token   int64
	}
	found := make(map[term]*span)
	for _, e := range events {
		begin, end, leads := e.leads()
		if !leads {
			continue
		}
		key := term{e.Process, e.Token}
		s := found[key]
		if s == nil {
			s = &span{Term: Term{e.Process, e.Token, begin, end}}
			found[key] = s
		}
		s.Begin, s.End = min(s.Begin, begin), max(s.End, end)
		switch e.Kind {
		case Sample:
			s.trueAnswers++
		case Worked:
			s.steps++
		}
	}
	var all []*span
	for _, s := range found {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *span) int { return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.Token, b.Token)) })
	return all
}

// Terms returns the terms of a history, in order of their beginning.
func Terms(events []Event) []Term {
	var terms []Term
	for _, s := range spans(events) {
		terms = append(terms, s.Term)
	}
	return terms
}

// Timeline returns the timeline in the term's token.
func (t Term) Timeline() int64 { return timeline(t.Token) }

// leads reports whether the event shows that the process led: its term began at begin at
// the latest, and ended at end at the earliest.
func (e Event) leads() (begin, end Time, leads bool) {
	switch e.Kind {
	case Sample:
		return e.At.Add(e.Took), e.At, e.Leading && e.Token != 0
	case Began, Worked:
		return e.At, e.At, true
	case Ended:
		return e.At, e.At, !e.Overdue
	}
	return 0, 0, false
}

// overlap returns how long s and next overlap; s began first.
func (s *span) overlap(next *span) time.Duration {
	return min(s.End, next.End).Sub(next.Begin)
}

// Recovers checks that somebody led within bound each time all faults had ended.
func Recovers(events []Event, bound time.Duration) Proof {
	p := Proof{Claim: "somebody led again"}
	var moments []Time // when somebody led for certain
	for _, e := range events {
		if begin, _, leads := e.leads(); leads {
			moments = append(moments, begin)
		}
	}
	slices.Sort(moments)
	var took []time.Duration
	for _, e := range events {
		if e.Kind != Calm {
			continue
		}
		i, _ := slices.BinarySearch(moments, e.At)
		if i == len(moments) {
			p.violated("nobody led after all faults had ended, at %s", milliseconds(time.Duration(e.At)))
			continue
		}
		took = append(took, moments[i].Sub(e.At))
		if last := took[len(took)-1]; last > bound {
			p.violated("nobody led for %s after all faults had ended (bound %v)", milliseconds(last), bound)
		}
	}
	if len(took) == 0 {
		p.violated("there was no calm")
		return p
	}
	slices.Sort(took)
	p.Checked = fmt.Sprintf("%s; within %s in the middle, %s at most (bound %v)", plural(len(took), "time"),
		milliseconds(took[len(took)/2]), milliseconds(took[len(took)-1]), bound)
	return p
}

//go:build unix

package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Complete checks that no event is missing: each process counts its own, says
// hello first, and says bye last unless it was killed.
func Complete(events []Event) Proof {
	p := Proof{Claim: "nothing is missing"}
	processes := byProcess(events)
	total := 0
	for _, name := range sortedNames(processes) {
		own := processes[name]
		total += len(own)
		for i, e := range own {
			if e.Seq != i+1 {
				p.violated("the event of %s after number %d has number %d", name, i, e.Seq)
				break
			}
		}
		if own[0].Kind != Hello {
			p.violated("the history of %s begins with %s", name, own[0].Kind)
		}
		if last := own[len(own)-1]; last.Kind != Bye && !happened(events, Killed, name) {
			p.violated("the history of %s breaks off after %s", name, last.Kind)
		}
	}
	if total == 0 {
		p.violated("nothing was recorded")
	}
	p.Checked = fmt.Sprintf("%s of %s, numbered without a gap", plural(total, "event"), processCount(len(processes)))
	return p
}

// OneLeader checks that no two terms overlap, but for what is excused: a term
// whose session was severed and that ended within grace, and two terms on two
// primaries.
func OneLeader(events []Event, grace time.Duration) Proof {
	p := Proof{Claim: "no two led at once"}
	all := spans(events)
	var severed, primaries overlaps
	trueAnswers, steps := 0, 0
	for i, s := range all {
		trueAnswers += s.trueAnswers
		steps += s.steps
		for _, next := range all[i+1:] {
			overlap := s.overlap(next)
			switch {
			case overlap <= 0:
			case twoPrimaries(events, s, next, grace):
				primaries.add(overlap)
			case excused(events, s, next, grace):
				severed.add(overlap)
			default:
				p.violated("%s (token %d) and %s (token %d) both led for %s", s.process, s.token, next.process, next.token, milliseconds(overlap))
			}
		}
	}
	if len(all) == 0 {
		p.violated("nobody ever led")
	}
	p.Checked = fmt.Sprintf("%s compared; IsLeader() said true %s times of %s; lead() took %s", plural(len(all), "term"),
		thousands(trueAnswers), thousands(count(events, Sample)), plural(steps, "step")) +
		severed.say("after the server had ended a session") + primaries.say("while there were two primaries")
	return p
}

// overlaps are those that are excused for one reason.
type overlaps struct {
	n       int
	longest time.Duration
}

func (o *overlaps) add(d time.Duration) {
	o.n++
	o.longest = max(o.longest, d)
}

func (o *overlaps) say(when string) string {
	if o.n == 0 {
		return ""
	}
	return fmt.Sprintf("; but for %s %s, of %s at most", plural(o.n, "overlap"), when, milliseconds(o.longest))
}

// TokensRise checks that every term has a larger token than all that began before
// it, but for a term on a primary that another has replaced already.
func TokensRise(events []Event) Proof {
	p := Proof{Claim: "tokens rose strictly"}
	var began []Event
	for _, e := range events {
		if e.Kind == Began {
			began = append(began, e)
		}
	}
	slices.SortStableFunc(began, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	for i := 1; i < len(began); i++ {
		if before, e := began[i-1], began[i]; e.Token <= before.Token && !replaced(events, e, before.Token) {
			p.violated("%s began with token %d after %s had begun with %d", e.Process, e.Token, before.Process, before.Token)
		}
	}
	if len(began) == 0 {
		p.violated("there was no term")
		return p
	}
	p.Checked = fmt.Sprintf("%s, tokens %d to %d", plural(len(began), "term"), began[0].Token, began[len(began)-1].Token)
	return p
}

// HooksAlternate checks that each process was told elected, demoted, elected, …
// about the same term in turn, and that only one that was killed was not told
// of an end.
func HooksAlternate(events []Event) Proof {
	p := Proof{Claim: "hooks alternated"}
	processes := byProcess(events)
	for _, name := range sortedNames(processes) {
		var term int64 // the one that goes on
		for _, e := range processes[name] {
			switch {
			case e.Kind == Elected && term != 0:
				p.violated("%s was elected (token %d) while it was (token %d)", name, e.Token, term)
			case e.Kind == Demoted && e.Token != term:
				p.violated("%s was demoted (token %d) while its term was %d", name, e.Token, term)
			}
			switch e.Kind {
			case Elected:
				term = e.Token
			case Demoted:
				term = 0
			}
		}
		if term != 0 && !happened(events, Killed, name) {
			p.violated("%s was never demoted from its last term (token %d)", name, term)
		}
	}
	p.Checked = fmt.Sprintf("elected %d×, demoted %d× in %s (who was killed was not demoted)",
		count(events, Elected), count(events, Demoted), processCount(len(processes)))
	return p
}

func processCount(n int) string {
	if n == 1 {
		return "1 process"
	}
	return thousands(n) + " processes"
}

// byProcess returns each process's own events, in the order of their numbers.
func byProcess(events []Event) map[string][]Event {
	processes := make(map[string][]Event)
	for _, e := range events {
		if e.Seq > 0 {
			processes[e.Process] = append(processes[e.Process], e)
		}
	}
	for _, own := range processes {
		slices.SortStableFunc(own, func(a, b Event) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	return processes
}

func sortedNames(processes map[string][]Event) []string {
	var names []string
	for name := range processes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func happened(events []Event, kind Kind, process string) bool {
	return slices.ContainsFunc(events, func(e Event) bool { return e.Kind == kind && e.Process == process })
}

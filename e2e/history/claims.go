//go:build unix

package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Complete checks that no event is missing: each process numbers its events, starts with
// Hello, and ends with Bye unless it was killed.
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

// OneLeader checks that no two terms overlap. It allows that the leader of a severed session
// believes until it is told (Told), and works for grace; that one whose server's host has died goes on
// for as long as that event says; and two terms on two primaries. If there were such, the claim says so.
func OneLeader(events []Event, grace time.Duration) Proof {
	p := Proof{Claim: "no two led at once"}
	all := spans(events)
	var severed, died, primaries overlaps
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
			case orphaned(events, s, next):
				died.add(overlap)
			case excused(events, s, next, grace):
				severed.add(overlap)
			default:
				p.violated("%s (token %d) and %s (token %d) both led for %s", s.Process, s.Token, next.Process, next.Token, milliseconds(overlap))
			}
		}
	}
	if len(all) == 0 {
		p.violated("nobody ever led")
	}
	if p.Holds() {
		p.Claim += severed.unless("after the server had ended a session") + died.unless("after its host had died") + primaries.unless("while there were two primaries")
	}
	p.Checked = fmt.Sprintf("%s compared; IsLeader() said true %s times of %s; lead() took %s", plural(len(all), "term"),
		thousands(trueAnswers), thousands(count(events, Sample)), plural(steps, "step")) +
		severed.say("after the server had ended a session") + died.say("after its host had died") + primaries.say("while there were two primaries")
	return p
}

// overlaps counts the overlaps that are allowed for one reason.
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
	return fmt.Sprintf("; %s %s, of %s at most", plural(o.n, "overlap"), when, milliseconds(o.longest))
}

// unless is the exception that these overlaps make to the claim.
func (o *overlaps) unless(when string) string {
	if o.n == 0 {
		return ""
	}
	return ", except " + when
}

// TokensRise checks that every term has a larger token than all terms that began before
// it, except for a term on a primary that has already been replaced.
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

// HooksAlternate checks that the hooks of each process reported elected and demoted in
// turn, for the same term, and that only a killed process lacks the last demoted.
func HooksAlternate(events []Event) Proof {
	p := Proof{Claim: "hooks alternated"}
	processes := byProcess(events)
	for _, name := range sortedNames(processes) {
		var term int64 // the current one
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

// byProcess returns the events of each process, in the order of their numbers.
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

// ThawedKnow checks a leader that was frozen until its lease had run out: after the thaw
// its first IsLeader returned false, and it took no step of an earlier term's work. It
// ignores a Thawed without a Token: a shorter freeze, or one of a follower.
func ThawedKnow(events []Event) Proof {
	p := Proof{Claim: "the thawed leader knew"}
	var seen []string
	for _, thaw := range events {
		if thaw.Kind != Thawed || thaw.Token == 0 {
			continue
		}
		first, asked := afterThaw(events, thaw)
		switch {
		case !asked && happened(events, Killed, thaw.Process):
			continue // killed before it could ask
		case !asked:
			p.violated("%s was never asked after it had thawed", thaw.Process)
		case first.Leading && first.Token <= thaw.Token:
			p.violated("the first IsLeader() of %s said true, %s after it had thawed", thaw.Process, milliseconds(first.At.Sub(thaw.At)))
		default:
			seen = append(seen, fmt.Sprintf("the first IsLeader() of %s after SIGCONT (%s) said false", thaw.Process, milliseconds(first.At.Sub(thaw.At))))
		}
		for _, e := range events {
			if e.Kind == Worked && e.Process == thaw.Process && e.At >= thaw.At && e.Token <= thaw.Token {
				p.violated("%s worked on under token %d, %s after it had thawed", e.Process, e.Token, milliseconds(e.At.Sub(thaw.At)))
			}
		}
	}
	if most := 3; len(seen) > most {
		seen = append(seen[:most], fmt.Sprintf("and so on, %s in all", plural(len(seen), "thaw")))
	}
	p.Checked = strings.Join(append(seen, "no step of work after"), "; ")
	return p
}

// afterThaw returns the first call of IsLeader after the process had thawed.
func afterThaw(events []Event, thaw Event) (first Event, asked bool) {
	i := slices.IndexFunc(events, func(e Event) bool {
		return e.Kind == Sample && e.Process == thaw.Process && e.At >= thaw.At
	})
	if i < 0 {
		return Event{}, false
	}
	return events[i], true
}

// SeveredLearn checks that a leader whose session the server ended was told in time, and
// reports how long it overlapped with the next leader.
func SeveredLearn(events []Event) Proof {
	p := Proof{Claim: "the cut-off leader learned"}
	var longest, overlap time.Duration
	cut := 0
	all := spans(events)
	for _, e := range events {
		if e.Kind != Severed || e.Process == "" {
			continue
		}
		i := slices.IndexFunc(all, func(s *span) bool { return s.Process == e.Process && s.Token == e.Token })
		if i < 0 {
			p.violated("%s never led with token %d, yet that session was ended", e.Process, e.Token)
			continue
		}
		cut++
		after, bound := Late(events, all[i].Term, e.At.Add(e.Took)), Told(events, e.Process)
		if after > bound {
			p.violated("%s led on for %s after the server had ended its session (bound %v)", e.Process, milliseconds(after), bound)
		}
		longest = max(longest, after)
		for _, next := range all[i+1:] {
			overlap = max(overlap, all[i].overlap(next))
		}
	}
	overlapped := "none overlapped with the next leader"
	if overlap > 0 {
		overlapped = fmt.Sprintf("they overlapped with the next leader, whose token was larger, for %s", milliseconds(overlap))
	}
	p.Checked = fmt.Sprintf("the server ended %s of a leader, who stopped within %s; %s", plural(cut, "session"), milliseconds(longest), overlapped)
	return p
}

// excused reports whether the overlap of two terms is allowed because the server ended a
// session.
func excused(events []Event, s, next *span, grace time.Duration) bool {
	return slices.ContainsFunc(events, func(e Event) bool {
		its := e.Process == s.Process && e.Token == s.Token || e.Process == "" && s.Begin <= e.At.Add(e.Took)
		return e.Kind == Severed && its && next.Begin >= e.At && next.Token > s.Token && s.End <= e.At.Add(e.Took+grace)
	}) && Late(events, s.Term, next.Begin) <= Told(events, s.Process)
}

// orphaned reports whether the overlap of two terms is allowed because the host of the server died: the
// leader there may go on for its validity and its drain.
func orphaned(events []Event, s, next *span) bool {
	return slices.ContainsFunc(events, func(e Event) bool {
		return e.Kind == Died && e.Process == s.Process && e.Token == s.Token && next.Begin >= e.At && next.Token > s.Token && s.End <= e.At.Add(e.Took)
	})
}

// twoPrimaries reports whether two terms overlap because a standby was promoted while the
// old primary was running. Then each primary has a leader, and the timelines in their
// tokens tell them apart.
func twoPrimaries(events []Event, a, b *span, grace time.Duration) bool {
	old, fresh := a, b
	if old.Token > fresh.Token {
		old, fresh = fresh, old
	}
	return slices.ContainsFunc(events, func(e Event) bool {
		if e.Kind != Promoted || timeline(old.Token) >= e.Token || e.Token != timeline(fresh.Token) || fresh.Begin < e.At {
			return false
		}
		gone := retired(events, e)
		return old.End <= gone.Add(grace) && Late(events, old.Term, max(gone, fresh.Begin)) <= Told(events, old.Process)
	})
}

// replaced reports whether e began on a primary that was still running after the timeline
// of the token newer had replaced it.
func replaced(events []Event, e Event, newer int64) bool {
	return slices.ContainsFunc(events, func(p Event) bool {
		return p.Kind == Promoted && timeline(e.Token) < p.Token && p.Token == timeline(newer) && e.At >= p.At && e.At <= retired(events, p)
	})
}

// retired returns when the primary that a promotion replaced was gone.
func retired(events []Event, promoted Event) Time {
	for _, e := range events {
		if e.Kind == Retired && e.At >= promoted.At {
			return e.At
		}
	}
	return promoted.At
}

// timeline returns the timeline in a token.
func timeline(token int64) int64 { return token >> 48 }

// LateWrites checks each write that came after a write with a larger token, by a process
// that had checked its leadership before that write. The late write must be refused if it
// was fenced. It must succeed if it was not fenced: otherwise the history shows nothing.
// The content of the store must agree.
func LateWrites(events []Event) Proof {
	p := Proof{Claim: "the late write was refused by InTx and by the token (and went through without)"}
	var seen []string
	for _, way := range Ways {
		late := 0
		for _, e := range events {
			newer, is := overtaken(events, e)
			if e.Way != way || !is {
				continue
			}
			late++
			if len(seen) == 0 {
				seen = append(seen, fmt.Sprintf("%s (token %d) had checked, and wrote after %s (token %d) had written", e.Process, e.Token, newer.Process, newer.Token))
			}
			seen = append(seen, p.checkLate(events, e, newer))
		}
		if late == 0 {
			p.violated("%s: no write came late", way)
		}
	}
	p.Checked = strings.Join(seen, "; ")
	return p
}

// checkLate describes the outcome of a late write, and adds the violations that it shows.
func (p *Proof) checkLate(events []Event, late, newer Event) string {
	what, holds := "went through", late
	if late.Kind == Refused {
		what, holds = "was refused", newer
	}
	if (late.Kind == Refused) != (late.Way != Unfenced) {
		p.violated("%s: the late write of %s (token %d) %s", late.Way, late.Process, late.Token, what)
	}
	if !slices.ContainsFunc(events, func(e Event) bool {
		return e.Kind == Checked && e.Leading && e.Process == late.Process && e.Token == late.Token && e.At <= newer.At
	}) {
		p.violated("%s: %s (token %d) had not checked before %s wrote", late.Way, late.Process, late.Token, newer.Process)
	}
	if !slices.ContainsFunc(events, func(e Event) bool {
		return e.Kind == Found && e.Way == late.Way && e.Process == holds.Process && e.Token == holds.Token
	}) {
		p.violated("%s: the write of %s (token %d) %s, but the store does not hold that of %s", late.Way, late.Process, late.Token, what, holds.Process)
	}
	return fmt.Sprintf("%s: it %s, and the store holds that of %s", late.Way, what, holds.Process)
}

// overtaken reports whether e is an attempt to write that began after a write with a
// larger token, made in the same way.
func overtaken(events []Event, e Event) (newer Event, is bool) {
	if e.Kind != Wrote && e.Kind != Refused {
		return Event{}, false
	}
	i := slices.IndexFunc(events, func(n Event) bool {
		return n.Kind == Wrote && n.Way == e.Way && n.Token > e.Token && n.At.Add(n.Took) <= e.At
	})
	if i < 0 {
		return Event{}, false
	}
	return events[i], true
}

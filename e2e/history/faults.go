//go:build unix

package history

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ThawedKnow checks that a leader that was frozen until its lease had run out
// asked IsLeader when it thawed, was told false, and took no step of an earlier
// term's work. Of a Thawed without a Token, a shorter one or not of a leader,
// nothing is claimed.
func ThawedKnow(events []Event) Proof {
	p := Proof{Claim: "the thawed leader knew"}
	var seen []string
	for i, thaw := range events {
		if thaw.Kind != Thawed || thaw.Token == 0 {
			continue
		}
		first, asked := afterThaw(events, thaw)
		switch {
		case !asked && happened(events[i:], Killed, thaw.Process):
			continue // before it could say a word
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

// afterThaw returns the first answer of IsLeader to a question that was asked
// after the process had thawed.
func afterThaw(events []Event, thaw Event) (first Event, asked bool) {
	i := slices.IndexFunc(events, func(e Event) bool {
		return e.Kind == Sample && e.Process == thaw.Process && e.At >= thaw.At
	})
	if i < 0 {
		return Event{}, false
	}
	return events[i], true
}

// SeveredLearn checks that a leader whose session the server ended stopped
// within grace, and says for how long it overlapped with the next.
func SeveredLearn(events []Event, grace time.Duration) Proof {
	p := Proof{Claim: "the cut-off leader learned"}
	var longest, overlap time.Duration
	cut := 0
	all := spans(events)
	for _, e := range events {
		if e.Kind != Severed || e.Process == "" {
			continue
		}
		i := slices.IndexFunc(all, func(s *span) bool { return s.process == e.Process && s.token == e.Token })
		if i < 0 {
			p.violated("%s never led with token %d, yet that session was ended", e.Process, e.Token)
			continue
		}
		cut++
		after := all[i].end.Sub(e.At)
		if after > grace {
			p.violated("%s led on for %s after the server had ended its session", e.Process, milliseconds(after))
		}
		longest = max(longest, after)
		for _, next := range all[i+1:] {
			overlap = max(overlap, all[i].overlap(next))
		}
	}
	p.Checked = fmt.Sprintf("the server ended %s of a leader, who stopped within %s (bound %v); beside the next leader, whose token was larger, for %s",
		plural(cut, "session"), milliseconds(longest), grace, milliseconds(overlap))
	return p
}

// excused reports whether the overlap of two terms is one that is not promised
// to be none.
func excused(events []Event, s, next *span, grace time.Duration) bool {
	return slices.ContainsFunc(events, func(e Event) bool {
		its := e.Process == s.process && e.Token == s.token || e.Process == "" && s.begin <= e.At.Add(e.Took)
		return e.Kind == Severed && its && next.begin >= e.At && next.token > s.token && s.end <= e.At.Add(e.Took+grace)
	})
}

// twoPrimaries reports whether two terms overlap because a standby had been
// promoted while the old primary lived: each primary has its own leader then, and
// the timelines in their tokens tell them apart.
func twoPrimaries(events []Event, a, b *span, grace time.Duration) bool {
	old, fresh := a, b
	if old.token > fresh.token {
		old, fresh = fresh, old
	}
	return slices.ContainsFunc(events, func(e Event) bool {
		return e.Kind == Promoted && timeline(old.token) < e.Token && e.Token == timeline(fresh.token) &&
			fresh.begin >= e.At && old.end <= retired(events, e).Add(grace)
	})
}

// replaced reports whether e began on a primary that lived on although the
// timeline of newer had replaced it.
func replaced(events []Event, e Event, newer int64) bool {
	return slices.ContainsFunc(events, func(p Event) bool {
		return p.Kind == Promoted && timeline(e.Token) < p.Token && p.Token == timeline(newer) && e.At >= p.At && e.At <= retired(events, p)
	})
}

// retired is when the primary was gone that a promotion had replaced.
func retired(events []Event, promoted Event) Time {
	for _, e := range events {
		if e.Kind == Retired && e.At >= promoted.At {
			return e.At
		}
	}
	return promoted.At
}

// timeline is that of a token.
func timeline(token int64) int64 { return token >> 48 }

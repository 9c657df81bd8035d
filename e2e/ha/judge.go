//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
)

// slack is how long after a probe's last success a server may still have acted.
const slack = time.Second

// prove checks a history. On one timeline it allows one exception: a leader whose session the
// server or a proxy has ended believes until it is told (history.Told). Two timelines may each have a
// leader while the old primary lives, and until the old leader is told, or for the grace period if the
// fault silenced the old primary; with WithSynchronousStandby they may not.
func prove(events []history.Event) []history.Proof {
	first := fleet.Of("", events)
	events = append(slices.Clone(events), promotions(events)...)
	proofs := []history.Proof{history.Complete(events)}
	for _, election := range []string{"", fleet.SecondElection} {
		its := fleet.Of(election, events)
		if election != "" && len(history.Terms(its)) == 0 {
			continue // no candidate had a shared session
		}
		for _, p := range []history.Proof{exclusion(its), history.TokensRise(its), history.HooksAlternate(its)} {
			if election != "" {
				p.Claim += " (the second election)"
			}
			proofs = append(proofs, p)
		}
	}
	return append(proofs, history.Recovers(first, fleet.Bound), fleet.Linearizable(first), commits(first), attempts(first), back(first), nobodyQuit(events))
}

// promotions returns, for each timeline that replaced another, when its primary was up at the
// latest, and when the primaries of older timelines were gone. It uses the probes' results and
// the terms.
func promotions(events []history.Event) (more []history.Event) {
	begins := map[int64]history.Time{}
	see := func(timeline int64, at history.Time) {
		if known, is := begins[timeline]; !is || at < known {
			begins[timeline] = at
		}
	}
	for _, e := range events {
		if e.Kind == history.Primary {
			see(e.Token, e.At)
		}
	}
	for _, t := range history.Terms(events) {
		see(t.Timeline(), t.Begin)
	}
	for timeline, at := range begins {
		retired, replaced := at, false
		for _, e := range events {
			if e.Kind == history.Primary && e.Token < timeline {
				replaced = true
				retired = max(retired, e.At.Add(e.Took+slack))
			}
		}
		if replaced {
			more = append(more, history.Event{Kind: history.Promoted, At: at, Token: timeline}, history.Event{Kind: history.Retired, At: retired, Token: timeline})
		}
	}
	// Each Retired belongs to the Promoted before it.
	slices.SortFunc(more, func(a, b history.Event) int { return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.At, b.At)) })
	return more
}

// retired returns when the primaries of older timelines were gone.
func retired(events []history.Event, timeline int64) (history.Time, bool) {
	for _, e := range events {
		if e.Kind == history.Retired && e.Token == timeline {
			return e.At, true
		}
	}
	return 0, false
}

// exclusion checks every overlap of two terms.
func exclusion(events []history.Event) history.Proof {
	p := history.Proof{Claim: "no two led at once in one history of the database, nor for longer than two primaries lived, but until a leader whose session was ended was told"}
	var same, other []time.Duration
	for _, o := range overlaps(events) {
		if o.a.Timeline() == o.b.Timeline() {
			same = append(same, o.took)
		} else {
			other = append(other, o.took)
		}
		if why := forbidden(events, o); why != "" {
			p.Violations = append(p.Violations, fmt.Sprintf("%s (token %d) and %s (token %d) both led for %v, %s", o.a.Process, o.a.Token, o.b.Process, o.b.Token, o.took, why))
		}
	}
	terms := history.Terms(events)
	if len(terms) == 0 {
		p.Violations = append(p.Violations, "nobody ever led")
	}
	p.Checked = fmt.Sprintf("%d terms compared; %d overlaps on one timeline%s, %d of two timelines%s", len(terms), len(same), atMost(same), len(other), atMost(other))
	return p
}

// forbidden returns why two terms may not overlap so. It returns "" if they may.
func forbidden(events []history.Event, o overlap) string {
	old, fresh := o.a, o.b
	if old.Token > fresh.Token {
		old, fresh = fresh, old
	}
	grace := fleet.GraceOf(cmp.Or(kindsOf(events)[old.Process].lease, fleet.Lease))
	in := episodeOf(episodes(events), o.from)
	gone, known := retired(events, fresh.Timeline())
	switch {
	case old.Timeline() == fresh.Timeline():
		if late, told := history.Late(events, o.a, o.b.Begin), history.Told(events, o.a.Process); late > told || o.took > grace {
			return fmt.Sprintf("on one timeline; the first believed for %v (bound %v)", late, told)
		}
	case in != nil && in.mode() == guarded:
		return "although both had WithSynchronousStandby"
	case !known || old.End > gone.Add(grace):
		return fmt.Sprintf("although the old primary had been gone for longer than %v", grace)
	case in == nil || !in.silences():
		if late, told := history.Late(events, old, max(gone, fresh.Begin)), history.Told(events, old.Process); late > told {
			return fmt.Sprintf("although the old primary's sessions had ended; the old leader believed for %v (bound %v)", late, told)
		}
	}
	return ""
}

func atMost(all []time.Duration) string {
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf(", of %v at most", slices.Max(all).Round(time.Millisecond))
}

// overlap means that two terms overlapped, starting at from.
type overlap struct {
	a, b history.Term
	from history.Time
	took time.Duration
}

func overlaps(events []history.Event) (found []overlap) {
	terms := history.Terms(events)
	for i, a := range terms {
		for _, b := range terms[i+1:] {
			if took := min(a.End, b.End).Sub(b.Begin); took > 0 {
				found = append(found, overlap{a, b, b.Begin, took})
			}
		}
	}
	return found
}

// kept is what the database holds at the end. A missing register belonged to a timeline that
// Patroni discarded after its promotion.
type kept struct{ writes, registers map[string]bool }

func keptOf(events []history.Event) kept {
	k := kept{map[string]bool{}, map[string]bool{}}
	for _, e := range events {
		switch {
		case e.Kind != history.Kept:
		case e.New == "":
			k.registers[e.Register] = true
		default:
			k.writes[e.New] = true
		}
	}
	return k
}

// commits checks the fenced writes: a refused write must not be in the database. With
// synchronous replication an acknowledged write must be, unless Patroni has discarded its
// timeline.
func commits(events []history.Event) history.Proof {
	p := history.Proof{Claim: "no refused write was committed, and with synchronous replication no acknowledged one was lost"}
	kept := keptOf(events)
	all := episodes(events)
	var acknowledged, refused, lost, discarded int
	for _, e := range events {
		switch {
		case e.Kind == history.Refused:
			refused++
			if kept.writes[e.New] {
				p.Violations = append(p.Violations, fmt.Sprintf("%s was refused (%s), and is in the database", e.New, e.Text))
			}
		case e.Kind == history.Wrote:
			acknowledged++
			switch {
			case kept.writes[e.New]:
				continue
			case !kept.registers[e.Register]:
				discarded++
				continue
			}
			lost++
			if in := episodeOf(all, e.At); in != nil && !in.asynchronous() {
				p.Violations = append(p.Violations, fmt.Sprintf("%s was acknowledged, during %s, and is lost", e.New, in.text))
			}
		}
	}
	p.Checked = fmt.Sprintf("%d acknowledged, of which %d were lost with a primary that replicated asynchronously, and %d with a timeline that Patroni discarded; %d refused",
		acknowledged, lost, discarded, refused)
	if acknowledged == 0 {
		p.Violations = append(p.Violations, "nothing was ever acknowledged")
	}
	if len(kept.registers) == 0 {
		p.Violations = append(p.Violations, "the database has no register")
	}
	return p
}

// mostAttempts is how many attempts a candidate may make within a second: a deputy's lasts a
// heartbeat interval of 0.3 s, one that fails may end it early, and the next begins 0.25 s
// after that began. timing is the accuracy of the recorded times.
const (
	mostAttempts = 5
	timing       = 50 * time.Millisecond
)

// attempts checks that no candidate made attempts too quickly. Both the beginnings and the
// ends must be too close: on a shared session an attempt begins by waiting for other
// elections, and an attempt that waits in the server may return late on a busy machine.
func attempts(events []history.Event) history.Proof {
	p := history.Proof{Claim: fmt.Sprintf("no candidate made more than %d attempts a second", mostAttempts)}
	made, n := map[string][]stretch{}, 0
	for _, e := range events {
		if e.Kind == history.Attempt {
			made[e.Process] = append(made[e.Process], stretch{e.At, e.At.Add(e.Took)})
			n++
		}
	}
	for process, all := range made {
		slices.SortFunc(all, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
		for i := range max(0, len(all)-mostAttempts) {
			a, b := all[i], all[i+mostAttempts]
			if took := max(b.from.Sub(a.from), b.to.Sub(a.to)); took < time.Second-timing {
				p.Violations = append(p.Violations, fmt.Sprintf("%s made %d attempts within %v, at %v", process, mostAttempts+1, took, time.Duration(a.from)))
			}
		}
	}
	p.Checked = fmt.Sprintf("%d attempts of %d candidates", n, len(made))
	if n == 0 {
		p.Violations = append(p.Violations, "nobody tried")
	}
	return p
}

// How soon an election has a leader again, once the route of the former leader reaches a
// primary. In the worst case an attempt has just met a frozen host. The median needs some
// samples. WithSynchronousStandby waits for a lease, so it is left out.
const (
	backMedian = 250 * time.Millisecond
	backWorst  = time.Second + connectTimeout
	fewSamples = 10
)

// back checks these bounds over all modes together.
func back(events []history.Event) history.Proof {
	p := history.Proof{Claim: "an election whose leader lived had one again soon after its route led to a primary"}
	var all []time.Duration
	for _, row := range measure(events) {
		if mode(row.text) != guarded {
			all = append(all, row.back...)
		}
	}
	slices.Sort(all)
	median, worst := quantile(all, 0.5), quantile(all, 1)
	if median > backMedian && len(all) >= fewSamples || worst > backWorst {
		p.Violations = append(p.Violations, fmt.Sprintf("the bounds are %v in the median and %v at the worst", backMedian, backWorst))
	}
	p.Checked = fmt.Sprintf("%d times; median %s, worst %s", len(all), short(median), short(worst))
	return p
}

// nobodyQuit checks that no process ended unexpectedly.
func nobodyQuit(events []history.Event) history.Proof {
	p := history.Proof{Claim: "no Run ended unexpectedly"}
	processes := map[string]bool{}
	for _, e := range events {
		switch e.Kind {
		case history.Hello:
			processes[e.Process] = true
		case history.Quit:
			p.Violations = append(p.Violations, e.Text)
		}
	}
	p.Checked = fmt.Sprintf("%d processes", len(processes))
	return p
}

//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/elector"
)

// The mode leases measures how soon a leader knows that its primary is gone, and how long it
// and its successor both believe that they lead. Before each fault all candidates are
// replaced by those of another kind.

// A kind is what the candidates of one fault have in common.
type kind struct {
	driver string // as documents call it
	lease  time.Duration
	idle   bool // the leader writes once, so only the end of its session's connection tells it of a loss
}

// kinds returns every kind. A short run reaches the first: leaders whose next heartbeat is far away.
func kinds() (all []kind) {
	for _, lease := range []time.Duration{time.Minute, 10 * time.Second, 3 * time.Second} {
		for _, idle := range []bool{true, false} {
			for _, driver := range []string{history.Pgx, "lib/pq"} {
				all = append(all, kind{driver, lease, idle})
			}
		}
	}
	return all
}

func (k kind) work() string {
	if k.idle {
		return "one `InTx`"
	}
	return "`InTx`"
}

// seats returns a seat on each route.
func (k kind) seats() (all []fleet.Seat) {
	by := map[string]string{history.Pgx: "pgx", "lib/pq": "postgres"}[k.driver]
	for i, route := range []fleet.Route{multi, cutting, plain, front, behind} {
		s := fleet.Seat{ID: string(rune('a' + i)), By: by, Route: route, Retry: retry, Lease: k.lease, Idle: k.idle}
		if route == cutting || route == behind {
			s.Takeover = elector.Wait
		}
		all = append(all, s)
	}
	return all
}

// endsPrimary names the faults of the mode leases. Each ends the primary, and so every session.
var endsPrimary = []string{"switchover", "crash", "lose"}

// reseat replaces all candidates by those of the next kind, and waits until one of them leads
// and the others follow.
func (n *nemesis) reseat(ctx context.Context) error {
	if len(n.kinds) == 0 {
		n.kinds = kinds()
	}
	n.forgetQuit()
	if err := n.Dismiss(); err != nil {
		return err
	}
	n.Seats, n.kinds = n.kinds[0].seats(), n.kinds[1:]
	since := history.Now()
	if err := n.Fill(); err != nil {
		return err
	}
	if _, err := n.AwaitLeader(ctx, since); err != nil {
		return err
	}
	return n.letLead(ctx)
}

// belief is what a kind of candidates believed in the mode leases.
type belief struct {
	kind
	faults int
	beside time.Duration // the longest that a leader believed beside the next (history.Late)
	after  time.Duration // the longest that a leader believed after its primary's last answer to a probe
}

// believed returns the beliefs of each kind that met a fault.
func believed(events []history.Event) (all []belief) {
	first := fleet.Of("", events)
	of := kindsOf(first)
	terms, faults := history.Terms(first), episodes(first)
	for _, k := range kinds() {
		b := belief{kind: k}
		for _, e := range faults {
			old, is := ledAt(terms, e.struck)
			if e.mode() != leases || !is || of[old.Process] != k {
				continue
			}
			b.faults++
			b.after = max(b.after, history.Late(first, old, lastAnswer(first, e.struck)))
			if next, is := nextTerm(terms, old); is {
				b.beside = max(b.beside, history.Late(first, old, next.Begin))
			}
		}
		if b.faults > 0 {
			all = append(all, b)
		}
	}
	return all
}

// kindsOf returns the kind of each process.
func kindsOf(events []history.Event) map[string]kind {
	of := map[string]kind{}
	for _, e := range events {
		if e.Kind == history.Hello {
			of[e.Process] = kind{e.Driver, e.Lease, e.Idle}
		}
	}
	return of
}

// ledAt returns the term that the moment is in.
func ledAt(terms []history.Term, at history.Time) (history.Term, bool) {
	i := slices.IndexFunc(terms, func(t history.Term) bool { return t.Begin <= at && at <= t.End })
	if i < 0 {
		return history.Term{}, false
	}
	return terms[i], true
}

// nextTerm returns the first term that began after another.
func nextTerm(terms []history.Term, old history.Term) (history.Term, bool) {
	i := slices.IndexFunc(terms, func(t history.Term) bool { return t.Begin > old.Begin })
	if i < 0 {
		return history.Term{}, false
	}
	return terms[i], true
}

// lastAnswer returns when the primary of the moment answered a probe for the last time. That
// may have been just before.
func lastAnswer(events []history.Event, at history.Time) (answered history.Time) {
	for _, e := range events {
		if e.Kind == history.Primary && e.At <= at {
			answered = max(answered, e.At.Add(e.Took))
		}
	}
	return answered
}

// beliefTable returns a Markdown table. It is empty if the mode leases was not run.
func (r report) beliefTable() string {
	if len(r.beliefs) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("| driver | lease | the leader does | faults | believed beside the next leader: longest | believed after the primary's last answer: longest |\n|---|---:|---|---:|---:|---:|\n")
	for _, row := range r.beliefs {
		fmt.Fprintf(&b, "| %s | %g s | %s | %d | %s | %s |\n", row.driver, row.lease.Seconds(), row.work(), row.faults, short(row.beside), short(row.after))
	}
	return b.String()
}

// writeBeliefs writes the section of the page.
func (r report) writeBeliefs(b *strings.Builder) {
	table := r.beliefTable()
	if table == "" {
		return
	}
	fmt.Fprintf(b, `
## How long two believe

In the mode leases the faults are %s. Before each, all candidates are replaced: by five of one driver and
one lease, one on each route, with the default heartbeat interval. Their leaders use `+"`Term.InTx`"+` all the time, or
once, and then do not validate their locks either. A candidate *believes* from the first time that its `+"`IsLeader`"+` returns
true until the last; it is asked each %v. The time in which its process did not run does not count. The primary is asked each %v; it
does not end all its sessions at the same moment.

%s`, strings.Join(endsPrimary, ", "), fleet.Sampling, probing, table)
}

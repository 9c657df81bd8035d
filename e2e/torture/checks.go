//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/register"
)

// prove holds a history to the promise: of each election, that no two led at
// once, that tokens rose, and that hooks alternated; of the first one, that
// somebody led again after each fault; of each register, that it was one.
func prove(events []history.Event) []history.Proof {
	first := of("", events)
	proofs := []history.Proof{history.Complete(events)}
	for _, election := range []string{"", secondElection} {
		its := of(election, events)
		for _, p := range []history.Proof{history.OneLeader(its, grace), history.TokensRise(its), history.HooksAlternate(its)} {
			if election != "" {
				p.Claim += " (the second election)"
			}
			proofs = append(proofs, p)
		}
	}
	return append(proofs, history.ThawedKnow(first), history.Recovers(first, bound), linearizable(first))
}

// of returns the events of one election, and those of none.
func of(election string, events []history.Event) []history.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool {
		common := e.Seq == 0 || e.Kind == history.Hello || e.Kind == history.Bye
		return e.Election != election && !common
	})
}

// linearizable checks the fenced writes: each register is one, in some order of
// them, and none of a leader came after one of a later leader.
func linearizable(events []history.Event) history.Proof {
	p := history.Proof{Claim: "fenced writes were linearizable"}
	registers, tally := operations(events)
	var names []string
	for name := range registers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if got := register.Linearizable(registers[name], 5*time.Minute); got != porcupine.Ok {
			p.Violations = append(p.Violations, fmt.Sprintf("%s, %d operations: %s", name, len(registers[name]), strings.ToLower(string(got))))
		}
	}
	p.Checked = fmt.Sprintf("%d registers, %d reads, %d writes went through, %d were refused, of %d it is not known",
		len(registers), tally.read, tally.done, tally.refused, tally.unknown)
	if tally.done == 0 {
		p.Violations = append(p.Violations, "nobody ever wrote")
	}
	return p
}

type tally struct{ read, done, refused, unknown int }

// operations are those on each register. A write that was begun, and of which
// nothing more was heard, since its process was killed, may go through yet.
func operations(events []history.Event) (registers map[string][]register.Op, sum tally) {
	registers = map[string][]register.Op{}
	begun := map[string]register.Op{} // by what is written
	where := map[string]string{}
	for _, e := range events {
		op := register.Op{Client: e.Process, Old: e.Old, New: e.New, Call: int64(e.At), Return: int64(e.At.Add(e.Took))}
		switch e.Kind {
		case history.Writes:
			op.Outcome = register.Unknown
			begun[e.New], where[e.New] = op, e.Register
			continue
		case history.Read:
			op.Read = true
			sum.read++
		case history.Wrote:
			sum.done++
		case history.Refused:
			op.Outcome = register.Refused
			sum.refused++
		case history.Unsure:
			op.Outcome = register.Unknown
			sum.unknown++
		default:
			continue
		}
		delete(begun, e.New)
		registers[e.Register] = append(registers[e.Register], op)
	}
	for value, op := range begun {
		sum.unknown++
		registers[where[value]] = append(registers[where[value]], op)
	}
	return registers, sum
}

// leftovers checks, when every candidate has left, that no session of theirs is
// left, and no lock.
func leftovers(ctx context.Context, s *stage) (history.Proof, error) {
	p := history.Proof{Claim: "nothing was left behind", Checked: "every process had ended; the server had no advisory lock, and no session of a candidate"}
	if s.bouncer != nil { // which keeps connections of its own
		if err := s.bouncer.Stop(); err != nil {
			return p, err
		}
	}
	conn, err := s.primary.Conn(ctx)
	if err != nil {
		return p, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var sessions, locks int
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_stat_activity WHERE usename = $1),
			(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')`, role).Scan(&sessions, &locks)
		if err != nil {
			return p, err
		}
		if sessions == 0 && locks == 0 {
			return p, nil
		}
		if time.Now().After(deadline) {
			p.Violations = append(p.Violations, fmt.Sprintf("%d sessions and %d locks are left", sessions, locks))
			return p, nil
		}
	}
}

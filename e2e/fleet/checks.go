//go:build linux

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/register"
)

// Of returns the events of one election, and those that belong to no election.
func Of(election string, events []history.Event) []history.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool {
		common := e.Seq == 0 || e.Kind == history.Hello || e.Kind == history.Bye
		return e.Election != election && !common
	})
}

// Linearizable checks that the fenced writes to each register are linearizable: no write of a
// leader came after one of a later leader.
func Linearizable(events []history.Event) history.Proof {
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
	p.Checked = fmt.Sprintf("%d registers, %d reads, %d writes succeeded, %d were refused, the outcome of %d is unknown",
		len(registers), tally.read, tally.done, tally.refused, tally.unknown)
	if tally.done == 0 {
		p.Violations = append(p.Violations, "nobody ever wrote")
	}
	return p
}

type tally struct{ read, done, refused, unknown int }

// operations returns the operations on each register. A write that began and has no recorded
// outcome, since its process was killed, may still take effect.
func operations(events []history.Event) (registers map[string][]register.Op, sum tally) {
	registers = map[string][]register.Op{}
	begun := map[string]history.Event{} // by written value
	where := map[string]string{}        // by written value: a writer may not learn the name that its first write gave to a register
	add := func(e history.Event, outcome register.Outcome) {
		if e.Register == "" {
			e.Register = where[e.New]
		}
		if e.Register == "" {
			return // if it took effect, it named a register that nobody read
		}
		registers[e.Register] = append(registers[e.Register], register.Op{Client: e.Process, Read: e.Kind == history.Read,
			Old: e.Old, New: e.New, Outcome: outcome, Call: int64(e.At), Return: int64(e.At.Add(e.Took))})
	}
	for _, e := range events {
		switch e.Kind {
		case history.Writes, history.Unsure:
			begun[e.New] = e
		case history.Read:
			sum.read++
			where[e.New] = e.Register
			add(e, register.Done)
		case history.Wrote:
			sum.done++
			add(e, register.Done)
			delete(begun, e.New)
		case history.Refused:
			sum.refused++
			add(e, register.Refused)
			delete(begun, e.New)
		}
	}
	for _, e := range begun {
		sum.unknown++
		add(e, register.Unknown)
	}
	return registers, sum
}

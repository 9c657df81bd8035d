// Package register is the model of a register that is written to by those who
// remember what it says: a write replaces what its writer believes to be there.
// Two leaders at once, or a write of a leader that comes late, break it.
package register

import (
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// Outcome is what is known of an operation.
type Outcome int

const (
	Done    Outcome = iota // it took effect
	Refused                // it did not
	Unknown                // it did, or will, or did not
)

// Op is one operation, between Call and Return, which are nanoseconds of one clock.
type Op struct {
	Client       string
	Read         bool
	Old, New     string // Old: what a write replaces, by its writer's memory; New: what is written, or what was read
	Outcome      Outcome
	Call, Return int64
}

// Linearizable asks porcupine whether some order of the operations, each at a
// moment between its Call and its Return, is that of one register which says ""
// at first. It is porcupine.Unknown if that is not decided within the patience.
func Linearizable(history []Op, patience time.Duration) porcupine.CheckResult {
	clients := map[string]int{}
	var ops []porcupine.Operation
	for _, o := range history {
		if _, known := clients[o.Client]; !known {
			clients[o.Client] = len(clients)
		}
		back := o.Return
		if o.Outcome == Unknown {
			back = math.MaxInt64 // it may take effect whenever
		}
		ops = append(ops, porcupine.Operation{ClientId: clients[o.Client], Input: o, Call: o.Call, Return: back})
	}
	return porcupine.CheckOperationsTimeout(model, ops, patience)
}

var model = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{""} },
	Step: func(state, input, _ any) []any {
		o := input.(Op)
		switch {
		case o.Read && state == o.New:
			return []any{state}
		case o.Read:
			return nil
		case o.Outcome == Refused:
			return []any{state}
		case o.Outcome == Unknown && state == o.Old:
			return []any{state, o.New}
		case o.Outcome == Unknown:
			return []any{state} // it can only have been refused
		case state == o.Old:
			return []any{o.New}
		}
		return nil
	},
}).ToModel()

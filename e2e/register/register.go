// Package register models a register whose writers remember its value: a write replaces
// the value that its writer expects. Two leaders at once, or a late write of an earlier
// leader, break the model.
package register

import (
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// Outcome is the known outcome of an operation.
type Outcome int

const (
	Done    Outcome = iota // it took effect
	Refused                // it did not
	Unknown                // it did, did not, or still may
)

// Op is one operation, between Call and Return, in nanoseconds of one clock.
type Op struct {
	Client       string
	Read         bool
	Old, New     string // Old: the value that a write expects; New: the value written or read
	Outcome      Outcome
	Call, Return int64
}

// Linearizable asks porcupine whether some order of the operations, each at a moment
// between its Call and its Return, fits one register with the initial value "". It
// returns porcupine.Unknown if porcupine does not decide within patience.
func Linearizable(history []Op, patience time.Duration) porcupine.CheckResult {
	clients := map[string]int{}
	var ops []porcupine.Operation
	for _, o := range history {
		if _, known := clients[o.Client]; !known {
			clients[o.Client] = len(clients)
		}
		back := o.Return
		if o.Outcome == Unknown {
			back = math.MaxInt64 // it may take effect at any later time
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
			return []any{state} // it was refused
		case state == o.Old:
			return []any{o.New}
		}
		return nil
	},
}).ToModel()

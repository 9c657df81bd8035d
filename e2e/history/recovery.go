//go:build unix

package history

import (
	"fmt"
	"slices"
	"time"
)

// Recovers checks that somebody led within the bound each time when all faults
// had ended.
func Recovers(events []Event, bound time.Duration) Proof {
	p := Proof{Claim: "somebody led again"}
	var moments []Time // at which somebody led for certain
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

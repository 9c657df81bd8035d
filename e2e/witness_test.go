//go:build unix

package e2e_test

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pgelector/pgelector/elector"
)

// A witness looks at IsLeader, again and again, and tells for how long the
// candidate believed that it leads. Each look has a time before and a time after
// it, on the one monotonic clock that all processes of a machine share. A belief
// counts from after the first look that saw it until before the last, so that
// two beliefs that overlap are so for certain.
type witness struct {
	e    *elector.Elector
	tell func(entry)
	spin bool

	belief entry // the one that goes on; Kind is "" if none
	told   int64 // up to when
	last   int64 // when the look before began
}

const (
	pauseBetweenLooks = 500 * time.Microsecond
	tellEvery         = 50 * time.Millisecond  // of a belief that goes on: what a kill may cost
	blinkAfter        = 400 * time.Millisecond // longer between two looks, the process was not running
)

func newWitness(e *elector.Elector, tell func(entry), spin bool) *witness {
	return &witness{e: e, tell: tell, spin: spin, last: monotonic()}
}

func (w *witness) watch(ctx context.Context) {
	for ctx.Err() == nil {
		w.look()
		if !w.spin {
			time.Sleep(pauseBetweenLooks)
		}
	}
	w.close()
}

func (w *witness) look() {
	before := monotonic()
	believes := w.e.IsLeader()
	after := monotonic()
	if before-w.last > int64(blinkAfter) {
		w.tell(entry{Kind: blinked, From: w.last, To: before, Believes: believes})
	}
	w.last = before
	if !believes {
		w.close()
		return
	}
	if term, leading := w.e.Term(); leading && term.Token() != w.belief.Token {
		w.close()
		w.belief = entry{Kind: believed, Token: term.Token(), From: after}
	}
	if w.belief.Kind == "" {
		return // it has just ended: which it was is not known
	}
	w.belief.To = max(before, w.belief.From)
	if before-w.told > int64(tellEvery) {
		w.tell(w.belief)
		w.told = before
	}
}

// close tells of the belief that has ended, if any.
func (w *witness) close() {
	if w.belief.Kind != "" {
		w.tell(w.belief)
	}
	w.belief = entry{}
}

// monotonic is the machine's clock that is never set, in nanoseconds.
func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

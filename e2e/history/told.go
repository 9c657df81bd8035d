//go:build unix

package history

import (
	"cmp"
	"slices"
	"time"
)

// A leader whose session the server has ended is told before the lock is free, and hears it at
// once over pgx. Over another driver it looks each 250 ms. These bounds leave room for a machine
// with other work; Late takes out of account what the history shows of a worse one.
const (
	toldByPgx   = 100 * time.Millisecond
	toldByOther = 500 * time.Millisecond
)

// Pgx is the Driver of candidates that are told of a loss.
const Pgx = "pgx"

// Told returns how long a leader may go on believing when its session was ended and the next
// leader leads. The driver is that of its process's Hello.
func Told(events []Event, process string) time.Duration {
	for _, e := range events {
		if e.Kind == Hello && e.Process == process && e.Driver == Pgx {
			return toldByPgx
		}
	}
	return toldByOther
}

// Late returns for how long the leader of a term believed after a moment, such as the beginning
// of the next term. Work that returns late is no belief. The time in which the leader could not
// learn anything does not count: its process did not run (Stood), or its messages were held back
// (Held).
func Late(events []Event, old Term, since Time) time.Duration {
	believed := since
	var deaf []stretch
	for _, e := range events {
		if e.Process != old.Process {
			continue
		}
		switch _, end, leads := e.leads(); {
		case e.Kind == Held:
			deaf = append(deaf, stretch{e.At, e.At.Add(e.Took)})
		case leads && e.Token == old.Token && e.Kind != Ended:
			believed = max(believed, end)
		}
		if e.Stood > 0 {
			deaf = append(deaf, stretch{e.At.Add(-e.Stood), e.At})
		}
	}
	return believed.Sub(since) - covered(stretch{since, believed}, deaf)
}

// A stretch is an interval of time.
type stretch struct{ from, to Time }

// covered returns how much of the window lies in at least one of the intervals.
func covered(window stretch, in []stretch) (sum time.Duration) {
	slices.SortFunc(in, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	reached := window.from
	for _, s := range in {
		if from, to := max(s.from, reached), min(s.to, window.to); from < to {
			sum += to.Sub(from)
			reached = to
		}
	}
	return sum
}

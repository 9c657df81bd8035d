// Package lease is time: how long the server keeps a session that is silent, and for how long this
// process may rely on an answer. elector/doc.go derives the arithmetic. The package knows no
// connection.
package lease

import "time"

const marginShare = 10 // margin = lease/10

// A Lease is the time arithmetic of a session. All of it counts from just before the last answered
// statement was sent, because the server's idle timer starts later than that.
type Lease struct {
	Length    time.Duration // the server keeps an idle session at least this long
	Heartbeat time.Duration // from the sending of one heartbeat to the next
	Drain     time.Duration // the time that the work has to wind down
}

// Margin covers the drift of two clocks' rates and the time it takes to be scheduled.
func (l Lease) Margin() time.Duration { return l.Length / marginShare }

// Validity is for how long after a statement was sent its answer may be relied on, to lead
// or to be elected.
func (l Lease) Validity() time.Duration { return l.Length - l.Margin() - l.Drain }

// Safety is for how long after a statement was sent the work may go on: past it, the
// server may give the lock to another.
func (l Lease) Safety() time.Duration { return l.Length - l.Margin() }

// An Instant is one reading of both clocks. The monotonic clock may stand still while a machine
// sleeps, and the wall clock may be set: each shows what the other hides.
type Instant struct {
	At   time.Time     // for people
	Mono time.Duration // since the process began
	Wall time.Duration // since the Unix epoch
}

// Since is how much time may have passed since an earlier reading: the larger of what the two
// clocks say, so that a jump counts as time.
func (i Instant) Since(earlier Instant) time.Duration {
	return max(i.Mono-earlier.Mono, i.Wall-earlier.Wall)
}

var processBegan = time.Now()

// A Clock reads the clocks of a process. The zero Clock reads those of this one.
type Clock struct{ process processClock }

// A processClock is implemented by test drivers that simulate a separate process. ClockShift is by
// how much its wall clock was set. It does not return while the process is frozen.
type processClock interface{ ClockShift() time.Duration }

// ClockOf is the clock of the process that a driver belongs to.
func ClockOf(driver any) Clock {
	process, _ := driver.(processClock)
	return Clock{process}
}

// Now reads both clocks.
func (c Clock) Now() Instant {
	var shift time.Duration
	if c.process != nil {
		shift = c.process.ClockShift() // before the clocks are read: it may take a while
	}
	t := time.Now()
	return Instant{At: t, Mono: t.Sub(processBegan), Wall: time.Duration(t.UnixNano()) + shift}
}

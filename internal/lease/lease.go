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
	Drain     time.Duration // what the work gets to wind down
}

// Margin covers the drift of two clocks' rates and the time it takes to be scheduled.
func (l Lease) Margin() time.Duration { return l.Length / marginShare }

// Validity is for how long after a statement was sent its answer may be relied on, to lead
// or to be elected.
func (l Lease) Validity() time.Duration { return l.Length - l.Margin() - l.Drain }

// Safety is for how long after a statement was sent the work may go on: past it, the
// server may give the lock to another.
func (l Lease) Safety() time.Duration { return l.Length - l.Margin() }

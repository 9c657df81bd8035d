package session

import "time"

const marginShare = 10 // margin = lease/10

// connectTimeout is the least time that opening a connection gets. Nothing is held
// meanwhile, and a driver that tries several hosts in turn needs time for each: a frozen
// one takes all of its connect_timeout.
const connectTimeout = 30 * time.Second

// A Lease is the time arithmetic of a session, derived in elector/doc.go. All of it counts
// from just before the last answered statement was sent, because the server's idle timer
// starts later than that.
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

//go:build unix

package supervise

import "time"

// instantOf is when that time comes. The shared clock is read first: a process
// that is frozen between the two readings gets a deadline that is too early.
func instantOf(t time.Time) instant {
	n := now()
	return n.plus(time.Until(t))
}

func (i instant) plus(d time.Duration) instant { return i + instant(d) }

// left is how long it is until then.
func (i instant) left() time.Duration { return time.Duration(i - now()) }

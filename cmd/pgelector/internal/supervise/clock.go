//go:build unix

package supervise

import "time"

// instantOf converts a time. It reads the shared clock first, so that a freeze between the
// two readings makes the deadline too early, not too late.
func instantOf(t time.Time) instant {
	n := now()
	return n.plus(time.Until(t))
}

func (i instant) plus(d time.Duration) instant { return i + instant(d) }

// left returns the time until i.
func (i instant) left() time.Duration { return time.Duration(i - now()) }

package session

import (
	"fmt"
	"time"

	"github.com/pgelector/pgelector/internal/option"
)

// The bounds of a lease, and what follows from its length when nothing else is
// said. elector/doc.go derives the arithmetic.
const (
	DefaultLease = 10 * time.Second // its length, when not chosen

	minLease = time.Second
	maxLease = 24 * time.Hour

	minHeartbeat = 50 * time.Millisecond
	maxHeartbeat = 30 * time.Second // when not chosen: below the idle timeout of common firewalls

	marginShare    = 10 // margin = lease/10
	drainShare     = 5  // drain = lease/5, when not chosen
	heartbeatShare = 5  // heartbeat interval = lease/5, when not chosen
)

// A Lease is the time arithmetic of a session. All of it counts from the moment
// just before the last answered statement was sent, because the server's idle
// timer starts later than that.
type Lease struct {
	Length    time.Duration // the server keeps an idle session at least this long
	Heartbeat time.Duration // from the sending of one heartbeat to the next
	Drain     time.Duration // what the work gets to wind down
}

// LeaseOf is a lease of that length, with the heartbeat interval and the drain
// that follow from it.
func LeaseOf(length time.Duration) Lease {
	return Lease{
		Length:    length,
		Heartbeat: min(max(length/heartbeatShare, minHeartbeat), maxHeartbeat),
		Drain:     length / drainShare,
	}
}

// Margin covers the drift of two clocks' rates and the time it takes to be
// scheduled.
func (l Lease) Margin() time.Duration { return l.Length / marginShare }

// Validity is for how long after a statement was sent its answer may be relied
// on, to lead or to be elected.
func (l Lease) Validity() time.Duration { return l.Length - l.Margin() - l.Drain }

// Safety is for how long after a statement was sent the work may go on: past
// it, the server may give the lock to another.
func (l Lease) Safety() time.Duration { return l.Length - l.Margin() }

// Check says which inequality does not hold, by the names of elector's options.
func (l Lease) Check() error {
	length, heartbeat, drain := option.Of("WithLease", l.Length), option.Of("WithHeartbeatInterval", l.Heartbeat), option.Of("WithDrain", l.Drain)
	switch {
	case l.Length < minLease || l.Length > maxLease:
		return length.Bad("want %v <= lease <= %v", minLease, maxLease)
	case l.Drain < 0:
		return drain.Bad("want drain >= 0")
	case l.Heartbeat < minHeartbeat:
		return heartbeat.Bad("want heartbeat interval >= %v", minHeartbeat)
	case l.Heartbeat > l.Validity()/2: // twice the interval may be more than a Duration holds
		return &option.Error{Options: []option.Value{heartbeat, length, drain}, Want: fmt.Sprintf("want 2*heartbeat <= lease - lease/%d - drain, "+
			"but that is %v: shorten the heartbeat interval or the drain, or lengthen the lease", marginShare, l.Validity())}
	}
	return nil
}

// CheckLongest says what does not hold of the longest lease of all candidates.
func (l Lease) CheckLongest(longest time.Duration) error {
	if longest < l.Length || longest > maxLease {
		return &option.Error{Options: []option.Value{option.Of("WithSynchronousStandby", longest), option.Of("WithLease", l.Length)},
			Want: fmt.Sprintf("want the longest lease of all candidates: %v <= longest lease <= %v", l.Length, maxLease)}
	}
	return nil
}

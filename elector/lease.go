package elector

import (
	"fmt"
	"time"
)

// The bounds of the settings, and what follows from the lease when nothing
// else is said. doc.go derives the arithmetic.
const (
	minLease     = time.Second
	maxLease     = 24 * time.Hour
	defaultLease = 10 * time.Second

	minHeartbeat = 50 * time.Millisecond
	maxHeartbeat = 30 * time.Second // when not chosen: below the idle timeout of common firewalls

	marginShare    = 10 // margin = lease/10
	drainShare     = 5  // drain = lease/5, when not chosen
	heartbeatShare = 5  // heartbeat interval = lease/5, when not chosen
)

// lease is the time arithmetic of a session. All of it counts from the moment
// just before the last answered statement was sent, because the server's idle
// timer starts later than that.
type lease struct {
	length    time.Duration // the server keeps an idle session at least this long
	heartbeat time.Duration // from the sending of one heartbeat to the next
	drain     time.Duration // what the work gets to wind down
}

// margin covers the drift of two clocks' rates and the time it takes to be
// scheduled.
func (l lease) margin() time.Duration { return l.length / marginShare }

// validity is for how long after a statement was sent the candidate may
// believe that it leads.
func (l lease) validity() time.Duration { return l.length - l.margin() - l.drain }

// safety is for how long after a statement was sent the work may go on: past
// it, the server may give the lock to another.
func (l lease) safety() time.Duration { return l.length - l.margin() }

// check says which inequality does not hold.
func (l lease) check() error {
	switch {
	case l.length < minLease || l.length > maxLease:
		return fmt.Errorf("WithLease(%v): want %v <= lease <= %v", l.length, minLease, maxLease)
	case l.drain < 0:
		return fmt.Errorf("WithDrain(%v): want drain >= 0", l.drain)
	case l.heartbeat < minHeartbeat:
		return fmt.Errorf("WithHeartbeatInterval(%v): want heartbeat interval >= %v", l.heartbeat, minHeartbeat)
	case l.heartbeat > l.validity()/2: // twice the interval may be more than a Duration holds
		return fmt.Errorf("WithHeartbeatInterval(%v) with WithLease(%v) and WithDrain(%v): want 2*heartbeat <= lease - lease/%d - drain, but that is %v: "+
			"shorten the heartbeat interval or the drain, or lengthen the lease",
			l.heartbeat, l.length, l.drain, marginShare, l.validity())
	}
	return nil
}

// instant is one reading of both clocks. The monotonic clock may stand still
// while a machine sleeps, and the wall clock may be set: each shows what the
// other hides.
type instant struct {
	at   time.Time     // for people
	mono time.Duration // since the process began
	wall time.Duration // since the Unix epoch
}

var began = time.Now()

func now() instant {
	t := time.Now()
	return instant{at: t, mono: t.Sub(began), wall: time.Duration(t.UnixNano())}
}

// since is how much time may have passed since an earlier reading: the larger
// of what the two clocks say, so that a jump counts as time.
func (i instant) since(earlier instant) time.Duration {
	return max(i.mono-earlier.mono, i.wall-earlier.wall)
}

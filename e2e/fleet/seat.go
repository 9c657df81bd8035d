//go:build linux

package fleet

import (
	"cmp"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// A Seat is what one candidate after the other is like: who is killed is replaced
// by another in the same seat.
type Seat struct {
	ID                   string
	By                   string // the driver's name in database/sql
	Route                Route
	Wait, Watch, Session bool
	Synchronous          bool          // WithSynchronousStandby; not on a Session
	Retry                time.Duration // 0 means the constant Retry
}

// A Route is how a candidate reaches the server.
type Route string

// String describes the seat, for the log and the picture.
func (s Seat) String() string {
	text := "polls"
	switch {
	case s.Wait:
		text = "waits"
	case s.Session:
		text = "session"
	}
	if s.Watch {
		text += ", watches"
	}
	by := s.By
	if by == "postgres" {
		by = "lib/pq"
	}
	return by + ", " + text + ", " + string(s.Route)
}

// The settings of every candidate: a short lease, so that much happens, of which
// a busy machine does not lose too many.
const (
	Lease     = 3 * time.Second
	Heartbeat = 300 * time.Millisecond
	Retry     = 200 * time.Millisecond
	Backoff   = time.Second
)

const (
	margin = Lease / 10 // the elector's own share
	drain  = Lease / 5  // the elector's default
	// Grace is for how long after its last answered heartbeat a leader may work.
	Grace = Lease - margin
)

const (
	sampling = 2 * time.Millisecond  // between two questions to IsLeader
	writing  = 60 * time.Millisecond // the longest pause between two writes of a leader
)

// Patience is for what must happen; later, the run has failed.
const Patience = time.Minute

func (p part) options() []elector.SessionOption {
	return []elector.SessionOption{
		elector.WithCandidateID(p.Name),
		elector.WithLease(Lease),
		elector.WithHeartbeatInterval(Heartbeat),
		elector.WithRetryInterval(cmp.Or(p.Retry, Retry)),
	}
}

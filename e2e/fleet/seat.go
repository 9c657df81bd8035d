//go:build linux

package fleet

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// A Seat describes the candidates of one seat. When a candidate is killed, the next one takes
// its seat.
type Seat struct {
	ID             string
	By             string // driver name in database/sql
	Route          Route
	Watch, Session bool
	Standby        elector.Standby // not on a Session
	Interval       time.Duration   // WithDeputyInterval; 0 means the default
	Draws          bool            // each process draws its standby and deputy interval
	Synchronous    bool            // WithSynchronousStandby; not on a Session
	Retry          time.Duration   // 0 means the constant Retry
}

// A Route names how a candidate reaches the server.
type Route string

// String describes the seat, for the log and the picture.
func (s Seat) String() string {
	text := map[elector.Standby]string{elector.Deputy: "deputy", elector.Wait: "waits", elector.Poll: "polls"}[s.Standby]
	switch {
	case s.Session:
		text = "session"
	case s.Draws:
		text = "draws its standby"
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

// The settings of every candidate. The lease is short, so that much happens, and long
// enough that a busy machine loses few terms.
const (
	Lease     = 3 * time.Second
	Heartbeat = 300 * time.Millisecond
	Retry     = 200 * time.Millisecond
	Backoff   = time.Second
)

const (
	margin = Lease / 10 // the elector's margin
	drain  = Lease / 5  // the elector's default
	// Grace is how long a leader may work after its last answered heartbeat.
	Grace = Lease - margin
)

const (
	sampling = 2 * time.Millisecond  // between two calls of IsLeader
	writing  = 60 * time.Millisecond // maximum pause between two writes of a leader
)

// Bound is when somebody must lead again once all faults have ended. A process that was
// frozen or cut off may hold the lock for one lease, and its transaction may block the
// next leader for two. Candidates try again after the backoff. The rest is for proxies
// that take a second to notice, and for a busy machine.
const Bound = 3*Lease + Backoff + 15*time.Second

// Patience bounds waits for expected events; after it the run has failed.
const Patience = time.Minute

func (p spec) options() []elector.SessionOption {
	return []elector.SessionOption{
		elector.WithCandidateID(p.Name),
		elector.WithLease(Lease),
		elector.WithHeartbeatInterval(Heartbeat),
		elector.WithRetryInterval(cmp.Or(p.Retry, Retry)),
	}
}

// draw returns the seat of the process that is started as number n.
func (s Seat) draw(seed uint64, n int) Seat {
	if s.Draws {
		r := rand.New(rand.NewPCG(seed, uint64(n)<<8|uint64(s.ID[0])))
		s.Standby = []elector.Standby{elector.Deputy, elector.Wait, elector.Poll}[r.IntN(3)]
		s.Interval = 10*time.Millisecond + time.Duration(r.Int64N(int64(Heartbeat-10*time.Millisecond)))
	}
	return s
}

//go:build linux

package fleet

import (
	"cmp"
	"time"

	"github.com/pgelector/pgelector/elector"
)

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

//go:build linux

package main

import (
	"time"

	"github.com/pgelector/pgelector/elector"
)

// The settings of every candidate: a short lease, so that much happens, of which
// a busy machine does not lose too many.
const (
	lease     = 3 * time.Second
	heartbeat = 300 * time.Millisecond
	retry     = 200 * time.Millisecond
	backoff   = time.Second
)

const (
	margin = lease / 10 // the elector's own share
	drain  = lease / 5  // the elector's default
	// grace is for how long after its last answered heartbeat a leader may work.
	grace = lease - margin
	// bound is when somebody must lead again once all faults have ended: what was
	// frozen or cut off may hold the lock for a lease, and its transaction may hold
	// up the next leader for two; candidates look again after the backoff; the rest
	// is for a busy machine.
	bound = 3*lease + backoff + 15*time.Second
)

const (
	sampling = 2 * time.Millisecond  // between two questions to IsLeader
	writing  = 60 * time.Millisecond // the longest pause between two writes of a leader
	patience = time.Minute           // for what must happen; later, the run has failed
)

func options(id string) []elector.Option {
	return []elector.Option{
		elector.WithCandidateID(id),
		elector.WithLease(lease),
		elector.WithHeartbeatInterval(heartbeat),
		elector.WithRetryInterval(retry),
	}
}

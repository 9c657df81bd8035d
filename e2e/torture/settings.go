//go:build linux

package main

import (
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
)

// bound is when somebody must lead again once all faults have ended: what was
// frozen or cut off may hold the lock for a lease, and its transaction may hold
// up the next leader for two; candidates look again after the backoff; the rest
// is for a busy machine.
const bound = 3*fleet.Lease + fleet.Backoff + 15*time.Second

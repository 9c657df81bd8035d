//go:build unix

package main

import (
	"fmt"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// defaultLease is short, so that the frozen leader's scene is, and long enough
// for a busy machine.
const defaultLease = 3 * time.Second

const (
	retry      = 300 * time.Millisecond
	sampling   = 10 * time.Millisecond // between two questions to IsLeader
	workStep   = 20 * time.Millisecond // between two steps of a leader's work
	election   = "demo"
	heartbeats = 15 // per lease
	drainShare = 5  // the elector's default, said aloud because the proof rests on it
	marginOf   = 10 // the elector's margin is this share of the lease
)

func heartbeat(lease time.Duration) time.Duration { return lease / heartbeats }
func drain(lease time.Duration) time.Duration     { return lease / drainShare }

// validity is for how long after a heartbeat was sent a leader believes.
func validity(lease time.Duration) time.Duration { return grace(lease) - drain(lease) }

// grace is for how long after its last heartbeat a leader may work: the lease
// without its margin.
func grace(lease time.Duration) time.Duration { return lease - lease/marginOf }

// sceneDeadline is generous: a scene that takes so long has failed.
func sceneDeadline(lease time.Duration) time.Duration { return 30*time.Second + 3*lease }

// options are what each candidate is made with.
func options(lease time.Duration) []elector.Option {
	return []elector.Option{
		elector.WithLease(lease),
		elector.WithHeartbeatInterval(heartbeat(lease)),
		elector.WithDrain(drain(lease)),
		elector.WithRetryInterval(retry),
		elector.WithBackoff(retry/2, retry),
	}
}

func describe(lease time.Duration) string {
	return fmt.Sprintf("lease %v, heartbeat %v, retry %v, drain %v", lease, heartbeat(lease), retry, drain(lease))
}

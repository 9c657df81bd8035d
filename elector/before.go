package elector

import (
	"context"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/lock"
)

// An ownEnd is when and why the last term of this elector ended.
type ownEnd struct {
	at     time.Time
	reason hooks.Reason
}

// known is what a candidate knows of who led.
type known struct {
	leader lock.Holder // that was last seen
	led    time.Time   // when an attempt last found that somebody led
	ended  ownEnd      // of its own last term
}

// ledBefore is what the candidate, elected now, knows of who led before.
func (n *candidate) ledBefore(now time.Time) (e hooks.Elected) {
	last := n.last.Load()
	if last == nil {
		return e
	}
	e.Previous = last.candidateID
	until := later(n.known.led, last.at)
	if own := e.Previous == n.candidateID && !last.at.After(n.known.ended.at); own && n.known.led.After(n.known.ended.at) {
		return hooks.Elected{} // somebody has led since, and no hook wants to know who
	} else if own {
		until, e.PreviousReason = n.known.ended.at, n.known.ended.reason
	}
	e.Leaderless = max(0, now.Sub(until))
	return e
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pauses notes when a deputy pauses between two of its looks at the lock, which was busy then: the
// deputy's attempt ends only once per heartbeat interval. The first pause of an attempt follows no look.
type pauses struct {
	lock.Waker
	n   int
	led *time.Time
}

func (p *pauses) Sleep(ctx context.Context, d time.Duration) (woken bool) {
	if p.n++; p.n > 1 {
		*p.led = time.Now()
	}
	return p.Waker.Sleep(ctx, d)
}

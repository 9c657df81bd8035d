package lock

import (
	"context"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/session"
)

// How a leader transfers its lock to a successor, another candidate:
//
//	the leader                                     the successor
//	Prepare: takes a lock that is an offer ──────→ finds it in its next attempt, or waits anyway
//	looks into the queue, and sends those          waits in the server's queue for the election's
//	before the successor to its end                lock, as long as the offer stands
//	the successor is the first: the term ends,
//	and the work returns
//	Release: unlocks, if the successor is
//	the first still ─────────────────────────────→ the server grants it the lock
//
// Only the server hands the lock over, so nothing here can make two leaders.

// looks is how soon the leader looks for its successor again.
var looks = backoff.Backoff{Min: 2 * time.Millisecond, Max: 50 * time.Millisecond}

// An Offer is made to one candidate.
type Offer struct {
	call *session.Call
	made bool
}

// NewOffer makes an offer of which that candidate does not know yet.
func (l *Lock) NewOffer(candidate string) *Offer {
	return &Offer{call: l.Session.Call(l.key, candidate)}
}

// Prepare makes the offer and returns nil as soon as the candidate is the first in the
// queue. It calls made once the candidate can find the offer.
func (o *Offer) Prepare(ctx context.Context, made func()) error {
	for n := 1; ; n++ {
		var first bool
		var err error
		if !o.made {
			if o.made, err = o.call.Make(ctx); o.made {
				made()
			}
		}
		if o.made {
			first, err = o.call.ClearTheWay(ctx)
		}
		if first || err != nil {
			return err
		}
		if !backoff.Sleep(ctx, looks.After(n)) {
			return context.Cause(ctx)
		}
	}
}

// Withdraw takes the offer back, if the session lives.
func (o *Offer) Withdraw() { o.call.End() }

// reserved is how long at least a lock is kept for a successor that has lost its place.
const reserved = time.Second

// ReleaseTo releases the lock once the candidate of the offer is the first in the queue. It
// reports whether it has released the lock, and whether that candidate has it. The work has
// returned, so nobody leads: a successor that has lost its place gets no more than a heartbeat
// interval, in which a candidate that waits comes back. Withdraw must follow.
func (l *Lock) ReleaseTo(o *Offer, heartbeat time.Duration) (released, taken bool) {
	ctx, cancel := context.WithTimeout(l.Context(), max(heartbeat, reserved))
	defer cancel()
	for n := 1; ; n++ {
		released, taken, err := o.call.Unlock()
		if released && l.linger > 0 {
			backoff.Sleep(l.Context(), l.linger)
		}
		if released || err != nil || !backoff.Sleep(ctx, looks.After(n)) {
			return released, taken
		}
	}
}

// answer waits in the server's queue for as long as the leader's offer stands.
func answer(ctx context.Context, server *session.Server, c Config) (session.Grant, error) {
	parked := server.ParkAsHeir(c.Key, c.Look)
	defer parked.Leave()
	for {
		grant, err := parked.Wait(ctx)
		if grant.Session != nil || err != nil {
			return grant, err
		}
		if called, err := parked.IsCalled(ctx); !called {
			return session.Grant{}, err
		}
	}
}

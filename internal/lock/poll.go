package lock

import (
	"context"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
)

// Quick is the longest time between two quick attempts while the server is away. The
// shortest is a quarter less: 250 ms, four in a second.
const Quick = 334 * time.Millisecond

// QuickFor is how long an outage has quick attempts. A failover by Patroni takes up to 40 s
// with its defaults: a ttl of 30 s, and a loop_wait of 10 s.
const QuickFor = time.Minute

// A Config is what an acquirer needs to know of its election.
type Config struct {
	Election string // its name, for reports
	Key      int64
	Look     bool          // whether to ask who holds a busy lock
	Retry    time.Duration // between two attempts
}

// polling tries the lock once per retry interval, and pins nothing in between.
type polling struct {
	Config
	server *session.Server
	lock   *Lock // the last one
}

// NewPolling makes an acquirer that borrows a connection for each attempt.
func NewPolling(server *session.Server, c Config) Acquirer {
	return &polling{Config: c, server: server}
}

func (p *polling) Acquire(ctx context.Context, t Try) (Attempt, error) {
	p.recheck()
	grant, err := p.server.Try(ctx, p.Key, p.Look)
	if grant.Called {
		grant, err = answer(ctx, p.server, p.Config)
	}
	if err != nil {
		return Attempt{Next: p.quick(t.Last), Refused: p.server.Refuses(err)}, err
	}
	return p.attempt(grant, backoff.Jitter(p.Retry)), nil
}

func (p *polling) attempt(g session.Grant, next time.Duration) Attempt {
	if g.Session == nil {
		return Attempt{Holder: g.Leader, Next: next}
	}
	p.lock = newLock(p.Key, g)
	return Attempt{Lock: p.lock}
}

// recheck has the server checked again if the last lock was lost: it may be another
// server now.
func (p *polling) recheck() {
	if p.lock != nil && p.lock.Lost() {
		p.server.Invalidate()
	}
	p.lock = nil
}

// quick: the candidate that led hurries. Those that followed keep to their retry interval.
func (p *polling) quick(last Standing) time.Duration {
	if last == Led {
		return Quick
	}
	return max(p.Retry, Quick)
}

func (p *polling) Close() {}

// linger is how long a leader that has resigned keeps its connections, so that the server
// serves the next leader first. Measured: a hand-over takes some 2 ms, and with the closing
// at the same time 6.
const linger = 10 * time.Millisecond

// waiting waits for the lock inside the server.
type waiting struct {
	polling
	parked *session.Parked
}

// NewWaiting makes an acquirer that waits in the server's queue, on a session that it
// keeps between the waits.
func NewWaiting(server *session.Server, c Config) Acquirer {
	return &waiting{polling: polling{Config: c, server: server}, parked: server.Park(c.Key, c.Look)}
}

func (w *waiting) Acquire(ctx context.Context, t Try) (Attempt, error) {
	if t.NoWait {
		return w.polling.Acquire(ctx, t)
	}
	w.recheck()
	grant, err := w.parked.Wait(ctx)
	if err != nil {
		return Attempt{Next: w.quick(t.Last, err), Refused: w.server.Refuses(err)}, err
	}
	a := w.attempt(grant, 0) // the server does the waiting
	if a.Lock != nil {
		a.Lock.linger = linger
	}
	return a, nil
}

// quick: those that waited hurry too, unless the server is starting up or full. There may
// be hundreds of them.
func (w *waiting) quick(last Standing, err error) time.Duration {
	if state := pgerr.State(err); state == "57P03" || state == "53300" {
		return w.polling.quick(last)
	}
	return Quick
}

func (w *waiting) Close() { w.parked.Leave() }

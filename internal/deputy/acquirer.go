// Package deputy has one follower look often, so that a leader that dies is replaced at once and the
// others hardly ask.
//
// An election has two seats, which are advisory locks. The leader sits on one, and one of its followers,
// the deputy, on the other. So an election pins two sessions in the server, however many candidates it
// has. Holding a seat decides nothing: only the election's lock does. A seat is lost with its session,
// and the next attempt of another candidate takes it.
package deputy

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/queue"
	"github.com/pgelector/pgelector/internal/session"
)

// role is what a deputy waits as: db.WaitLock documents the difference.
const role queue.Role = "deputy"

// SeatKey is the key of an election's seats, which are locks of two integers. The other seat
// differs in the lowest bit.
func SeatKey(key int64) int64 { return lockkey.Of("seat", key) }

// A Config says how a candidate follows.
type Config struct {
	Sit       bool                 // become the deputy if nobody is
	SitInside bool                 // also in transaction scope, where each deputy takes one of a pooler's few connections
	Wait      bool                 // as the deputy, wait in the server's queue
	Interval  time.Duration        // between two attempts of a deputy that does not wait
	Retry     func() time.Duration // between two attempts of the others
	Offer     int64                // the key of the lock by which a leader offers its lock to this candidate
	Succeed   lock.Succeed
}

// acquirer tries once per retry interval, on a borrowed connection, until it becomes the deputy. Then it
// keeps the session.
type acquirer struct {
	Config
	d      *lock.Dedicated
	last   *lock.Lock
	seat   *session.Session // holds the deputy's seat; nil unless this candidate is the deputy
	seated bool             // the session that was asked last holds a seat
	deputy bool             // this candidate was the deputy by the last answer of a server
}

// New makes an acquirer.
func New(d *lock.Dedicated, c Config) lock.Acquirer {
	a := &acquirer{Config: c, d: d}
	d.OnGrant = a.begin
	return a
}

func (a *acquirer) Acquire(ctx context.Context, t lock.Try) lock.Attempt {
	source := a.d.Source
	if a.last != nil && a.last.Lost() {
		source.Invalidate() // it may be another server now
		source.SuspectSessions(context.Cause(a.last.Session.TermContext()))
	}
	a.last = nil
	r, err := a.d.OnChecked(ctx, func() (lock.Attempt, error) { return a.attempt(ctx, t) })
	if err != nil {
		r = lock.Fail(source, err, a.quick(t.Last, err))
		r.InTransaction = source.InTransaction()
		return r
	}
	r.InTransaction = source.InTransaction()
	a.last, a.deputy = r.Lock, a.seat != nil
	switch r.Keeps = a.deputy; {
	case r.Lock != nil && a.Wait:
		r.Lock.CloseLater()
	case r.Lock == nil && !r.Keeps:
		r.Next = backoff.Jitter(a.Retry())
	}
	return r
}

func (a *acquirer) attempt(ctx context.Context, t lock.Try) (r lock.Attempt, err error) {
	if s := a.takeSeat(); s != nil {
		r, err = a.serve(ctx, s, t.Woken)
	} else if s, err = a.d.Source.LendToLead(ctx); err == nil {
		r, err = a.tryOn(ctx, s, t.Once)
	}
	if err == nil && r.Outcome == lock.Offered {
		r, err = a.Succeed(ctx, a.d, func() *session.Session {
			s := a.takeSeat()
			a.seated = s != nil
			return s
		})
	}
	return r, err
}

// quick is the time between two quick attempts. The candidate that led hurries, and so does
// the deputy, unless the server is starting up or full. The others keep to their retry
// interval: there may be hundreds of them.
func (a *acquirer) quick(last lock.Standing, err error) time.Duration {
	state := pgerr.State(err)
	if last == lock.Led || a.deputy && state != "57P03" && state != "53300" {
		return lock.Quick
	}
	return max(a.Retry(), lock.Quick)
}

// Close gives the seat up.
func (a *acquirer) Close() {
	if s := a.takeSeat(); s != nil {
		s.Discard()
	}
}

// takeSeat returns the deputy's session, if it is one and its lease has not run out. The caller owns it
// then.
func (a *acquirer) takeSeat() *session.Session {
	s := a.seat
	a.seat = nil
	if s != nil && !s.Valid() {
		s.Discard()
		return nil
	}
	return s
}

// tryOn tries the lock on the session, and a seat if the lock is busy. The session is kept if either is
// granted, and goes back to the pool as it came if not.
func (a *acquirer) tryOn(ctx context.Context, s *session.Session, once bool) (lock.Attempt, error) {
	queue.EvictFrom(a.d, s)
	var p db.TryLockParams
	p.Sit = a.Sit && !once && (a.SitInside || !a.d.Source.InTransaction())
	p.SeatHigh, p.SeatLow = lockkey.Halves(SeatKey(a.d.Key))
	p.OfferHigh, p.OfferLow = lockkey.Halves(a.Offer)
	row, err := a.d.Ask(ctx, s, p)
	if err != nil {
		s.Discard() // in doubt: the lock may have been granted
		return lock.Attempt{}, fmt.Errorf("elector: try the lock: %w", pgerr.Explain(err))
	}
	a.seated = row.Seated
	r := lock.Attempt{Outcome: lock.Busy, Holder: lock.Holder{PID: row.LeaderPid, CandidateID: row.LeaderID}}
	switch row.Outcome {
	case "granted":
		return a.d.Confirm(ctx, s, true)
	case "deputy":
		return r, a.sitDown(ctx, s)
	case "offered":
		r.Outcome = lock.Offered
	case "standby":
		err = pgerr.ErrServerReadOnly
	}
	if s.InTransaction() && err == nil && a.d.ReportHolder() {
		r.Holder = holder.SeenBy(ctx, s, a.d.Key)
	}
	s.GiveBack()
	return r, err
}

// begin gives a session that is elected what goes on beside its term.
func (a *acquirer) begin(s *session.Session) {
	if !a.seated {
		s.Along(func() { a.seatLeader(s) })
	}
	if a.Wait {
		s.Along(func() { queue.PrepareRelease(s) })
	}
}

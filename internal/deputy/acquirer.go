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
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/lockkey"
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

// A keeper keeps the session that was granted the deputy's seat.
type keeper struct {
	Config
	d      *lock.Dedicated
	seat   *session.Session // holds the deputy's seat; nil unless this candidate is the deputy
	seated bool             // the session that was asked last holds a seat
}

// New makes an acquirer: d, which follows as c says.
func New(d *lock.Dedicated, c Config) lock.Acquirer {
	k := &keeper{Config: c, d: d}
	d.Keeper, d.Waits, d.Retry, d.OnGrant = k, c.Wait, c.Retry, k.begin
	return d
}

func (k *keeper) Asks(s *session.Session, t lock.Try) (p db.TryLockParams) {
	queue.EvictFrom(k.d, s)
	p.Sit = k.Sit && !t.Once && (k.SitInside || !k.d.Source.InTransaction())
	p.SeatHigh, p.SeatLow = lockkey.Halves(SeatKey(k.d.Key))
	p.OfferHigh, p.OfferLow = lockkey.Halves(k.Offer)
	return p
}

func (k *keeper) Answered(ctx context.Context, s *session.Session, row db.TryLockRow, a *lock.Attempt) (keeps bool, err error) {
	switch k.seated = row.Seated; row.Outcome {
	case "deputy":
		return true, k.sitDown(ctx, s)
	case "offered":
		a.Outcome = lock.Offered
	}
	if row.Outcome != "granted" && s.InTransaction() && k.d.ReportHolder() {
		a.Holder = holder.SeenBy(ctx, s, k.d.Key)
	}
	return false, nil
}

func (k *keeper) Again(ctx context.Context, t lock.Try) (a lock.Attempt, tried bool, err error) {
	s := k.takeSeat()
	if s == nil {
		return a, false, nil
	}
	a, err = k.serve(ctx, s, t.Woken)
	return a, true, err
}

func (k *keeper) Follow(ctx context.Context) (lock.Attempt, error) {
	return k.Succeed(ctx, k.d, func() *session.Session {
		s := k.takeSeat()
		k.seated = s != nil
		return s
	})
}

func (k *keeper) Keeps() bool { return k.seat != nil }

// Close gives the seat up.
func (k *keeper) Close() {
	if s := k.takeSeat(); s != nil {
		s.Discard()
	}
}

// takeSeat returns the deputy's session, if it is one and its lease has not run out. The caller owns it
// then.
func (k *keeper) takeSeat() *session.Session {
	s := k.seat
	k.seat = nil
	if s != nil && !s.Valid() {
		s.Discard()
		return nil
	}
	return s
}

// begin starts what runs beside a session that was elected.
func (k *keeper) begin(s *session.Session) {
	if !k.seated {
		s.Along(func() { k.seatLeader(s) })
	}
	if k.Wait {
		s.Along(func() { queue.PrepareRelease(s) })
	}
}

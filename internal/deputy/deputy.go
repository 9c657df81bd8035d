// Package deputy lets one follower try often. So a leader that dies is replaced at once, and the other followers hardly ask.
//
// An election has two seats, which are advisory locks. The leader sits on one, and one of its followers, the deputy, on the
// other. So an election pins two sessions in the server, however many candidates it has. Holding a seat decides nothing: only
// the election's lock does. A seat is lost with its session, and the next attempt of another candidate takes it.
package deputy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/fenced"
	"github.com/pgelector/pgelector/internal/handover"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/queue"
	"github.com/pgelector/pgelector/internal/seat"
	"github.com/pgelector/pgelector/internal/transaction"
)

// role is what a deputy waits as: db.WaitLock documents the difference.
const role = "deputy"

// A Config says how a candidate follows.
type Config struct {
	CandidateID string
	Key         int64
	Sit         bool          // become the deputy if nobody is
	SitInside   bool          // also in transaction scope, where each deputy takes one of a pooler's few connections
	Wait        bool          // as the deputy, wait in the server's queue
	Interval    time.Duration // between two attempts of a deputy that does not wait
	Inside      func() bool   // whether sessions are led inside transactions
	Wary        func() bool   // whether connections of the pool may lead to a standby in turn
	Auto        bool          // and whether the scope may change
}

// An Acquirer makes attempts on sessions of its own, and keeps the one that was granted the deputy's seat.
type Acquirer struct {
	election.NoPart
	Config
	asks    *seat.Asks
	seat    *election.Session // holds the deputy's seat; nil unless this candidate is the deputy
	seated  bool              // the session that was asked last holds a seat
	kept    bool              // by the last answer of a server, the candidate was the deputy
	blocked bool              // the last attempt may have waited too long at the barrier
}

// New makes an acquirer, which is a part of the source that it makes its attempts on, too.
func New(c Config) *Acquirer { return &Acquirer{Config: c, asks: &seat.Asks{}} }

// Statements makes the answerer of a session.
func (d *Acquirer) Statements(from *election.Source) election.Statements {
	if d.Inside() {
		return transaction.New(from, d.asks, d.Wary)
	}
	return &seat.Statements{Asks: d.asks, Auto: d.Auto}
}

// Acquire makes one attempt, or serves as the deputy for one heartbeat interval.
func (d *Acquirer) Acquire(ctx context.Context, e *election.Election) (a election.Attempt) {
	s := d.takeSeat()
	if s != nil {
		a = d.serve(ctx, e, s)
	}
	if s == nil || a.Outcome == election.Failed && pgerr.MaybeBroken(a.Err) && ctx.Err() == nil && e.Source().Pool().Stats().Idle > 0 {
		busy := a.BusyAt
		if a = d.attempt(ctx, e); a.BusyAt.IsZero() {
			a.BusyAt = busy
		}
	}
	if a.Outcome == election.Busy && a.Named {
		a = d.succeed(ctx, e, a)
	}
	d.blocked = d.blocked || errors.Is(a.Err, election.ErrAtBarrier) && (errors.Is(a.Err, pgerr.ErrNoAnswer) || pgerr.State(a.Err) == "57014")
	d.seat = a.Kept
	switch a.Outcome {
	case election.Busy, election.Granted:
		d.kept = d.seat != nil
	default:
		state := pgerr.State(a.Err)
		a.Hurry = d.kept && state != "57P03" && state != "53300" // unless the server starts up, or is full
	}
	a.Paced = a.Paced || d.seat != nil
	return a
}

// unblock ends what may have blocked the last attempt at the barrier. It returns what nothing can end.
func (d *Acquirer) unblock(ctx context.Context, e *election.Election) error {
	if !d.blocked {
		return nil
	}
	endless, err := fenced.TerminateOverdue(ctx, e.Source(), d.Inside(), d.Key)
	if err != nil {
		e.Source().Report("report", err)
	}
	d.blocked = endless != nil
	return endless
}

// attempt makes one attempt on a session of its own.
func (d *Acquirer) attempt(ctx context.Context, e *election.Election) (a election.Attempt) {
	d.seated = false
	a = e.AttemptOn(ctx, func(ctx context.Context) (*election.Session, error) { // once the server is checked
		if err := d.unblock(ctx, e); err != nil {
			return nil, err
		}
		d.asks = &seat.Asks{Sit: d.Sit && !e.Once() && (d.SitInside || !d.Inside()), Offer: seat.OfferKey(d.CandidateID, d.Key)}
		return d.lend(ctx, e.Source())
	})
	return d.settle(ctx, e, a)
}

// settle looks at what an attempt has found, and prepares a session that is kept.
func (d *Acquirer) settle(ctx context.Context, e *election.Election, a election.Attempt) election.Attempt {
	if a.Outcome == election.Failed || a.Outcome == election.Refused {
		if d.Inside() && errors.Is(a.Err, pgerr.ErrNoAnswer) && !errors.Is(a.Err, election.ErrAtBarrier) {
			a.Err = transaction.Explain(a.Err)
		}
		return a
	}
	d.seated, a.Named = d.asks.Seated, d.asks.Offered
	if a.Kept != nil {
		if err := d.sitDown(ctx, e, a.Kept); err != nil {
			a.Kept.Fail(err)
			return e.Source().Lost(ctx, err)
		}
	}
	if a.Outcome == election.Busy && d.Inside() && e.Want().Look && !e.Once() {
		d.look(ctx, e, &a)
	}
	return a
}

// look finds the holder in transaction scope, where the try does not.
func (d *Acquirer) look(ctx context.Context, e *election.Election, a *election.Attempt) {
	h, held := holder.Holder{}, true
	if a.Kept != nil {
		h = holder.SeenBy(ctx, a.Kept, d.Key) // which has a second connection
	} else {
		h, held = holder.On(ctx, e.Source(), true, d.Key)
	}
	if held {
		a.Holder, a.Seen = election.Holder{CandidateID: h.CandidateID, PID: h.PID}, h
	}
}

// lend lends a session.
func (d *Acquirer) lend(ctx context.Context, from *election.Source) (*election.Session, error) {
	if d.Inside() {
		return transaction.Lend(ctx, from, d.Wary)
	}
	return from.Lend(ctx)
}

// succeed takes over the lock that its holder offers to this candidate.
func (d *Acquirer) succeed(ctx context.Context, e *election.Election, a election.Attempt) election.Attempt {
	got, err := handover.Succeed(ctx, e, d.CandidateID, d.Inside(), func() (s *election.Session, err error) {
		s, a.Kept = unexpired(a.Kept), nil
		if d.seated = s != nil; s == nil {
			s, err = d.lend(ctx, e.Source())
		}
		return s, err
	})
	if err != nil {
		got = e.Source().Fail(err)
	}
	if got.Outcome == election.Busy { // the offer does not stand
		a.Named = false
		return a
	}
	got.Kept = a.Kept // nobody could be asked about the offer, on another connection: the deputy keeps its seat
	if got.BusyAt.IsZero() {
		got.BusyAt = a.BusyAt
	}
	return got
}

// takeSeat returns the deputy's session, if it is one and its lease has not run out. The caller owns it then.
func (d *Acquirer) takeSeat() *election.Session {
	s := d.seat
	d.seat = nil
	return unexpired(s)
}

// unexpired returns s. If the lease of s has run out, as in a process that stood still, unexpired discards s and returns nil.
func unexpired(s *election.Session) *election.Session {
	if s != nil && s.EndIfExpired() != nil {
		s.Fail(context.Cause(s.Context()))
		return nil
	}
	return s
}

// Close gives the seat up.
func (d *Acquirer) Close() {
	if s := d.takeSeat(); s != nil {
		s.Fail(errLeft)
	}
}

var errLeft = errors.New("elector: the deputy has left its seat")

// sitDown prepares a session that was granted a seat.
func (d *Acquirer) sitDown(ctx context.Context, e *election.Election, s *election.Session) (err error) {
	if d.Wait {
		err = queue.Prepare(ctx, s, seat.Wait{Role: role, Key: d.Key, For: e.Source().Lease.Heartbeat})
	}
	if err == nil {
		err = queue.WarmUp(ctx, s, db.Confirm, db.Unlock, db.TryAsDeputy)
	}
	return err
}

// serve serves as the deputy for one heartbeat interval.
func (d *Acquirer) serve(ctx context.Context, e *election.Election, s *election.Session) (a election.Attempt) {
	d.seated = true
	if err := e.Source().MayKeep(ctx, s); err != nil {
		return e.Source().Lost(ctx, err)
	}
	var busy time.Time // the beginning of the last look that found the lock busy
	for end := time.Now().Add(e.Source().Lease.Heartbeat); s.EndIfExpired() == nil && time.Now().Before(end); {
		if a = d.again(ctx, e, s, min(d.Interval, time.Until(end))); a.BusyAt.IsZero() {
			a.BusyAt = busy
		}
		if busy = a.BusyAt; a.Kept == nil {
			return a
		}
	}
	if unexpired(s) == nil {
		return election.Attempt{Outcome: election.Busy, BusyAt: busy, Paced: true}
	}
	a = d.report(ctx, e, s)
	if a.BusyAt.IsZero() {
		a.BusyAt = busy
	}
	return a
}

// again tries the lock again: after the pause, or by a wait in the server's queue.
func (d *Acquirer) again(ctx context.Context, e *election.Election, s *election.Session, pause time.Duration) election.Attempt {
	waiter := s.Answerer().(seat.Waiter)
	if waiter.Waits(d.Wait); d.Wait {
		began := time.Now()
		a := e.Again(ctx, s)
		if a.Kept == nil || time.Since(began) >= queue.LeastWait {
			return a
		} // else the server permits no wait, or somebody has cancelled it
		waiter.Waits(false)
	}
	e.Sleep(ctx, pause) // the next statement finds that ctx has ended
	if s.EndIfExpired() != nil {
		return election.Attempt{Outcome: election.Busy, Kept: s}
	}
	return e.Again(ctx, s)
}

// report ends a heartbeat interval as the deputy: is the lock offered to this candidate, and who holds it? In transaction scope
// each try has a snapshot, if only for an instant. If CREATE INDEX CONCURRENTLY has seen the snapshot, it waits for the end of
// the transaction: so report begins another transaction.
func (d *Acquirer) report(ctx context.Context, e *election.Election, s *election.Session) election.Attempt {
	if transaction.IsOf(s) {
		if err := e.Source().MayKeep(ctx, s); err != nil {
			return e.Source().Lost(ctx, err)
		}
		if err := s.Reopen(ctx); err != nil {
			s.Fail(err)
			if errors.Is(err, pgerr.ErrNoAnswer) {
				err = transaction.Explain(err)
			}
			return e.Source().Lost(ctx, err)
		}
		d.seated = false // the seat went with the transaction
		return d.settle(ctx, e, e.Again(ctx, s))
	}
	free, err := transaction.PairIsFree(ctx, s, seat.OfferKey(d.CandidateID, d.Key))
	if err != nil {
		err = fmt.Errorf("elector: ask whether the leader offers its lock: %w", pgerr.Explain(err))
		s.Fail(err)
		return e.Source().Lost(ctx, err)
	}
	a := election.Attempt{Outcome: election.Busy, Kept: s, Named: !free}
	if e.Want().Look {
		h := holder.SeenBy(ctx, s, d.Key)
		a.Holder, a.Seen = election.Holder{CandidateID: h.CandidateID, PID: h.PID}, h
	}
	return a
}

// Started begins what goes on beside a session that was elected.
func (d *Acquirer) Started(s *election.Session) {
	if !d.seated && !d.asks.Seated {
		s.Go(func() { d.seatLeader(s) })
	}
	if d.Wait {
		s.Go(func() { queue.PrepareRelease(s) })
	}
}

// seatLeader takes a seat for a leader that has none, so that there is no second deputy. It retries: the last leader may keep
// its seat for a moment. In transaction scope it soon gives up, because each try has a snapshot.
func (d *Acquirer) seatLeader(s *election.Session) {
	again := backoff.Backoff{Min: 2 * queue.CloseDelay, Max: s.Lease().Heartbeat}
	key := seat.Key(d.Key)
	for n := 1; ; n++ {
		granted, err := transaction.TryPair(s.Context(), s, key)
		if err == nil && !granted {
			granted, err = transaction.TryPair(s.Context(), s, key^1)
		}
		if granted && err == nil || transaction.IsOf(s) && n == 3 || !backoff.Sleep(s.Context(), again.After(n)) {
			return
		}
	}
}

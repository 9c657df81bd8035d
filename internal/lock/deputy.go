package lock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
)

// An election has two seats, which are advisory locks. The leader sits on one, and one of
// its followers, the deputy, on the other. So an election pins two sessions in the server,
// however many candidates it has. Holding a seat decides nothing: only the election's lock
// does. A seat is lost with its session, and the next attempt of another candidate takes it.

// sitDown prepares a session that was granted a seat. After an error it is discarded.
func (o *own) sitDown(ctx context.Context, s *session.Session) (err error) {
	if o.Wait {
		err = o.source.PrepareWait(ctx, s, session.Deputy, o.Key, o.source.Lease.Heartbeat)
	}
	if err == nil {
		err = warmUp(ctx, s, db.Confirm, db.Unlock, db.TryAsDeputy)
	}
	if err == nil {
		err = s.Stay(ctx)
	}
	if err != nil {
		s.Fail(err)
		return err
	}
	o.seat = s
	return nil
}

// seatLeader takes a seat for a leader that has none, so that there is no second deputy. It
// retries: the last leader may keep its seat for a moment. In transaction scope it soon gives
// up, because each try has a snapshot: see sitAnew.
func (o *own) seatLeader(s *session.Session) {
	again := backoff.Backoff{Min: 2 * closeDelay, Max: o.source.Lease.Heartbeat}
	seat := session.SeatKey(o.Key)
	for n := 1; ; n++ {
		granted, err := s.TryPair(seat)
		if err == nil && !granted {
			granted, err = s.TryPair(seat ^ 1)
		}
		if granted && err == nil || s.InTransaction() && n == 3 || !backoff.Sleep(s.Context(), again.After(n)) {
			return
		}
	}
}

// deputize is one heartbeat interval as the deputy. After an error the session is discarded.
func (o *own) deputize(ctx context.Context, s *session.Session, w *WakeUps) (Attempt, error) {
	w.Renew()
	if err := o.source.Keep(ctx, s); err != nil {
		s.Fail(err)
		return Attempt{}, err
	}
	for end := time.Now().Add(o.source.Lease.Heartbeat); s.Valid() && time.Now().Before(end); {
		a, err := o.again(ctx, s, min(o.Interval, time.Until(end)), w)
		if err != nil || a.Outcome == Granted {
			return a, err
		}
	}
	if !s.Valid() { // the process stood still
		o.seat = s
		return Attempt{Outcome: Busy}, nil
	}
	return o.report(ctx, s)
}

// again tries the lock again: after the pause, or by a wait in the server's queue. After an
// error the session is discarded.
func (o *own) again(ctx context.Context, s *session.Session, pause time.Duration, w *WakeUps) (Attempt, error) {
	if o.Wait {
		began := time.Now()
		a, err := o.waitOnce(ctx, s)
		if err != nil || a.Outcome == Granted || time.Since(began) >= session.LeastWait {
			return a, err
		} // else the server permits no wait, or somebody has cancelled it
	}
	w.Sleep(ctx, pause) // the next statement finds that ctx has ended
	if !s.Valid() {
		return Attempt{Outcome: Busy}, nil
	}
	return o.tryAgain(ctx, s)
}

// report ends a heartbeat interval as the deputy: is the server still the primary, is the
// lock offered to this candidate, and who holds it?
func (o *own) report(ctx context.Context, s *session.Session) (Attempt, error) {
	if s.InTransaction() {
		return o.sitAnew(ctx, s)
	}
	a := Attempt{Outcome: Busy}
	free, err := s.PairIsFree(ctx, session.OfferKey(o.source.Name, o.Key))
	if err != nil {
		err = fmt.Errorf("elector: ask whether the leader offers its lock: %w", pgerr.Explain(err))
		s.Fail(err)
		return Attempt{}, err
	}
	if !free {
		a.Outcome = offered
	}
	if o.Look() {
		a.Holder = holderSeenBy(ctx, s, o.Key)
	}
	o.seat = s
	return a, nil
}

// sitAnew is report in transaction scope. Each try has a snapshot, if only for an instant. If
// CREATE INDEX CONCURRENTLY has seen it, it waits for the end of the transaction.
func (o *own) sitAnew(ctx context.Context, s *session.Session) (Attempt, error) {
	err := o.source.Keep(ctx, s)
	if err == nil {
		err = o.source.Anew(ctx, s)
	}
	if err != nil {
		s.Fail(err)
		return Attempt{}, err
	}
	a, err := o.tryOn(ctx, s, false)
	if err == nil && o.Look() && o.seat != nil {
		a.Holder = holderSeenBy(ctx, s, o.Key)
	}
	return a, err
}

// tryAgain tries the lock by the smallest statement.
func (o *own) tryAgain(ctx context.Context, s *session.Session) (Attempt, error) {
	var row db.TryAsDeputyRow
	var err error
	if s.InTransaction() {
		row.Granted, err = s.TryInTransaction(ctx)
	} else {
		row, err = session.Ask(ctx, s, (*db.Queries).TryAsDeputy, o.Key)
		if err == nil {
			if err = s.CheckPID(row.Pid); err != nil && row.Granted {
				o.source.Evict(row.Pid, o.Key, session.SeatKey(o.Key))
			}
		}
	}
	switch {
	case err != nil:
		err = fmt.Errorf("elector: try the lock: %w", pgerr.Explain(err))
		s.Fail(err)
		return Attempt{}, err
	case row.Granted:
		return o.confirm(ctx, s, true)
	}
	return Attempt{Outcome: Busy}, nil
}

// waitOnce waits once in the server's queue: the server hands the lock over the moment it is
// free. After an error the session is discarded.
func (o *own) waitOnce(ctx context.Context, s *session.Session) (Attempt, error) {
	if err := s.Wait(ctx); err != nil {
		if pgerr.State(err) == "42704" && !s.InTransaction() { // another backend does not know our parameters
			err = pgerr.Wrap(pgerr.ErrSessionPooled, err)
		}
		s.Fail(err)
		return Attempt{}, err
	}
	if s.InTransaction() {
		return o.tryAgain(ctx, s) // the lock is granted again to the transaction that has it
	}
	return o.confirm(ctx, s, false)
}

// warmUp prepares and makes the statements of a grant and a release, for a lock that the
// session does not hold. A backend is slow to answer a query for the first time (it loads,
// plans, and drivers prepare), and would be so just when the others wait for a leader:
// warmed up, a hand-over takes half as long. It also shows whether the server's locks are
// real. A transaction is not warmed up: it would keep the trial's lock.
func warmUp(ctx context.Context, s *session.Session, statements ...string) error {
	if s.InTransaction() {
		return nil
	}
	key := int64(rand.Uint64())
	err := s.Prepare(ctx, statements...)
	if err == nil {
		err = trial(ctx, s, key)
	}
	if err != nil {
		return fmt.Errorf("elector: warm the session up: %w", pgerr.Explain(err))
	}
	_, _, err = confirm(ctx, s, key, 0)
	return err
}

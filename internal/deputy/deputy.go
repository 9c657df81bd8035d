package deputy

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/pair"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/queue"
	"github.com/pgelector/pgelector/internal/session"
)

// sitDown prepares a session that was granted a seat. After an error it is discarded.
func (k *keeper) sitDown(ctx context.Context, s *session.Session) (err error) {
	if k.Wait {
		err = queue.Prepare(ctx, k.d.Source, s, role, k.d.Key, k.d.Source.Lease.Heartbeat)
	}
	if err == nil {
		err = queue.WarmUp(ctx, s, db.Confirm, db.Unlock, db.TryAsDeputy)
	}
	if err == nil {
		err = s.Stay(ctx)
	}
	if err != nil {
		s.Fail(err)
		return err
	}
	k.seat = s
	return nil
}

// seatLeader takes a seat for a leader that has none, so that there is no second deputy. It
// retries: the last leader may keep its seat for a moment. In transaction scope it soon gives
// up, because each try has a snapshot: see sitAnew.
func (k *keeper) seatLeader(s *session.Session) {
	again := backoff.Backoff{Min: 2 * lock.CloseDelay, Max: k.d.Source.Lease.Heartbeat}
	seat := SeatKey(k.d.Key)
	for n := 1; ; n++ {
		granted, err := pair.Try(s, seat)
		if err == nil && !granted {
			granted, err = pair.Try(s, seat^1)
		}
		if granted && err == nil || s.InTransaction() && n == 3 || !backoff.Sleep(s.Context(), again.After(n)) {
			return
		}
	}
}

// serve is one heartbeat interval as the deputy. After an error the session is discarded.
func (k *keeper) serve(ctx context.Context, s *session.Session, w lock.Waker) (lock.Attempt, error) {
	w.Renew()
	if err := k.d.Source.Keep(ctx, s); err != nil {
		s.Fail(err)
		return lock.Attempt{}, err
	}
	for end := time.Now().Add(k.d.Source.Lease.Heartbeat); s.Valid() && time.Now().Before(end); {
		r, err := k.again(ctx, s, min(k.Interval, time.Until(end)), w)
		if err != nil || r.Outcome == lock.Granted {
			return r, err
		}
	}
	if !s.Valid() { // the process stood still
		k.seat = s
		return lock.Attempt{Outcome: lock.Busy}, nil
	}
	return k.report(ctx, s)
}

// again tries the lock again: after the pause, or by a wait in the server's queue. After an
// error the session is discarded.
func (k *keeper) again(ctx context.Context, s *session.Session, pause time.Duration, w lock.Waker) (lock.Attempt, error) {
	if k.Wait {
		began := time.Now()
		r, err := queue.Wait(ctx, k.d, s)
		if err != nil || r.Outcome == lock.Granted || time.Since(began) >= queue.LeastWait {
			return r, err
		} // else the server permits no wait, or somebody has cancelled it
	}
	w.Sleep(ctx, pause) // the next statement finds that ctx has ended
	if !s.Valid() {
		return lock.Attempt{Outcome: lock.Busy}, nil
	}
	return queue.TryAgain(ctx, k.d, s)
}

// report ends a heartbeat interval as the deputy: is the lock offered to this candidate, and who holds
// it?
func (k *keeper) report(ctx context.Context, s *session.Session) (lock.Attempt, error) {
	if s.InTransaction() {
		return k.sitAnew(ctx, s)
	}
	r := lock.Attempt{Outcome: lock.Busy}
	free, err := pair.IsFree(ctx, s, k.Offer)
	if err != nil {
		err = fmt.Errorf("elector: ask whether the leader offers its lock: %w", pgerr.Explain(err))
		s.Fail(err)
		return lock.Attempt{}, err
	}
	if !free {
		r.Outcome = lock.Offered
	}
	if k.d.ReportHolder() {
		r.Holder = holder.SeenBy(ctx, s, k.d.Key)
	}
	k.seat = s
	return r, nil
}

// sitAnew is report in transaction scope. Each try has a snapshot, if only for an instant. If
// CREATE INDEX CONCURRENTLY has seen it, it waits for the end of the transaction.
func (k *keeper) sitAnew(ctx context.Context, s *session.Session) (lock.Attempt, error) {
	err := k.d.Source.Keep(ctx, s)
	if err == nil {
		err = k.d.Source.Anew(ctx, s)
	}
	if err != nil {
		s.Fail(err)
		return lock.Attempt{}, err
	}
	r, err := k.d.TryOn(ctx, s, lock.Try{})
	if err == nil && k.d.ReportHolder() && k.seat != nil {
		r.Holder = holder.SeenBy(ctx, s, k.d.Key)
	}
	return r, err
}

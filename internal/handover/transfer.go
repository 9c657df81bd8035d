// Package handover hands a lock over to a candidate that its leader names.
package handover

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/pair"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
)

// A Transfer hands a lock over to another candidate, the successor:
//
//	the leader                                     the successor
//	Prepare: takes a lock that is an offer ──────→ finds it in its next attempt
//	looks into the queue                           waits in the server's queue for the election's
//	                                               lock, as long as the offer stands
//	the successor is the first: the term ends,
//	and the work returns
//	Release: unlocks, if the successor is
//	the first still ─────────────────────────────→ the server grants it the lock
//
// While the successor waits, the server refuses the lock to those that try it (PostgreSQL
// lets nobody overtake a waiter in a conflicting mode). A deputy may wait, too: each wait is
// short, so the successor is the first again soon. Only the server hands the lock over, so
// nothing here can make two leaders.
type Transfer struct {
	lock      *lock.Lock
	candidate string
	key       int64 // of the offer's lock
	offered   bool
}

// New begins a transfer. The candidate does not know of it yet.
func New(l *lock.Lock, candidate string) *Transfer {
	return &Transfer{lock: l, candidate: candidate, key: OfferKey(candidate, l.Key())}
}

// pollBackoff is how soon the leader looks for its successor again.
var pollBackoff = backoff.Backoff{Min: 2 * time.Millisecond, Max: 50 * time.Millisecond}

// Prepare makes the offer, and returns nil as soon as the candidate is the first in the
// queue. It calls onOffer once the candidate can find the offer.
func (t *Transfer) Prepare(ctx context.Context, onOffer func()) error {
	for n := 1; ; n++ {
		if !t.offered {
			if err := t.offer(ctx); err != nil {
				return err
			}
			if t.offered {
				onOffer()
			}
		}
		if t.offered {
			if row, err := t.unlock(ctx, false); row.First || err != nil {
				return err
			}
		}
		if !backoff.Sleep(ctx, pollBackoff.After(n)) {
			return context.Cause(ctx)
		}
	}
}

// offer tries to take the offer's lock. It cannot while the candidate is just looking for
// it. If ctx ends before the answer, a lock that is granted later is released. If the lock table
// is full, a transaction goes on: its locks are the work's until that has returned.
func (t *Transfer) offer(ctx context.Context) (err error) {
	if t.offered, err = tryForNow(ctx, t.lock, t.key); err != nil {
		return fmt.Errorf("elector: offer the lock to the successor: %w", pgerr.Explain(err))
	}
	return nil
}

func tryForNow(ctx context.Context, l *lock.Lock, key int64) (granted bool, err error) {
	return pair.TryForNow(ctx, l.Session, key, func() { _ = letGo(l, key) })
}

func letGo(l *lock.Lock, key int64) error {
	return lock.Unlock(l.Session, l.Key(), func(q *db.Queries, ctx context.Context) (bool, error) { return pair.LetGo(ctx, l.Session, q, key) })
}

// Answer tells the one who made a request that nothing more will be done, until stop is done, but
// for no longer than a lease. Without room for another lock it says nothing.
func Answer(l *lock.Lock, key int64, stop context.Context) {
	if granted, _ := tryForNow(l.Session.Context(), l, key); granted {
		select {
		case <-stop.Done():
		case <-l.Session.Context().Done():
		case <-time.After(l.Session.Proof.Lease.Length):
		}
		_ = letGo(l, key)
	}
}

// unlock looks whether the candidate is the first in the queue. If so, it releases the lock
// if release is true.
func (t *Transfer) unlock(ctx context.Context, release bool) (db.UnlockToRow, error) {
	inside := t.lock.Session.InTransaction()
	row, err := session.Ask(ctx, t.lock.Session.AuxThenVerify(), (*db.Queries).UnlockTo, db.UnlockToParams{Key: t.lock.Key(), Candidate: t.candidate, Release: release && !inside})
	if err == nil && row.First && release && inside {
		err = t.lock.Unlock()
		row.Released = err == nil
	}
	if err != nil {
		return row, fmt.Errorf("elector: look for the successor: %w", pgerr.Explain(err))
	}
	return row, nil
}

// heir asks who has the released lock. If the successor's wait ended just before, it gets the
// lock a moment later.
func (t *Transfer) heir() (candidate string) {
	l := t.lock
	ctx, cancel := context.WithTimeout(context.Background(), successorGrace)
	defer cancel()
	for n := 1; ; n++ {
		holder, err := session.Ask(ctx, l.Session.Aux(), (*db.Queries).Holder, l.Key())
		if !errors.Is(err, sql.ErrNoRows) || !backoff.Sleep(ctx, pollBackoff.After(n)) {
			return holder.ApplicationName
		}
	}
}

// successorGrace is how long at least a lock is kept for a successor that has lost its
// place in the queue.
const successorGrace = time.Second

// Release releases the lock once the candidate is the first in the queue. It reports
// whether it has released the lock, and who has it, if that is known. The work has
// returned, so nobody leads: a candidate that has lost its place gets no more than a
// heartbeat interval, in which it comes back if it waits. A statement that fails may have
// released the lock: if it could not take it back, say. Withdraw must follow.
func (t *Transfer) Release(heartbeat time.Duration) (released bool, heir string) {
	t.lock.Releasing()
	ctx, cancel := context.WithTimeout(t.lock.Session.Context(), max(heartbeat, successorGrace))
	defer cancel()
	for n := 1; ; n++ {
		row, err := t.unlock(context.Background(), true)
		if err != nil {
			held, unknown := t.lock.Holds(context.Background())
			row.Released = !held && unknown == nil
		}
		if row.Released {
			if heir = t.candidate; !row.Taken {
				heir = t.heir()
			}
			t.lock.DelayClose()
		}
		if row.Released || err != nil || !backoff.Sleep(ctx, pollBackoff.After(n)) {
			return row.Released, heir
		}
	}
}

// Withdraw takes the offer back, if the session lives. It waits a second at the most.
func (t *Transfer) Withdraw() {
	if !t.offered {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = backoff.Await(ctx, func(context.Context) (any, error) { return nil, letGo(t.lock, t.key) })
}

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
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/seat"
	"github.com/pgelector/pgelector/internal/transaction"
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
//	still the first ─────────────────────────────→ the server grants it the lock
//
// While the successor waits, the server refuses the lock to those that try it (PostgreSQL lets nobody overtake a waiter in a
// conflicting mode). A deputy may wait, too: each wait is short, so the successor is the first again soon. Only the server hands
// the lock over, so nothing here can make two leaders.
type Transfer struct {
	lock      *election.Lock
	candidate string
	key       int64 // of the offer's lock
	offered   bool
	heir      string // once released: the candidate that has the lock, if that is known
}

// New begins a transfer. The candidate does not know of it yet.
func New(l *election.Lock, candidate string) *Transfer {
	return &Transfer{lock: l, candidate: candidate, key: seat.OfferKey(candidate, l.Key())}
}

// pollBackoff is how soon the leader looks for its successor again.
var pollBackoff = backoff.Backoff{Min: 2 * time.Millisecond, Max: 50 * time.Millisecond}

// Prepare makes the offer, and returns nil as soon as the candidate is the first in the queue. It calls onOffer once the candidate
// can find the offer.
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
			if row, err := t.unlock(ctx, t.lock.Session(), false); row.First || err != nil {
				return err
			}
		}
		if !backoff.Sleep(ctx, pollBackoff.After(n)) {
			return context.Cause(ctx)
		}
	}
}

// offer tries to take the offer's lock. It cannot while the candidate is just looking for the lock. If ctx ends before the answer,
// a lock that is granted later is released. If the lock table is full, a transaction goes on: the work needs the transaction's
// locks until the work has returned.
func (t *Transfer) offer(ctx context.Context) (err error) {
	if t.offered, err = tryForNow(ctx, t.lock.Session(), t.key); err != nil {
		return fmt.Errorf("elector: offer the lock to the successor: %w", pgerr.Explain(err))
	}
	return nil
}

func tryForNow(ctx context.Context, s *election.Session, key int64) (granted bool, err error) {
	return transaction.TryPairForNow(ctx, s, key, func() { _ = transaction.LetGo(s.Context(), s, key) })
}

// Answer tells the requester that nothing more will be done. The answer stands until stop is done, but no longer than a lease. If
// there is no room for another lock, Answer says nothing.
func Answer(l *election.Lock, key int64, stop context.Context) {
	s := l.Session()
	if granted, _ := tryForNow(s.Context(), s, key); granted {
		select {
		case <-stop.Done():
		case <-s.Context().Done():
		case <-time.After(s.Lease().Length):
		}
		_ = transaction.LetGo(context.Background(), s, key)
	}
}

// unlock checks whether the candidate is the first in the queue. If so, and if release is true, it releases the lock; in
// transaction scope the kernel releases the lock then.
func (t *Transfer) unlock(ctx context.Context, s *election.Session, release bool) (db.UnlockToRow, error) {
	row, err := transaction.BesideThenStay(ctx, s, (*db.Queries).UnlockTo, db.UnlockToParams{Key: t.lock.Key(), Candidate: t.candidate, Release: release && !transaction.IsOf(s)})
	if err != nil {
		return row, fmt.Errorf("elector: look for the successor: %w", pgerr.Explain(err))
	}
	return row, nil
}

// Heir is the candidate that has got the lock, once the lock is released; "" if the candidate is not known.
func (t *Transfer) Heir() string {
	if s := t.lock.Session(); t.heir == "" && transaction.IsOf(s) {
		t.heir = heir(s, t.lock.Key())
	}
	return t.heir
}

// heir asks who has the released lock. If the successor's wait ended just before, it gets the lock a moment later.
func heir(s *election.Session, key int64) string {
	ctx, cancel := context.WithTimeout(context.Background(), successorGrace)
	defer cancel()
	for n := 1; ; n++ {
		holder, err := transaction.Beside(ctx, s, (*db.Queries).Holder, key)
		if !errors.Is(err, sql.ErrNoRows) || !backoff.Sleep(ctx, pollBackoff.After(n)) {
			return holder.ApplicationName
		}
	}
}

// successorGrace is the least time that a lock is kept for a successor that has lost its place in the queue.
const successorGrace = time.Second

// Release releases the lock for the kernel, once the candidate is the first in the queue. The work has returned, so nobody leads:
// a candidate that has lost its place gets no more than a heartbeat interval, in which it comes back if it waits. A statement
// that fails may have released the lock, for example if it could not take the lock back.
func (t *Transfer) Release(ctx context.Context, s *election.Session) (released bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(s.Lease().Heartbeat, successorGrace))
	defer cancel()
	for n := 1; ; n++ {
		row, err := t.unlock(context.Background(), s, true)
		switch inside := transaction.IsOf(s); {
		case err != nil:
			row, unknown := election.Ask(context.Background(), s, (*db.Queries).HoldsLock, db.HoldsLockParams{Pid: s.PID(), Key: t.lock.Key()})
			if released = !inside && !row.Held && unknown == nil && row.Pid == s.PID(); released {
				t.heir = heir(s, t.lock.Key())
			}
			return released, nil
		case row.First && inside:
			return false, nil // the kernel commits
		case row.Released:
			if row.Taken {
				t.heir = t.candidate
			}
			if t.heir == "" {
				t.heir = heir(s, t.lock.Key())
			}
			return true, nil
		case !backoff.Sleep(ctx, pollBackoff.After(n)):
			return false, nil
		}
	}
}

// Withdraw takes the offer back, if the session lives. It waits a second at the most.
func (t *Transfer) Withdraw() {
	if !t.offered {
		return
	}
	t.offered = false
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = backoff.Await(ctx, func(context.Context) (any, error) {
		return nil, transaction.LetGo(context.Background(), t.lock.Session(), t.key)
	})
}

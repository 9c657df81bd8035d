package handover

import (
	"context"
	"fmt"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/queue"
	"github.com/pgelector/pgelector/internal/seat"
	"github.com/pgelector/pgelector/internal/transaction"
)

// role is what a successor waits as: db.WaitLock documents the difference.
const role = "successor"

// Succeed waits in the server's queue for as long as the leader's offer stands, on the session that on returns: one that is kept, or
// a new one. Anybody can make an offer: Succeed takes no session for an offer that is not the leader's. The session is discarded
// unless it is elected. Succeed tries again at once if the pool may have a better connection.
func Succeed(ctx context.Context, e *election.Election, candidateID string, inside bool, on func() (*election.Session, error)) (a election.Attempt, err error) {
	err = e.Source().Retry(ctx, func() error {
		a = succeed(ctx, e, candidateID, inside, on)
		return a.Err
	})
	return a, err
}

func succeed(ctx context.Context, e *election.Election, candidateID string, inside bool, on func() (*election.Session, error)) (a election.Attempt) {
	offer := db.HolderOffersParams{Key: e.Key, Offer: seat.OfferKey(candidateID, e.Key)}
	stands, err := explain(transaction.On(ctx, e.Source(), inside, (*db.Queries).HolderOffers, offer))
	if err != nil || !stands {
		return outcome(ctx, e, err)
	}
	s, err := on()
	if err != nil {
		return e.Source().Lost(ctx, err)
	}
	fresh := s.PID() == 0
	// Longer than a deputy waits: with equal waits they alternate, and the successor may never be the first.
	err = queue.Prepare(ctx, s, seat.Wait{Role: role, Key: e.Key, For: e.Source().Lease.Validity() / 2})
	if err == nil && fresh {
		err = queue.WarmUp(ctx, s, db.Confirm, db.Unlock)
	}
	for err == nil && stands {
		if a = e.Again(ctx, s); a.Kept == nil {
			a.Named = a.Outcome == election.Granted
			return a
		}
		stands, err = explain(transaction.Beside(ctx, s, (*db.Queries).HolderOffers, offer))
	}
	if err == nil && transaction.IsOf(s) { // the leader may have released its lock just after the last wait
		s.Answerer().(seat.Waiter).Waits(false)
		if a = e.Again(ctx, s); a.Kept == nil {
			a.Named = a.Outcome == election.Granted
			return a
		}
	}
	s.Fail(err)
	return outcome(ctx, e, err)
}

func outcome(ctx context.Context, e *election.Election, err error) election.Attempt {
	if err != nil {
		return e.Source().Lost(ctx, err)
	}
	return election.Attempt{Outcome: election.Busy}
}

// explain says what was asked: whether the leader offers its lock to this candidate.
func explain(offers bool, err error) (bool, error) {
	if err != nil {
		err = fmt.Errorf("elector: ask whether the leader offers its lock: %w", pgerr.Explain(err))
	}
	return offers, err
}

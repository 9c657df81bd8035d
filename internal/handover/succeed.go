package handover

import (
	"context"
	"fmt"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/queue"
	"github.com/pgelector/pgelector/internal/session"
)

// OfferKey is the key of the lock of two integers by which a leader offers its lock to a candidate.
func OfferKey(candidateID string, key int64) int64 {
	return lockkey.OfText(fmt.Sprintf("pgelector offer:%d:%s", key, candidateID))
}

// role is what a successor waits as: db.WaitLock documents the difference.
const role queue.Role = "successor"

// Succeed waits in the server's queue for as long as the leader's offer stands, on the session that kept
// returns, or on one of its own. Anybody can make an offer: it takes no connection, and no session that
// is kept, for one that is not the leader's. The session is discarded unless it is elected.
func Succeed(ctx context.Context, d *lock.Dedicated, kept func() *session.Session) (a lock.Attempt, err error) {
	stands := false
	err = d.Source.With(ctx, func(s *session.Session) (err error) {
		stands, err = holderOffers(ctx, d, s)
		return err
	})
	if err != nil || !stands {
		return lock.Attempt{Outcome: lock.Busy}, err
	}
	// Longer than a deputy waits: with equal waits they alternate, and the successor may
	// never be the first.
	wait := d.Source.Lease.Validity() / 2
	s := kept()
	if s != nil {
		err = queue.Prepare(ctx, d.Source, s, role, d.Key, wait)
	} else if s, err = queue.Open(ctx, d.Source, role, d.Key, wait); err == nil {
		queue.EvictFrom(d, s)
		err = queue.WarmUp(ctx, s, db.Confirm, db.Unlock)
	} else {
		return lock.Attempt{}, err
	}
	for err == nil && stands {
		if a, err = queue.Wait(ctx, d, s); err != nil || a.Outcome == lock.Granted {
			a.WasOffered = true
			return a, err
		}
		stands, err = holderOffers(ctx, d, s)
	}
	if err == nil && s.InTransaction() { // the leader may have released its lock just after the last wait
		if a, err = queue.TryAgain(ctx, d, s); err != nil || a.Outcome == lock.Granted {
			a.WasOffered = true
			return a, err
		}
	}
	s.Fail(err)
	return lock.Attempt{Outcome: lock.Busy}, err
}

// holderOffers asks whether the leader offers its lock to this candidate.
func holderOffers(ctx context.Context, d *lock.Dedicated, s *session.Session) (bool, error) {
	offers, err := session.Ask(ctx, s.Aux(), (*db.Queries).HolderOffers, db.HolderOffersParams{Key: d.Key, Offer: OfferKey(d.Source.Name, d.Key)})
	if err != nil {
		return false, fmt.Errorf("elector: ask whether the leader offers its lock: %w", pgerr.Explain(err))
	}
	return offers, nil
}

package lock

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
)

// errReleased is returned when the session does not hold a lock that the server has just granted.
var errReleased = errors.New("elector: the lock was granted, and is gone: does other code, or the driver, release all advisory locks " +
	"of its connections (pg_advisory_unlock_all, DISCARD ALL)?")

// Missing is why a lock that the server has granted does not show in pg_locks: its locks are stubs,
// which no retry will change, or somebody has released it.
func Missing(ctx context.Context, s *session.Session) error {
	if err := Trial(ctx, s, int64(rand.Uint64())); err != nil {
		return err
	}
	return errReleased
}

// Trial takes a lock for one statement, in which it must show in pg_locks. It returns
// ErrNoSessionLocks, or in a transaction ErrNoAdvisoryLocks, if the server's locks are stubs.
func Trial(ctx context.Context, s *session.Session, key int64) error {
	high, low := lockkey.Halves(key)
	shown, err := session.Ask(ctx, s, (*db.Queries).TrialLock, db.TrialLockParams{Inside: s.InTransaction(), Key: key, High: high, Low: low})
	switch {
	case err != nil || shown:
		return err
	case s.InTransaction():
		return pgerr.ErrNoAdvisoryLocks
	}
	return pgerr.ErrNoSessionLocks
}

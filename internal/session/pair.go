package session

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/pgelector/pgelector/db"
)

// Locks in the key space of two integers (PostgreSQL manual, 9.27.10), where no
// election's lock can be. A key of 64 bits names such a lock, too: the two integers are
// its halves.

// guard is the guard lock of fenced transactions: that of the election's own key.
func guard(key int64) (high, low int32) { return halves(key) }

func halves(key int64) (high, low int32) { return int32(key >> 32), int32(key) }

// purposeKey is the key of another lock of an election.
func purposeKey(purpose string, key int64) int64 {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("pgelector "+purpose+":"), uint64(key)))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// holdPair takes the lock of the two integers, which nobody else knows.
func (s *Session) holdPair(key int64) error {
	high, low := halves(key)
	granted, err := do(s.ctx, s, func(ctx context.Context, q *db.Queries) (bool, error) {
		return q.TryPair(ctx, db.TryPairParams{High: high, Low: low})
	})
	if err == nil && !granted {
		err = ErrNoAdvisoryLocks
	}
	return err
}

// waitPair waits for the lock of the two integers of the key that the session was
// opened for, for a bounded time.
func (s *Session) waitPair(ctx context.Context) error {
	return s.wait(ctx, func(ctx context.Context, q *db.Queries) error { return q.WaitPair(ctx) })
}

// holdsPair asks pg_locks whether the session holds the lock of the two integers.
func (s *Session) holdsPair(ctx context.Context, key int64) (bool, error) {
	row, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (db.HoldsPairRow, error) { return q.HoldsPair(ctx, key) })
	if err == nil && row.Pid != s.pid {
		err = fmt.Errorf("%w: backend %d was asked for the lock, then %d answered", ErrSessionPooled, s.pid, row.Pid)
	}
	return err == nil && row.Held, err
}

// tryLocking returns ErrNoAdvisoryLocks if a lock that the server grants does not show
// in pg_locks.
func (s *Session) tryLocking(ctx context.Context, key int64) error {
	high, low := halves(key)
	shown, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (bool, error) {
		return q.TrialLock(ctx, db.TrialLockParams{Key: key, High: high, Low: low})
	})
	if err == nil && !shown {
		err = ErrNoAdvisoryLocks
	}
	return err
}

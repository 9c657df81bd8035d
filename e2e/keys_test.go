//go:build unix

package e2e_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/pgelector/pgelector/elector"
)

// A key shows in pg_locks in two halves, each unsigned.
func TestEveryKeyElectsExcludesAndIsSeen(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		db := s.database(t) // advisory locks, and so keys, are those of one database
		for _, key := range []int64{0, 1, -1, math.MaxInt32, math.MinInt32, 1<<32 - 1, 1 << 32, -1 << 32, math.MaxInt64, math.MinInt64} {
			t.Run(fmt.Sprint(key), func(t *testing.T) {
				first := s.stand(t, d.open(t, 0, db), "first", elector.WithKey(key)).run(t, nil)
				first.elected(t)
				second := s.stand(t, d.open(t, 1, db), "second", elector.WithKey(key)).run(t, nil)
				second.follows(t)
				if leader, err := second.Leader(soon(t)); err != nil || leader.CandidateID != first.CandidateID() {
					t.Errorf("the leader is %+v, %v; want %s", leader, err, first.CandidateID())
				}
				if term := termOf(t, first); term.Verify(soon(t)) != nil {
					t.Error("the server does not know of the lock")
				}
				first.end(t)
				second.elected(t)
				second.end(t)
				if leader, err := first.Leader(soon(t)); !errors.Is(err, elector.ErrNoLeader) {
					t.Errorf("after all have ended, the leader is %+v, %v", leader, err)
				}
			})
		}
	})
}

// Keys that share a half are as different as any.
func TestKeysThatShareAHalfDoNotMeet(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	db := s.database(t)
	for _, key := range []int64{7, 7 | 7<<32, 7 << 32, 7 | -1<<32} {
		s.stand(t, pgx.open(t, 0, db), "any", elector.WithKey(key)).run(t, nil).elected(t)
	}
}

// Advisory locks are those of a database, and so are elections.
func TestAnElectionIsThatOfItsDatabase(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		for i := range 2 {
			s.stand(t, d.open(t, i, s.database(t)), "the same").run(t, nil).elected(t)
		}
	})
}

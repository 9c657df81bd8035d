//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// moving connects to wherever the address says at the time, as a host name does.
type moving struct {
	under   driver.Driver
	address *atomic.Pointer[string]
}

func (m moving) Connect(context.Context) (driver.Conn, error) { return m.under.Open(*m.address.Load()) }
func (m moving) Driver() driver.Driver                        { return m.under }

// openMoving opens the pool of the i-th candidate at the address.
func (d drivers) openMoving(t *testing.T, i int, address *atomic.Pointer[string]) *sql.DB {
	t.Helper()
	under := d.open(t, i, *address.Load()).Driver()
	pool := sql.OpenDB(moving{under, address})
	t.Cleanup(func() { expect(t, pool.Close()) })
	return pool
}

func TestATokenRisesAcrossAPromotion(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		primary := own(t)
		standby, err := primary.AddStandby(t.Context())
		check(t, err)
		p, s := on(t, primary), on(t, standby)
		election := s.election(t)
		var address atomic.Pointer[string]
		move := func(to *server) { dsn := to.DSN(); address.Store(&dsn) }
		move(p)
		var all []*candidate
		for i := range 2 {
			all = append(all, s.stand(t, d.openMoving(t, i, &address), election).run(t, nil))
		}
		old := firstLeader(t, all, 0)
		leader, follower := all[0], all[1]
		if leader.CandidateID() != old.CandidateID {
			leader, follower = follower, leader
		}
		follower.follows(t)
		check(t, primary.Kill())
		move(s)
		if e := wait[hooks.Demoted](t, leader, nil); e.Reason != hooks.SessionLost {
			t.Errorf("demoted because %s: %v", e.Reason, e.Err)
		}
		// Not promoted yet, it is refused, but not for good: who has seen a primary waits for the next.
		for _, c := range all {
			refusal := wait(t, c, func(f hooks.Failure) bool { return errors.Is(f.Err, elector.ErrServerReadOnly) })
			if refusal.Permanent {
				t.Errorf("the standby is refused for good by a candidate that was elected %d times", len(c.rec.Elected()))
			}
		}
		check(t, standby.Promote(soon(t)))
		fresh := firstLeader(t, all, old.Token)
		if fresh.Token>>48 <= old.Token>>48 {
			t.Errorf("the timeline in token %x is not above that in %x", fresh.Token, old.Token)
		}
		for _, c := range all {
			if c.CandidateID() == fresh.CandidateID {
				leader = c
			}
		}
		term, leading := leader.Term()
		if !leading || term.Verify(soon(t)) != nil {
			t.Error("the term on the promoted server does not hold")
		}
	})
}

// A transaction id that was given out to read it, and for nothing else, may be
// forgotten in a crash, and then given out again. Here the server would have
// ten seconds to write it down in its own time.
func TestATokenIsNotRepeatedAfterACrashRightAfterTheElection(t *testing.T) {
	t.Parallel()
	for name, defaults := range map[string]map[string]string{"a role": nil, "a role that commits in the background": {"synchronous_commit": "off"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				cluster := own(t, pgcluster.WithSetting("wal_writer_delay", "10s"), pgcluster.WithSetting("autovacuum", "off"))
				s := on(t, cluster)
				check(t, cluster.CreateRole(t.Context(), "candidate", defaults))
				dsn := s.DSN(pgcluster.ForRole("candidate"))
				c := s.stand(t, d.open(t, 0, dsn), s.election(t)).run(t, nil)
				token := c.elected(t).Token
				for range 3 {
					after := c.after()
					check(t, cluster.Kill())
					check(t, cluster.Resume(soon(t)))
					again := next[hooks.Elected](t, after, nil)
					if again.Token <= token {
						t.Fatalf("token %d after a crash does not rise above %d", again.Token, token)
					}
					token = again.Token
				}
			})
		})
	}
}

// That a token is written down on the primary is enough, since a promotion
// begins a new timeline.
func TestAnElectionDoesNotWaitForASynchronousStandby(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := on(t, own(t, pgcluster.WithSetting("synchronous_standby_names", "nobody")))
		c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t)).run(t, nil)
		c.elected(t)
		if n := len(c.rec.Failures()); n > 0 {
			t.Errorf("%d failures, such as %v", n, c.rec.Failures()[0].Err)
		}
	})
}

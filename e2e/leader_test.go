//go:build unix

package e2e_test

import (
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// A role without any privilege sees the lease, its scope and since when the leader leads: of
// one that was elected at once, of a deputy, and of a candidate to which the lock was transferred.
func TestTheLeadersLeaseAndTheStartOfItsTermAreSeenByAnyRole(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		for scope, opts := range map[elector.Scope][]elector.Option{
			elector.SessionScope:     {elector.WithScope(elector.SessionScope)},
			elector.TransactionScope: {elector.WithScope(elector.TransactionScope), elector.WithStandby(elector.Deputy)},
		} {
			s := onShared(t)
			if scope == elector.SessionScope {
				s = direct(t)
			}
			w := invaded(t, s)
			role := d.open(t, 0, w.dsn(w.stranger))
			asker, err := elector.New(role, "town")
			check(t, err)
			sees := func(c *candidate) {
				t.Helper()
				elected := c.elected(t)
				leader, err := asker.Leader(soon(t))
				check(t, err)
				if leader.CandidateID != c.CandidateID() || leader.Lease != lease || leader.Scope != scope || !leader.Connected.IsZero() {
					t.Errorf("the leader is %+v", leader)
				}
				if d := leader.Since.Sub(elected.At); d < -2*time.Second || d > time.Second {
					t.Errorf("it leads since %v, and says %v", elected.At, leader.Since)
				}
			}
			stand := func() *candidate {
				c := w.stand(t, d.open(t, 0, w.dsn(w.elections)), "town", opts...)
				c.moved = scope == elector.TransactionScope
				return c.run(t, nil)
			}
			first := stand()
			sees(first)
			time.Sleep(2100 * time.Millisecond) // the start of the next session and of its term differ
			second := stand()
			second.follows(t)
			time.Sleep(2100 * time.Millisecond)
			first.end(t)
			sees(second)
			third := stand()
			third.follows(t)
			_, err = elector.RequestTransfer(soon(t), role, "town", third.CandidateID())
			check(t, err)
			sees(third)
			second.end(t)
			third.end(t)
		}
	})
}

// A session of many elections tells its lease by one lock, and not since when it leads each.
func TestASharedSessionTellsItsLeaseOnce(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 20)
		g := s.share(t, d.open(t, 0, s.DSN())).join(t, elections).run(t, nil)
		eventually(t, "all are led", func() bool { return g.leading() == 20 })
		leader, err := g.all[7].Leader(soon(t))
		check(t, err)
		if leader.Lease != lease || leader.Scope != elector.SessionScope || !leader.Since.IsZero() {
			t.Errorf("the leader is %+v", leader)
		}
		eventually(t, "it holds one lock for each election, one to show that it lives, and one that tells its lease", func() bool {
			return one[int](t, s.admin, "SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND pid = $1", leader.PID) == 22
		})
	})
}

// The leader of another program tells nothing.
func TestAStrangersLockTellsNothing(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	election := s.election(t)
	e, err := elector.New(pgx.open(t, 0, s.DSN()), election)
	check(t, err)
	conn, err := s.admin.Conn(soon(t))
	check(t, err)
	_, err = conn.ExecContext(soon(t), "SELECT pg_advisory_lock($1)", e.Key())
	check(t, err)
	leader, err := e.Leader(soon(t))
	if check(t, err); leader.PID == 0 || leader.Lease != 0 || leader.Scope != elector.Auto || !leader.Since.IsZero() {
		t.Errorf("the leader is %+v", leader)
	}
	_, err = conn.ExecContext(soon(t), "SELECT pg_advisory_unlock_all()")
	expect(t, err)
	expect(t, conn.Close())
}

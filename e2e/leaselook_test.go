//go:build unix

package e2e_test

import (
	"syscall"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
)

// Two processes stand for the election. A third one looks, by the same role, and by one that may not see when
// a session was last heard of until that is granted to it.
func TestALeadersLeaseIsSeenByWhoeverMaySeeIt(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := direct(t)
		f := s.launch(t, d, 2, shortLeases)
		leader := f.leader(t, 0)
		role := s.role(t, nil)
		look := func(dsn string) *elector.Elector {
			e, err := elector.New(d.open(t, 0, dsn), f.election, elector.WithLease(lease))
			check(t, err)
			return e
		}
		same, other := look(s.DSN()), look(s.DSN(pgcluster.ForRole(role)))
		sees := func(e *elector.Elector) elector.Leader {
			seen, err := e.Leader(soon(t))
			check(t, err)
			return seen
		}
		seen := sees(same)
		if seen.CandidateID != leader.ID || seen.Alive() != elector.Alive || !seen.ExpiresAt.Equal(seen.RenewedAt.Add(seen.Lease)) || seen.RenewedAt.After(seen.AskedAt) {
			t.Errorf("the same role sees %+v, %v", seen, seen.Alive())
		}
		if seen.Addr != "127.0.0.1" || seen.SessionAt.IsZero() || seen.ElectedAt.IsZero() || seen.Lease != short {
			t.Errorf("the same role sees %+v", seen)
		}
		eventually(t, "the lease is renewed", func() bool { return sees(same).RenewedAt.After(seen.RenewedAt) })
		hidden := sees(other) // neither the address nor any time of the session
		want := elector.Leader{CandidateID: leader.ID, PID: seen.PID, User: seen.User, Lease: seen.Lease, Scope: seen.Scope, ElectedAt: seen.ElectedAt, AskedAt: hidden.AskedAt}
		if hidden != want || hidden.Alive() != elector.CannotTell {
			t.Errorf("another role sees %+v, %v; want %+v", hidden, hidden.Alive(), want)
		}
		_, err := s.admin.Exec(`GRANT pg_read_all_stats TO "` + role + `"`)
		check(t, err)
		if seen := sees(other); seen.Alive() != elector.Alive || seen.RenewedAt.IsZero() {
			t.Errorf("with the grant it sees %+v, %v", seen, seen.Alive())
		}
		f.signal(t, leader.ID, syscall.SIGSTOP)
		defer f.signal(t, leader.ID, syscall.SIGCONT)
		eventually(t, "the lease is renewed no more", func() bool {
			a := sees(same)
			return a.CandidateID != leader.ID || a.AskedAt.Sub(a.RenewedAt) > 2*heartbeat
		})
		if next := f.leader(t, leader.Token); next.ID == leader.ID {
			t.Error("the frozen leader leads")
		}
	})
}

//go:build unix

package e2e_test

import (
	"testing"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// Over pgx the leader is told before the lock is free, and a deputy tries every 100 ms: it would lead again.
func TestALeaderWhoseSessionAnAdministratorEndsLetsItsDeputyLead(t *testing.T) {
	t.Parallel()
	s := direct(t)
	election := s.election(t)
	one := s.stand(t, pgx.open(t, 0, s.Cluster.DSN()), election, directly(), elector.WithTakeover(elector.Deputy)).run(t, nil)
	one.elected(t)
	two := s.stand(t, pgx.open(t, 0, s.Cluster.DSN()), election, directly(), elector.WithTakeover(elector.Deputy)).run(t, nil)
	isDeputy := func(e hooks.Campaign) bool { return e.Deputy }
	wait(t, two, isDeputy)
	for leader, deputy := one, two; len(one.rec.Elected())+len(two.rec.Elected()) < 7; leader, deputy = deputy, leader {
		elected, follows := deputy.after(), leader.after()
		s.terminate(t, s.holders(t, leader.Key())[0])
		nextElected(t, elected)
		next(t, follows, isDeputy)
		if a, b := len(one.rec.Elected()), len(two.rec.Elected()); a-b > 1 || b > a {
			t.Fatalf("an evicted leader has led again before its deputy: %d and %d terms", a, b)
		}
	}
}

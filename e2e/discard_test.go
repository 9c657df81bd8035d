//go:build unix

package e2e_test

import (
	"testing"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// What the user's own code may do to the connections of the pool that it shares
// with an elector: forget everything that was set, prepared or locked there. The
// session is never among them.
func TestNoElectionMindsWhoDiscardsAllOnItsPool(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]elector.Option{"polling": nil, "parked": {elector.WithStandby(elector.Wait)}, "watching": {elector.WithWatch()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				s := onShared(t)
				election := s.election(t)
				leader := s.stand(t, d.open(t, 0, s.DSN()), election, opts...).run(t, nil)
				leader.elected(t)
				follower := s.stand(t, d.open(t, 0, s.DSN()), election, opts...).run(t, nil)
				follower.follows(t)
				attempts, beats := follower.after(), leader.after()
				for range 10 {
					for _, c := range []*candidate{leader, follower} {
						for _, statement := range []string{"SELECT pg_advisory_unlock_all()", "RESET ALL", "DISCARD ALL"} {
							for range 3 {
								_, err := c.pool.ExecContext(soon(t), statement)
								check(t, err)
							}
						}
					}
					next[hooks.Campaign](t, attempts, nil)
					next[hooks.Heartbeat](t, beats, nil)
				}
				if n := len(leader.rec.Demoted()); n > 0 {
					t.Errorf("the leader was demoted: %v", leader.rec.Demoted()[0].Err)
				}
				for _, f := range follower.rec.Failures() {
					t.Errorf("the follower failed (permanent: %t): %v", f.Permanent, f.Err)
				}
				leader.end(t)
				follower.elected(t)
			})
		})
	}
}

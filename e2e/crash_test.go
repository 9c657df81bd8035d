//go:build unix

package e2e_test

import (
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/hooks"
)

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

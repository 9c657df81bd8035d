//go:build unix

package e2e_test

import (
	"context"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func TestATerminatedBackendEndsTheTermAndTheCandidateCampaignsAgain(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		returned := make(chan error, 2)
		c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t)).run(t, func(ctx context.Context, _ *elector.Term) error {
			<-ctx.Done()
			returned <- context.Cause(ctx)
			return nil
		})
		old := c.elected(t)
		after := c.after()
		s.terminate(t, s.holders(t, c.Key())[0])
		wraps(t, <-returned, elector.ErrSessionLost)
		if again := nextElected(t, after); again.Token <= old.Token {
			t.Errorf("token %d does not rise above %d", again.Token, old.Token)
		}
	})
}

func TestARestartOfTheServerLeavesOneLeader(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgcluster.Mode{"immediate": pgcluster.Immediate, "fast": pgcluster.Fast} {
		t.Run(name, func(t *testing.T) {
			overDrivers(t, func(t *testing.T, d drivers) {
				c := own(t)
				s := on(t, c)
				election := s.election(t)
				all := []*candidate{}
				for i := range 3 {
					all = append(all, s.stand(t, d.open(t, i, s.DSN()), election).run(t, nil))
				}
				old := firstLeader(t, all, 0)
				check(t, c.Restart(soon(t), mode))
				fresh := firstLeader(t, all, old.Token)
				eventually(t, "one leads, and it is the one that holds the lock", func() bool {
					leading := ""
					for _, c := range all {
						if c.IsLeader() {
							leading += c.CandidateID()
						}
					}
					leader, err := all[0].Leader(soon(t))
					return err == nil && leader.CandidateID == leading
				})
				if fresh.Token <= old.Token {
					t.Errorf("token %d after the restart does not rise above %d", fresh.Token, old.Token)
				}
			})
		})
	}
}

// firstLeader waits until one of the candidates is elected with a token above that.
func firstLeader(t *testing.T, all []*candidate, after int64) (found hooks.Elected) {
	t.Helper()
	eventually(t, "one of the candidates is elected", func() bool {
		for _, c := range all {
			for _, e := range c.rec.Elected() {
				if e.Token > after {
					found = e
					return true
				}
			}
		}
		return false
	})
	return found
}

// The out-of-memory killer takes one backend, and the server ends all the others.
func TestAKilledBackendOfAnotherCostsATermAndNoMore(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		cluster := own(t)
		s := on(t, cluster)
		c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t)).run(t, nil)
		old := c.elected(t)
		after := c.after()
		stranger, err := s.admin.Conn(soon(t))
		check(t, err)
		check(t, cluster.KillBackend(one[int](t, stranger, "SELECT pg_backend_pid()")))
		_ = stranger.Close()
		if again := nextElected(t, after); again.Token <= old.Token {
			t.Errorf("token %d does not rise above %d", again.Token, old.Token)
		}
	})
}

// Every process of the server stands still, so that nothing is answered and
// nothing is freed.
func TestAFrozenServerEndsTheTermInTime(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		cluster := own(t)
		s := on(t, cluster)
		c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t)).run(t, nil)
		old := c.elected(t)
		after := c.after()
		check(t, cluster.Freeze())
		if e := next[hooks.Demoted](t, after, nil); e.Reason != hooks.LeaseExpired {
			t.Errorf("demoted because %s: %v", e.Reason, e.Err)
		}
		check(t, cluster.Thaw())
		if again := nextElected(t, after); again.Token <= old.Token {
			t.Errorf("token %d does not rise above %d", again.Token, old.Token)
		}
	})
}

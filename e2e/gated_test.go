//go:build unix

package e2e_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/pgelector/pgelector/roster"
)

// frail makes candidates of each kind with the given health check.
var frail = map[string]func(t *testing.T, s *server, d drivers, election string, health elector.CommonOption) *candidate{
	"polling": func(t *testing.T, s *server, d drivers, election string, health elector.CommonOption) *candidate {
		return s.stand(t, d.open(t, 0, s.DSN()), election, health)
	},
	"waiting": func(t *testing.T, s *server, d drivers, election string, health elector.CommonOption) *candidate {
		return s.stand(t, d.open(t, 0, s.DSN()), election, waiting, health)
	},
	"of a session": func(t *testing.T, s *server, d drivers, election string, health elector.CommonOption) *candidate {
		rec := hookstest.NewRecorder()
		g := s.share(t, d.open(t, 0, s.DSN())).join(t, []string{election}, elector.WithHooks(rec), health)
		return &candidate{Elector: g.all[0], rec: rec}
	},
}

func gate(ill *atomic.Bool) elector.CommonOption {
	return elector.WithHealth(func(context.Context) float64 {
		if ill.Load() {
			return 0
		}
		return 1
	}, elector.HealthPolicy{Interval: 20 * time.Millisecond})
}

// A leader that becomes unhealthy steps down. It does not campaign until it is healthy
// again, even if nobody else does.
func TestAnUnhealthyLeaderStepsDownUntilItIsHealthy(t *testing.T) {
	t.Parallel()
	for kind, stand := range frail {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			overDrivers(t, func(t *testing.T, d drivers) {
				s := onShared(t)
				election := s.election(t)
				var ill atomic.Bool
				first := stand(t, s, d, election, gate(&ill)).run(t, nil)
				old := first.elected(t)
				second := s.stand(t, d.open(t, 1, s.DSN()), election).run(t, nil)
				second.follows(t)
				ill.Store(true)
				ended := wait[hooks.Demoted](t, first, nil)
				wraps(t, ended.Err, elector.ErrUnhealthy)
				if ended.Reason != hooks.Unhealthy {
					t.Errorf("demoted because %s", ended.Reason)
				}
				fresh := second.elected(t)
				if fresh.Token <= old.Token {
					t.Errorf("token %d does not rise above %d", fresh.Token, old.Token)
				}
				second.end(t)
				free := time.Now() // nobody else campaigns
				eventually(t, "the candidate is checked again and again", func() bool { return first.Health().At.Sub(free) > 3*retry })
				if leader, err := second.Leader(soon(t)); err == nil {
					t.Errorf("%s leads", leader.CandidateID)
				}
				if h := first.Health(); h.Healthy || h.Score != 0 {
					t.Errorf("an unhealthy candidate has %+v", h)
				}
				ill.Store(false)
				wait(t, first, func(e hooks.Elected) bool { return e.Token > fresh.Token })
				if n := len(first.rec.Failures()); n != 1 {
					t.Errorf("%d failures, want one for the health: %v", n, first.rec.Failures())
				}
			})
		})
	}
}

func TestAWaitingDeputyThatBecomesUnhealthyLeavesTheQueue(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		s.stand(t, d.open(t, 1, s.DSN()), election).run(t, nil).elected(t)
		var ill atomic.Bool
		c := s.stand(t, d.open(t, 0, s.DSN()), election, append(inServer, gate(&ill))...).run(t, nil)
		s.waits(t, c)
		began := time.Now()
		ill.Store(true)
		eventually(t, "the queue is empty", func() bool { return len(s.waiters(t, c.Key())) == 0 })
		soonAfter(t, "leaving the queue", began) // and not when the wait ends
		ill.Store(false)
		s.waits(t, c)
	})
}

// One health check gates the election, and the endpoints and the roster report its result.
func TestOneHealthCheckServesElectionEndpointsAndRoster(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		r := rosterOn(t, d.open(t, 1, s.DSN()), s.schema(t), roster.WithPublishInterval(time.Second))
		var ill atomic.Bool
		ill.Store(true)
		c, m := s.standWatched(t, d, 0, election, gate(&ill), elector.WithHooks(r))
		check(t, r.Add(c.Elector))
		c.run(t, nil)
		published := func() *float64 {
			all, err := r.Candidates(soon(t), c.Key())
			check(t, err)
			if len(all) != 1 || all[0].State != roster.Live {
				return nil
			}
			return all[0].Health
		}
		eventually(t, "the unhealthy candidate is published", func() bool { h := published(); return h != nil && *h == 0 })
		time.Sleep(4 * time.Second) // longer than a silent candidate stays published
		if h := published(); h == nil || *h != 0 {
			t.Errorf("an unhealthy candidate that makes no attempt is published with %v", h)
		}
		if seen := becomes(t, m.Readiness(), health.Unhealthy).Elections[0]; seen.Leading || seen.Score == nil || *seen.Score != 0 {
			t.Errorf("the endpoint reports %+v", seen)
		}
		ill.Store(false)
		c.elected(t)
		if seen := becomes(t, m, health.Healthy).Elections[0]; !seen.Leading || seen.Score == nil || *seen.Score != 1 {
			t.Errorf("the endpoint reports %+v", seen)
		}
		eventually(t, "the leader is published", func() bool { h := published(); return h != nil && *h == 1 })
	})
}

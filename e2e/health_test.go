//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/pgelector/pgelector/roster"
)

// standWatched makes a candidate with its own monitor.
func (s *server) standWatched(t *testing.T, d drivers, i int, election string, opts ...elector.Option) (*candidate, *health.Monitor) {
	t.Helper()
	pool := d.open(t, i, s.DSN())
	m, err := health.New(pool, health.WithCache(50*time.Millisecond))
	check(t, err)
	c := s.stand(t, pool, election, append(opts, elector.WithHooks(m))...)
	check(t, m.Add(c.Elector))
	return c, m
}

// probe queries a handler, and checks that the status code matches the report.
func probe(t *testing.T, h http.Handler) health.Report {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	var r health.Report
	check(t, json.Unmarshal(answer.Body.Bytes(), &r))
	if unhealthy := answer.Code == http.StatusServiceUnavailable; unhealthy != (r.Status == health.Unhealthy) {
		t.Errorf("code %d with %s", answer.Code, answer.Body)
	}
	return r
}

// becomes waits for a status.
func becomes(t *testing.T, h http.Handler, status health.Status) health.Report {
	t.Helper()
	var r health.Report
	eventually(t, fmt.Sprint("the status is ", status), func() bool { r = probe(t, h); return r.Status == status })
	return r
}

func TestTheLeaderAndItsFollowersAreHealthyAndNameTheLeader(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		first, leads := s.standWatched(t, d, 0, election)
		second, follows := s.standWatched(t, d, 1, election)
		if r := probe(t, leads); r.Status != health.Degraded {
			t.Errorf("before anybody leads: %+v", r)
		}
		first.run(t, nil).elected(t)
		second.run(t, nil).follows(t)
		for _, m := range []*health.Monitor{leads, follows} {
			for _, h := range []http.Handler{m, m.Readiness()} {
				r := becomes(t, h, health.Healthy)
				if e := r.Elections[0]; e.Leader != first.CandidateID() || e.Leading != (m == leads) || (e.Asked == nil) != (m == leads) {
					t.Errorf("got %+v", e)
				}
			}
			if r := probe(t, m.Liveness()); r.Status != health.Healthy {
				t.Errorf("live: %+v", r)
			}
		}
	})
}

func TestWithoutTheDatabaseProcessesAreLiveButNotReady(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		cluster := own(t)
		s := on(t, cluster)
		election := s.election(t)
		first, leads := s.standWatched(t, d, 0, election)
		first.run(t, nil).elected(t)
		second, follows := s.standWatched(t, d, 1, election)
		second.run(t, nil).follows(t)
		check(t, cluster.Kill())
		for _, m := range []*health.Monitor{leads, follows} {
			becomes(t, m, health.Unhealthy)
			becomes(t, m.Readiness(), health.Unhealthy)
			if r := probe(t, m.Liveness()); r.Status != health.Healthy {
				t.Errorf("live: %+v", r)
			}
		}
		check(t, cluster.Resume(soon(t)))
		becomes(t, leads, health.Healthy)
		becomes(t, follows, health.Healthy)
	})
}

// A probe must not hang when a driver does.
func TestAProbeOnADeadLinkReturnsInTime(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		l := behindAProxy(t)
		pool := d.open(t, 0, l.cut())
		m, err := health.New(pool, health.WithTimeout(200*time.Millisecond), health.WithCache(0))
		check(t, err)
		c := l.server.stand(t, pool, l.election(t), elector.WithHooks(m))
		t.Cleanup(l.proxy.Heal)
		check(t, m.Add(c.Elector))
		becomes(t, m, health.Degraded)
		l.proxy.BlackHole()
		for range 10 { // more than the limit of stuck calls
			if r := probe(t, m); r.Status != health.Unhealthy {
				t.Errorf("got %+v", r)
			}
		}
		l.proxy.Heal()
		becomes(t, m, health.Degraded)
	})
}

func TestAFollowerOfAFrozenLeaderIsHealthyAndThenLeads(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		f := s.launch(t, d, 1)
		leader := f.leader(t, 0)
		c, m := s.standWatched(t, d, 1, f.election)
		c.run(t, nil).follows(t)
		becomes(t, m, health.Healthy)
		after := c.after()
		f.signal(t, leader.ID, syscall.SIGSTOP)
		for leading := false; !leading; {
			r := probe(t, m)
			leading = r.Elections[0].Leading
			if known := leading || r.Elections[0].Leader == leader.ID; r.Status == health.Healthy && !known {
				t.Errorf("healthy, and the leader is %q", r.Elections[0].Leader)
			}
			if r.Status == health.Unhealthy {
				t.Errorf("got %+v", r)
			}
			if !leading {
				next[hooks.Campaign](t, after, nil)
			}
		}
		if r := probe(t, m); r.Elections[0].Leader != c.CandidateID() {
			t.Errorf("got %+v", r)
		}
		f.signal(t, leader.ID, syscall.SIGCONT)
	})
}

func TestLivenessFailsWhileOldWorkRunsUnderTheNextLeader(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		work, begun, letGo := hanging(t)
		first, m := s.standWatched(t, d, 0, election)
		first.run(t, func(ctx context.Context, _ *elector.Term) error { work(ctx); return nil })
		t.Cleanup(letGo) // before Run is waited for
		first.elected(t)
		second, _ := s.standWatched(t, d, 1, election)
		second.run(t, nil).follows(t)
		closed(t, "the work begins", begun)
		s.terminate(t, s.holders(t, first.Key())[0])
		second.elected(t)
		if live := becomes(t, m.Liveness(), health.Unhealthy); live.Elections[0].Election != election {
			t.Errorf("got %+v", live)
		}
		becomes(t, m, health.Unhealthy)
		letGo()
		becomes(t, m.Liveness(), health.Healthy)
		becomes(t, m, health.Healthy)
	})
}

// hanging returns work that ignores its context and returns only after letGo. begun is closed when it begins.
func hanging(t *testing.T) (work func(context.Context), begun <-chan struct{}, letGo func()) {
	t.Helper()
	started, gate := make(chan struct{}), make(chan struct{})
	start := sync.OnceFunc(func() { close(started) })
	letGo = sync.OnceFunc(func() { close(gate) })
	return func(context.Context) { start(); <-gate }, started, letGo
}

// While the work hangs, the lock is held, so nobody else can lead. Liveness must show it.
func TestLivenessFailsWhileWorkHangsAndTheLockIsHeld(t *testing.T) {
	t.Parallel()
	for name, stand := range map[string]func(t *testing.T, s *server, d drivers, work func(context.Context), election string) (*candidate, *health.Monitor){
		"lead": func(t *testing.T, s *server, d drivers, work func(context.Context), election string) (*candidate, *health.Monitor) {
			c, m := s.standWatched(t, d, 0, election)
			return c.run(t, func(ctx context.Context, _ *elector.Term) error { work(ctx); return nil }), m
		},
		"OnElected": func(t *testing.T, s *server, d drivers, work func(context.Context), election string) (*candidate, *health.Monitor) {
			c, m := s.standWatched(t, d, 0, election, elector.WithHooks(hooks.Funcs{Elected: func(ctx context.Context, _ hooks.Elected) { work(ctx) }}))
			return c.run(t, nil), m
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overDrivers(t, func(t *testing.T, d drivers) {
				s := onShared(t)
				election := s.election(t)
				work, begun, letGo := hanging(t)
				first, m := stand(t, s, d, work, election)
				t.Cleanup(letGo) // before Run is waited for
				first.elected(t)
				holder := s.holders(t, first.Key())
				second, _ := s.standWatched(t, d, 1, election)
				second.run(t, nil).follows(t)
				closed(t, "the work begins", begun)
				first.stop()
				wait(t, first, func(f hooks.Failure) bool { return f.Op == hooks.OpWork && errors.Is(f.Err, elector.ErrOverrun) })
				if live := becomes(t, m.Liveness(), health.Unhealthy); live.Elections[0].Election != election {
					t.Errorf("got %+v", live)
				}
				becomes(t, m, health.Unhealthy)
				next(t, second.after(), func(e hooks.Campaign) bool { return e.Outcome == hooks.Busy })
				if now := s.holders(t, first.Key()); !slices.Equal(now, holder) {
					t.Errorf("backends %v hold the lock, and before %v", now, holder)
				}
				letGo()
				becomes(t, m.Liveness(), health.Healthy)
				second.elected(t)
			})
		})
	}
}

func TestAMonitorQueriesAllElectionsOfASessionWithOneStatement(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool, counted := d.openCounted(t, 0, s.DSN())
		m, err := health.New(pool, health.WithTimeout(time.Minute), health.WithCache(time.Minute))
		check(t, err)
		inSessionScope(t, "a shared session needs it")
		session, err := elector.NewSession(pool, elector.WithHooks(m), elector.WithCandidateID(unique("session")))
		check(t, err)
		const elections = 50
		var all []*elector.Elector
		for range elections {
			e, err := session.Elector(s.election(t))
			check(t, err)
			all = append(all, e)
		}
		t.Cleanup(func() { expect(t, session.Close(soon(t))) }) // before the locks are looked at
		check(t, m.Add(all...))
		if r := probe(t, m); r.Status != health.Degraded || len(r.Elections) != elections {
			t.Errorf("got %s, and %d elections", r.Status, len(r.Elections))
		}
		if n := counted.now()["Leaders"]; n != 1 {
			t.Errorf("%d statements, want 1", n)
		}
		for _, e := range all {
			check(t, e.Start(context.Background()))
		}
		eventually(t, "all are led", func() bool { return probe(t, m).Status == health.Healthy })
		if n := counted.now()["Leaders"]; n > 1 {
			t.Errorf("%d statements by the end", n)
		}
	})
}

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
	return elector.WithHealth(func(context.Context) elector.HealthReport {
		if ill.Load() {
			return elector.HealthReport{Score: 0}
		}
		return elector.HealthReport{Score: 1}
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

// It leaves the server's queue, too, long before its wait ends.
func TestADeputyThatBecomesUnhealthyOrStopsLeavesItsSeat(t *testing.T) {
	t.Parallel()
	for name := range soonest {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overDrivers(t, func(t *testing.T, d drivers) {
				s := onShared(t)
				election := s.election(t)
				s.stand(t, d.open(t, 1, s.DSN()), election).run(t, nil).elected(t)
				var ill atomic.Bool
				seated := func(c *candidate) {
					t.Helper()
					s.deputy(t, []*candidate{c})
					if takeovers[name] == elector.Wait {
						s.waits(t, c)
					}
				}
				opts := append(slices.Clone(inServer), elector.WithTakeover(takeovers[name]), elector.WithRetryInterval(retry))
				c := s.stand(t, d.open(t, 0, s.DSN()), election, append(opts, gate(&ill))...).run(t, nil)
				seated(c)
				bound := retry + 400*time.Millisecond
				if throughPooler { // a deputy leaves its seat for a moment with each transaction
					bound = handedOver
				}
				unhealthy, stopped := 0*time.Second, 0*time.Second
				round := func() {
					other := s.stand(t, d.open(t, 1, s.DSN()), election, opts...).run(t, nil)
					other.follows(t)
					began := time.Now()
					ill.Store(true)
					seated(other)
					unhealthy = time.Since(began)
					after := c.after()
					ill.Store(false)
					next(t, after, func(e hooks.Campaign) bool { return e.Outcome == hooks.Busy })
					began = time.Now()
					other.end(t)
					seated(c)
					stopped = time.Since(began)
				}
				within(t, "an unhealthy deputy is replaced", bound, func() time.Duration { round(); return unhealthy })
				within(t, "a stopped deputy is replaced", bound, func() time.Duration { round(); return stopped })
			})
		})
	}
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

// The next publication at rest would be an hour later.
func TestARosterPublishesAtOnceThatACandidateBecameUnhealthyOrHealthy(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		r := rosterOn(t, d.open(t, 1, s.DSN()), s.schema(t), roster.WithPublishInterval(time.Hour))
		var ill atomic.Bool
		c, _ := s.standWatched(t, d, 0, s.election(t), gate(&ill), elector.WithHooks(r))
		check(t, r.Add(c.Elector))
		c.run(t, nil)
		c.elected(t)
		for _, unhealthy := range []bool{true, false} {
			ill.Store(unhealthy)
			eventually(t, "it is published", func() bool {
				all, err := r.Candidates(soon(t), c.Key())
				check(t, err)
				return len(all) == 1 && all[0].Health != nil && all[0].Unhealthy == unhealthy && (*all[0].Health == 0) == unhealthy
			})
		}
	})
}

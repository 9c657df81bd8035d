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
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/hooks"
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
		pool := d.open(t, 0, l.proxy.DSN())
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
		work, letGo := hanging(t)
		first, m := s.standWatched(t, d, 0, election)
		first.run(t, func(ctx context.Context, _ *elector.Term) error { work(ctx); return nil })
		t.Cleanup(letGo) // before Run is waited for
		first.elected(t)
		second, _ := s.standWatched(t, d, 1, election)
		second.run(t, nil).follows(t)
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

// hanging returns work that ignores its context and returns only after letGo.
func hanging(t *testing.T) (work func(context.Context), letGo func()) {
	t.Helper()
	gate := make(chan struct{})
	letGo = sync.OnceFunc(func() { close(gate) })
	return func(context.Context) { <-gate }, letGo
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
				work, letGo := hanging(t)
				first, m := stand(t, s, d, work, election)
				t.Cleanup(letGo) // before Run is waited for
				first.elected(t)
				holder := s.holders(t, first.Key())
				second, _ := s.standWatched(t, d, 1, election)
				second.run(t, nil).follows(t)
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
		m, err := health.New(pool, health.WithCache(time.Minute))
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

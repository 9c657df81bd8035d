//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/hooks"
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

func gate(ill *atomic.Bool) elector.CommonOption {
	return elector.WithHealth(func(context.Context) elector.HealthReport {
		if ill.Load() {
			return elector.HealthReport{Score: 0}
		}
		return elector.HealthReport{Score: 1}
	}, elector.HealthPolicy{Interval: 20 * time.Millisecond})
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

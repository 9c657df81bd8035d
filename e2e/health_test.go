//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/health"
)

// standWatched makes a candidate with its own monitor.
func (s *server) standWatched(t *testing.T, d drivers, i int, election string) (*candidate, *health.Monitor) {
	t.Helper()
	pool := d.open(t, i, s.DSN())
	m, err := health.New(pool, health.WithCache(50*time.Millisecond))
	check(t, err)
	c := s.stand(t, pool, election, elector.WithHooks(m))
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
func becomes(t *testing.T, h http.Handler, status health.Status) {
	t.Helper()
	eventually(t, fmt.Sprint("the status is ", status), func() bool { return probe(t, h).Status == status })
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

//go:build unix

package e2e_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/hooks"
)

// A deputy has a connection of its own, so that its attempts do not fail.
func TestAFullPoolOfADeputyIsReportedAndTheServerIsNotBlamed(t *testing.T) {
	t.Parallel()
	s := direct(t)
	election := s.election(t)
	s.stand(t, pgx.open(t, 0, s.Cluster.DSN()), election, directly()).run(t, nil).elected(t)
	pool := pgx.open(t, 0, s.Cluster.DSN())
	pool.SetMaxOpenConns(3)
	deputy := s.stand(t, pool, election, directly(), briefly, elector.WithTakeover(elector.Deputy)).run(t, nil)
	wait(t, deputy, func(e hooks.Campaign) bool { return e.Deputy })
	monitor, err := health.New(pool)
	check(t, err)
	check(t, monitor.Add(deputy.Elector))
	becomes(t, monitor, health.Healthy)

	var taken []*sql.Conn
	for range 2 {
		conn, err := pool.Conn(soon(t))
		check(t, err)
		taken = append(taken, conn)
	}
	full := wait(t, deputy, func(f hooks.Failure) bool { return f.Op == hooks.OpPool })
	if !strings.Contains(full.Err.Error(), "is MaxOpenConns large enough?") || full.Returned == nil {
		t.Errorf("reported: %+v", full)
	}
	if r := probe(t, monitor.Readiness()); r.Status != health.Unhealthy || !strings.Contains(r.Elections[0].Why, "no connection from the pool within 1s: all 3 are in use") {
		t.Errorf("the readiness: %+v", r)
	}
	for _, conn := range taken {
		check(t, conn.Close())
	}
	closed(t, "the wait for the pool is over", full.Returned)
	becomes(t, monitor, health.Healthy)
	for _, f := range deputy.rec.Failures() {
		if f.Op != hooks.OpPool {
			t.Errorf("reported, too: %v", f.Err)
		}
	}
}

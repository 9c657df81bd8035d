//go:build unix

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
)

// The server refuses a function that each heartbeat calls, for a while, and the connection is fine.
func TestALeaderWhoseHeartbeatIsRefusedForAWhileLeadsOn(t *testing.T) {
	t.Parallel()
	inSessionScope(t, "inside a transaction an error frees the lock")
	overEach(t, func(t *testing.T, d drivers) {
		s := direct(t)
		role, database := s.role(t, nil), unique("database")
		s.databaseOf(t, database)
		admin := pq.open(t, 0, s.Cluster.DSN(pgcluster.ForDatabase(database)))
		change := func(how string) {
			t.Helper()
			_, err := admin.Exec(fmt.Sprintf(how, "EXECUTE ON FUNCTION pg_catalog.pg_try_advisory_lock(integer, integer)"))
			check(t, err)
		}
		refused := func() int {
			log, err := s.ServerLog()
			check(t, err)
			return strings.Count(log, "@"+database+" ERROR:  permission denied for function pg_try_advisory_lock")
		}
		leader := s.stand(t, d.open(t, 0, s.Cluster.DSN(pgcluster.ForDatabase(database), pgcluster.ForRole(role))), s.election(t),
			directly(), elector.WithLease(patience)).run(t, nil)
		first := leader.elected(t)
		change("REVOKE %s FROM PUBLIC")
		eventually(t, "heartbeats are refused", func() bool { return refused() >= 3 })
		beats := len(leader.rec.Heartbeats())
		change("GRANT %s TO PUBLIC")
		eventually(t, "a heartbeat is answered", func() bool { return len(leader.rec.Heartbeats()) > beats })
		if term := termOf(t, leader); term.Token() != first.Token || len(leader.rec.Failures()) > 0 {
			t.Errorf("another term: %v, %v", leader.rec.Demoted(), leader.rec.Failures())
		}
	})
}

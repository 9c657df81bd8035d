//go:build unix

package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func TestARoleThatMayOnlyConnectLeadsObservesAndResigns(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		dsn := s.database(t)
		name := s.role(t, nil)
		database := dsn[strings.LastIndex(dsn, "/")+1 : strings.Index(dsn, "?")]
		_, err := s.admin.Exec(`REVOKE ALL ON DATABASE "` + database + `" FROM PUBLIC; GRANT CONNECT ON DATABASE "` + database + `" TO "` + name + `"`)
		check(t, err)
		t.Cleanup(func() {
			_, err := s.admin.Exec(`REVOKE ALL ON DATABASE "` + database + `" FROM "` + name + `"`)
			expect(t, err)
		})
		dsn = s.DSN(pgcluster.ForDatabase(database), pgcluster.ForRole(name))
		first := s.stand(t, d.open(t, 0, dsn), "any").run(t, nil)
		first.elected(t)
		second := s.stand(t, d.open(t, 1, dsn), "any").run(t, nil)
		second.follows(t)
		leader, err := second.Leader(soon(t))
		if err != nil || leader.CandidateID != first.CandidateID() || leader.User != name || leader.Connected.IsZero() {
			t.Errorf("the leader is %+v, %v", leader, err)
		}
		term := termOf(t, first)
		expect(t, term.Verify(soon(t)))
		expect(t, term.Resign(soon(t)))
		firstLeader(t, []*candidate{first, second}, term.Token())
		for _, c := range []*candidate{first, second} {
			for _, f := range c.rec.Failures() {
				t.Errorf("%s: %v", f.Op, f.Err)
			}
		}
	})
}

// hostile are defaults of a role that could end a session or change its statements'
// meaning.
var hostile = map[string]map[string]string{
	"impatient": {"statement_timeout": "200ms", "lock_timeout": "1ms", "idle_session_timeout": "300ms",
		"idle_in_transaction_session_timeout": "200ms"},
	"read only":    {"default_transaction_read_only": "on"},
	"serializable": {"default_transaction_isolation": "serializable"},
	"deferrable": {"default_transaction_isolation": "serializable", "default_transaction_read_only": "on",
		"default_transaction_deferrable": "on"},
	"hasty": {"synchronous_commit": "off"},
	"foreign": {"datestyle": "German, DMY", "intervalstyle": "sql_standard", "timezone": "Asia/Kathmandu", "bytea_output": "escape",
		"standard_conforming_strings": "off", "client_min_messages": "debug1", "lc_messages": "C", "extra_float_digits": "-15"},
	"planner": {"plan_cache_mode": "force_generic_plan", "enable_nestloop": "off", "enable_hashjoin": "off", "jit_above_cost": "0"},
}

// hostileTo returns a server for a role with these defaults: a new one if the role's
// transactions wait for others.
func hostileTo(t *testing.T, defaults map[string]string) *server {
	if defaults["default_transaction_deferrable"] == "on" {
		return on(t, own(t))
	}
	return onShared(t)
}

func TestTheDefaultsOfARoleEndNoTerm(t *testing.T) {
	t.Parallel()
	for name, defaults := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				s := hostileTo(t, defaults)
				dsn := s.DSN(pgcluster.ForRole(s.role(t, defaults)))
				c := s.stand(t, d.open(t, 0, dsn), s.election(t)).run(t, nil)
				c.survives(t, 2, lease)
			})
		})
	}
}

// A read-only deferrable transaction waits for the end of other serializable transactions,
// which may take longer than a lease.
func TestALeaderDoesNotWaitForTransactionsOfOthers(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := hostileTo(t, hostile["deferrable"])
		dsn := s.DSN(pgcluster.ForRole(s.role(t, hostile["deferrable"])))
		c := s.stand(t, d.open(t, 0, dsn), s.election(t)).run(t, nil)
		c.elected(t)
		tx, err := s.admin.Begin()
		check(t, err)
		defer tx.Rollback()
		_, err = tx.Exec("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; CREATE TEMPORARY TABLE written (i int)")
		check(t, err)
		began := time.Now()
		for _, until := range []time.Duration{lease, 2 * lease} {
			wait(t, c, func(h hooks.Heartbeat) bool { return h.At.Sub(began) > until })
		}
		if n := len(c.rec.Demoted()); n > 0 {
			t.Errorf("demoted: %v", c.rec.Demoted()[0].Err)
		}
	})
}

// The server hides the leader's address from other roles, but not its name.
func TestAnotherRoleSeesTheLeaderButNotItsAddress(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		owner, other := s.role(t, nil), s.role(t, nil)
		c := s.stand(t, d.open(t, 0, s.DSN(pgcluster.ForRole(owner))), election).run(t, nil)
		c.elected(t)
		same, err := c.Leader(soon(t))
		check(t, err)
		if same.Since.IsZero() {
			t.Error("the leader does not tell since when it leads")
		}
		if same.Addr != "127.0.0.1" || same.Connected.IsZero() {
			t.Errorf("the same role sees %+v", same)
		}
		watcher, err := elector.New(d.open(t, 1, s.DSN(pgcluster.ForRole(other))), election)
		check(t, err)
		leader, err := watcher.Leader(soon(t))
		want := elector.Leader{CandidateID: c.CandidateID(), PID: same.PID, User: owner, Lease: lease, Scope: same.Scope, Since: same.Since}
		if err != nil || leader != want {
			t.Errorf("got %+v, %v; want %+v", leader, err, want)
		}
	})
}

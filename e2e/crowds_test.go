//go:build unix

package e2e_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func TestAStrangerCanNeitherEndNorCancelALeadersSession(t *testing.T) {
	t.Parallel()
	w := invaded(t, onShared(t))
	c := w.candidate(t, pgx)
	c.elected(t)
	leader, err := c.Leader(soon(t))
	check(t, err)
	denied(t, w.invader(t), "SELECT pg_terminate_backend($1)", leader.PID)
	denied(t, w.invader(t), "SELECT pg_cancel_backend($1)", leader.PID)
}

func TestWhoeverHasTheRoleOfALeaderOrMaySignalCanEndItsSession(t *testing.T) {
	t.Parallel()
	w := invaded(t, onShared(t))
	_, err := w.admin.Exec(`GRANT pg_signal_backend TO "` + w.stranger + `"`)
	check(t, err)
	c := w.candidate(t, pgx)
	elected, ended := c.rec.Cursor(), c.rec.Cursor()
	for _, role := range []string{w.elections, w.stranger} {
		leader := next[hooks.Elected](t, elected, nil)
		holder, err := c.Leader(soon(t))
		check(t, err)
		if !one[bool](t, pgx.open(t, 0, w.dsn(role)), "SELECT pg_terminate_backend($1)", holder.PID) {
			t.Errorf("%s cannot terminate the leader's backend", role)
		}
		if e := next[hooks.Demoted](t, ended, nil); e.Reason != hooks.SessionLost || e.Token != leader.Token {
			t.Errorf("demoted from %d because %s", e.Token, e.Reason)
		}
	}
}

func TestAStormOfNotificationsCostsNoTerm(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		w := invaded(t, onShared(t))
		c := w.candidate(t, d, elector.WithWatch())
		c.elected(t)
		beats, invader := c.after(), w.invader(t)
		for range 5 {
			for range 20 {
				_, err := invader.Exec("SELECT pg_notify('town', i::text) FROM generate_series(1, 1000) i")
				check(t, err)
			}
			next[hooks.Heartbeat](t, beats, nil)
		}
		if n := len(c.rec.Demoted()); n > 0 {
			t.Errorf("demoted: %v", c.rec.Demoted()[0].Err)
		}
	})
}

// connectAll opens connections until the server refuses one.
func connectAll(t *testing.T, dsn string) (n int, closeAll func(), refusal error) {
	t.Helper()
	pool := pgx.open(t, 0, dsn)
	var all []*sql.Conn
	for {
		conn, err := pool.Conn(soon(t))
		if err != nil {
			return len(all), func() {
				for _, conn := range all {
					expect(t, conn.Close())
				}
				expect(t, pool.Close())
			}, err
		}
		all = append(all, conn)
	}
}

func TestStrangersCanTakeEveryConnectionUnlessTheyAreLimited(t *testing.T) {
	inSessionScope(t, "the pooler has limits of its own")
	t.Parallel()
	w := invaded(t, on(t, own(t, pgcluster.WithSetting("max_connections", "25"))))
	leader := w.candidate(t, pgx)
	leader.elected(t)
	_, closeAll, refusal := connectAll(t, w.dsn(w.stranger))
	if state := stateOf(refusal); state != "53300" {
		t.Errorf("the server refused with %v", refusal)
	}
	late := w.candidate(t, pq)
	f := wait(t, late, func(f hooks.Failure) bool { return f.Op == hooks.OpCampaign })
	if stateOf(f.Err) != "53300" || f.Permanent {
		t.Errorf("without a connection a candidate reports (permanent: %t) %v", f.Permanent, f.Err)
	}
	wait[hooks.Heartbeat](t, leader, nil)
	if n := len(leader.rec.Demoted()); n > 0 { // it needs no further connection
		t.Errorf("the leader was demoted: %v", leader.rec.Demoted()[0].Err)
	}
	closeAll()
	late.follows(t)
	w.defend(t, "connections")
	n, closeAll, refusal := connectAll(t, w.dsn(w.stranger))
	defer closeAll()
	if stateOf(refusal) != "53300" || n != 5 {
		t.Errorf("%d strangers could connect, then: %v", n, refusal)
	}
	third := w.candidate(t, pgx)
	third.follows(t)
}

// All databases of a server share one lock table.
func TestStrangersOfAnotherDatabaseCanFillTheLockTableUnlessTheyMayNotLockThere(t *testing.T) {
	inSessionScope(t, "the pooler needs locks to look up a role")
	t.Parallel()
	w := invaded(t, cramped(t))
	other := invaded(t, w.server)
	pool := other.invader(t)
	leader := w.candidate(t, pgx)
	leader.elected(t)
	for _, way := range []string{"SELECT pg_advisory_xact_lock(42, %d)", "CREATE TEMPORARY TABLE t%d ()"} {
		release := fillWith(t, pool, way)
		late := w.candidate(t, pq)
		f := wait(t, late, func(f hooks.Failure) bool { return f.Op == hooks.OpCampaign })
		wraps(t, f.Err, elector.ErrLockTableFull)
		if n := len(leader.rec.Demoted()); n > 0 {
			t.Errorf("the leader was demoted: %v", leader.rec.Demoted()[0].Err)
		}
		release()
		late.end(t)
	}
	other.defend(t, "locks")
	other.defend(t, "tables")
	denied(t, pool, "SELECT pg_advisory_lock(42, 1)")
	denied(t, pool, "CREATE TEMPORARY TABLE t ()")
}

// fillWith repeats a statement in one transaction, which keeps the locks, until the server's
// lock table is full.
func fillWith(t *testing.T, pool *sql.DB, statement string) (release func()) {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), nil)
	check(t, err)
	for i := range 10000 {
		_, err = tx.Exec("SAVEPOINT one")
		check(t, err)
		if _, err = tx.Exec(fmt.Sprintf(statement, i)); err != nil {
			break
		}
	}
	if stateOf(err) != "53200" {
		t.Fatalf("the lock table is not full: %v", err)
	}
	_, err = tx.Exec("ROLLBACK TO one")
	check(t, err)
	return func() { expect(t, tx.Rollback()) }
}

func TestAStrangerSeesWhoLeadsUnlessItMayNotLook(t *testing.T) {
	t.Parallel()
	w := invaded(t, onShared(t))
	c := w.candidate(t, pgx)
	c.elected(t)
	look := "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND objsubid = 1 AND datname = current_database()"
	if names := list[string](t, w.invader(t), look); len(names) != 1 || names[0] != c.CandidateID() {
		t.Errorf("the stranger sees %q", names)
	}
	w.defend(t, "sight")
	denied(t, w.invader(t), look)
	denied(t, w.invader(t), "SELECT * FROM pg_lock_status()")
	denied(t, w.invader(t), "SELECT * FROM pg_stat_get_activity(NULL)")
}

func TestWhomThePgHBAFileRejectsDoesNotConnect(t *testing.T) {
	inSessionScope(t, "the server sees the pooler's address")
	t.Parallel()
	cluster := own(t)
	w := invaded(t, on(t, cluster))
	path := filepath.Join(cluster.Dir(), "data", "pg_hba.conf")
	old, err := os.ReadFile(path)
	check(t, err)
	rules := fmt.Sprintf("host %q %q all trust\nhost %q postgres all trust\nhost %q all all reject\n", w.database, w.elections, w.database, w.database)
	check(t, os.WriteFile(path, append([]byte(rules), old...), 0o600))
	_, err = w.admin.Exec("SELECT pg_reload_conf()")
	check(t, err)
	eventually(t, "the stranger is rejected", func() bool { return stateOf(w.invader(t).PingContext(soon(t))) == "28000" })
	w.candidate(t, pgx).elected(t)
}

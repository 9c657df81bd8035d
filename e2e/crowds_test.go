//go:build unix

package e2e_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
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
		c := w.candidate(t, d)
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

// cramped starts a server with a small lock table.
func cramped(t *testing.T) *server {
	t.Helper()
	return on(t, own(t, pgcluster.WithSetting("max_locks_per_transaction", "10"), pgcluster.WithSetting("max_connections", "20"),
		pgcluster.WithSetting("max_wal_senders", "0"), pgcluster.WithSetting("autovacuum_max_workers", "1")))
}

// fill takes all free locks except spare ones, until empty is called or the test ends.
func (s *server) fill(t *testing.T, spare int) (empty func()) {
	t.Helper()
	conn, err := s.admin.Conn(soon(t))
	check(t, err)
	taken := 0
	for {
		if _, err = conn.ExecContext(soon(t), "SELECT pg_advisory_lock(42, $1)", taken); err != nil {
			break
		}
		taken++
	}
	for i := range spare {
		_, err := conn.ExecContext(soon(t), "SELECT pg_advisory_unlock(42, $1)", taken-1-i)
		check(t, err)
	}
	done := false
	empty = func() {
		if !done {
			_, err := conn.ExecContext(soon(t), "SELECT pg_advisory_unlock_all()")
			expect(t, err)
			expect(t, conn.Close())
		}
		done = true
	}
	t.Cleanup(empty)
	return empty
}

func saysFull(t *testing.T, f hooks.Failure) {
	t.Helper()
	wraps(t, f.Err, elector.ErrLockTableFull)
	var state interface{ SQLState() string }
	if f.Permanent || !strings.Contains(f.Err.Error(), "max_locks_per_transaction") || !errors.As(f.Err, &state) || state.SQLState() != "53200" {
		t.Errorf("reported (permanent: %t): %v", f.Permanent, f.Err)
	}
}

// Validations look for the locks in pg_locks meanwhile.
func TestAFullLockTableEndsNoTerm(t *testing.T) {
	inSessionScope(t, "the pooler needs locks to look up a role")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := cramped(t)
		elections, frequent := s.elections(t, 2), elector.WithHeartbeatInterval(100*time.Millisecond)
		validated := elector.WithValidateInterval(100 * time.Millisecond)
		own := s.stand(t, d.open(t, 0, s.DSN()), s.election(t), frequent, validated).run(t, nil)
		own.elected(t)
		shared := s.share(t, d.open(t, 1, s.DSN()), frequent, validated).join(t, elections).run(t, nil)
		eventually(t, "all are led", func() bool { return shared.leading() == 2 })
		pool := d.open(t, 0, s.DSN())
		check(t, pool.PingContext(soon(t)))
		empty := s.fill(t, 0)
		defer empty()
		for _, c := range []*elector.Elector{own.Elector, shared.all[0], shared.all[1]} {
			term := termOf(t, c)
			expect(t, term.Verify(soon(t)))
			wraps(t, term.InTx(soon(t), pool, nil, func(*sql.Tx) error { return nil }), elector.ErrRolledBack)
		}
		began, beats := time.Now(), 0
		wait(t, own, func(h hooks.Heartbeat) bool {
			if h.At.After(began) {
				beats++
			}
			return beats == 12
		})
		for _, rec := range []*hookstest.Recorder{own.rec, shared.rec} {
			if n := len(rec.Demoted()); n > 0 {
				t.Errorf("demoted: %v", rec.Demoted()[0].Err)
			}
		}
	})
}

// With more elections than locks, as many as fit are led and stay led.
func TestAFullLockTableLimitsTheNumberOfLedElections(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := cramped(t)
		elections := s.elections(t, 300)
		empty := s.fill(t, 100)
		g := s.share(t, d.open(t, 0, s.DSN())).join(t, elections[:20]).run(t, nil)
		eventually(t, "those that fit are led", func() bool { return g.leading() == 20 })
		var tokens []int64
		for _, e := range g.all {
			term := termOf(t, e)
			tokens = append(tokens, term.Token())
		}
		first := g.all
		g.all = nil
		g.join(t, elections[20:])
		stop := g.stop
		g.run(t, nil)
		defer stop()
		saysFull(t, next[hooks.Failure](t, g.rec.Cursor(), nil))
		eventually(t, "most of what fits is led", func() bool { return g.leading() >= 40 })
		for i, e := range first {
			if term, leading := e.Term(); !leading || term.Token() != tokens[i] {
				t.Errorf("election %d lost its term", i)
			}
		}
		for _, f := range g.rec.Failures() {
			saysFull(t, f)
		}
		if n := len(g.rec.Demoted()); n > 0 {
			t.Errorf("%d terms have ended, the first by %v", n, g.rec.Demoted()[0].Err)
		}
		empty()
		eventually(t, "what fits now is led", func() bool { return g.leading() >= 100 })
	})
}

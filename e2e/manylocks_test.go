//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/inbox"
	"github.com/pgelector/pgelector/internal/seat"
	"github.com/pgelector/pgelector/roster"
)

// A lockStatement is one that reads pg_locks, with its parameters in order.
type lockStatement struct {
	name, text string
	args       []string
}

// lockStatements are all in queries/ that read pg_locks.
func lockStatements(t *testing.T) (all []lockStatement) {
	t.Helper()
	arg := regexp.MustCompile(`sqlc\.arg\((\w+)\)`)
	for _, pattern := range []string{"../queries/*.sql", "../queries/roster/*.sql"} {
		files, err := filepath.Glob(pattern)
		check(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			check(t, err)
			for _, block := range strings.Split(string(text), "-- name: ")[1:] {
				name, body, _ := strings.Cut(block, " ")
				_, body, _ = strings.Cut(body, "\n")
				if body = regexp.MustCompile(`(?m)^--.*\n`).ReplaceAllString(body, ""); !strings.Contains(body, "pg_locks") {
					continue
				}
				one := lockStatement{name: name}
				one.text = arg.ReplaceAllStringFunc(body, func(match string) string {
					name := arg.FindStringSubmatch(match)[1]
					if !slices.Contains(one.args, name) {
						one.args = append(one.args, name)
					}
					return fmt.Sprint("$", 1+slices.Index(one.args, name))
				})
				all = append(all, one)
			}
		}
	}
	if len(all) < 15 {
		t.Fatalf("%d statements read pg_locks", len(all))
	}
	return all
}

// No statement takes long because others hold many locks, whatever the planner expects.
func TestNoStatementIsSlowBesideTheLocksOfStrangers(t *testing.T) {
	inSessionScope(t, "it asks the server itself")
	s := on(t, own(t, pgcluster.WithSetting("max_locks_per_transaction", "400"), pgcluster.WithSetting("max_prepared_transactions", "5")))
	pool := pgx.open(t, 0, s.DSN())
	r, err := roster.New(pool, roster.WithSchema("chosen"))
	check(t, err)
	check(t, r.Migrate(t.Context()))
	_, err = pool.Exec(`INSERT INTO chosen.roster_candidates (key, candidate_id, election, version, metadata, since, published_at, expires_at)
		SELECT i, i % 50, i, '', '{}', now(), now(), now() FROM generate_series(1, 500) AS i`)
	check(t, err)
	_, err = pool.Exec(`INSERT INTO chosen.roster_terms (key, token, election, candidate_id, elected_at) SELECT i / 20, i, i / 20, i, now() FROM generate_series(1, 5000) AS i`)
	check(t, err)
	conn, err := pool.Conn(t.Context())
	check(t, err)
	defer conn.Close()
	pid := one[int](t, conn, "SELECT pg_backend_pid()")
	seat := seat.Key(1)
	for _, locks := range []string{
		fmt.Sprintf("SELECT pg_advisory_lock_shared(%d, %d), count(pg_advisory_lock_shared(1, i)) FROM generate_series(1, 6000) AS i", inbox.Bell, pid), // requests
		fmt.Sprintf("SELECT count(pg_advisory_lock_shared(%d, i)) FROM generate_series(1, 3000) AS i", inbox.Bell),
		"SELECT count(pg_advisory_lock_shared(318473925, i)), count(pg_advisory_lock_shared(521961639, i)) FROM generate_series(1, 2000) AS i", // leases
		"SELECT count(pg_advisory_lock(i)), count(pg_advisory_lock_shared(1, i)) FROM generate_series(1, 5000) AS i",                           // elections
		fmt.Sprintf("SELECT count(pg_advisory_lock_shared(%d, i)) FROM generate_series(1, 2000) AS i", seat>>32),
	} {
		keeps(t, pgx.open(t, 0, s.Cluster.DSN()), locks)
	}
	if n := one[int](t, conn, "SELECT count(*) FROM pg_locks"); n < 20_000 {
		t.Fatalf("there are %d locks", n)
	}
	keys := make([]int64, 5000)
	for i := range keys {
		keys[i] = int64(i + 1)
	}
	args := map[string]any{"key": int64(1), "pid": pid, "guard_high": 7, "guard_low": 7, "high": 7, "low": 8, "seat": seat, "pair": seat, "seat_high": 7, "seat_low": 9,
		"candidate": "nobody", "sit": false, "look": true, "inside": false, "release": false, "settings": "[]", "transaction": "", "lease_millis": int64(1e9),
		"keys": db.Keys(keys...), "at_most": int64(5000), "keep": int64(1 << 40), "name": int64(1), "request_high": 7, "request_low": 11, "answer": int64(12), "offer_high": 7, "offer_low": 10, "offer": int64(10), "age_seconds": int64(1 << 31)}
	args["started"] = one[string](t, conn, "SELECT extract(epoch FROM pg_postmaster_start_time())::text")
	statements := lockStatements(t)
	for _, plans := range []string{"SET plan_cache_mode = force_generic_plan", "SET enable_hashjoin = off; SET enable_mergejoin = off"} { // then each join is a nested loop
		_, err = conn.ExecContext(t.Context(), plans)
		check(t, err)
		for _, statement := range statements {
			var values []any
			for _, name := range statement.args {
				value, known := args[name]
				if !known {
					t.Fatalf("%s has a parameter %s", statement.name, name)
				}
				values = append(values, value)
			}
			limit, fastest, rows := 100*time.Millisecond, time.Hour, 0
			for try := 0; try < 5 && fastest > limit; try++ {
				if try > 0 { // on a busy machine
					limit = max(limit, 8*took(func() { count(t, conn, "SELECT * FROM pg_locks") }))
				}
				fastest = min(fastest, took(func() { rows = count(t, conn, statement.text, values...) }))
				_, err := conn.ExecContext(t.Context(), "SELECT pg_advisory_unlock_all()")
				check(t, err)
			}
			t.Logf("%-14s %v, %d rows", statement.name, fastest, rows)
			if fastest > limit {
				t.Errorf("after %s, %s takes %v at least, and may take %v", plans, statement.name, fastest, limit)
			}
		}
	}
}

func took(call func()) time.Duration {
	began := time.Now()
	call()
	return time.Since(began)
}

// count executes a statement and returns the number of its rows.
func count(t *testing.T, q querier, statement string, args ...any) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	rows, err := q.QueryContext(ctx, statement, args...)
	check(t, err)
	defer rows.Close()
	for rows.Next() {
		n++
	}
	check(t, rows.Err())
	return n
}

// Whatever shares thousands of locks, and even if it also rings the leader's bell, costs no term. An
// ordinary request beside it is heard, also if a prepared transaction rings the bell.
func TestARequestBesideThousandsOfLocksEndsNoTermButByItself(t *testing.T) {
	t.Parallel()
	s := on(t, own(t, pgcluster.WithSetting("max_locks_per_transaction", "400"), pgcluster.WithSetting("max_prepared_transactions", "5")))
	keeps(t, pgx.open(t, 0, s.Cluster.DSN()), "SELECT count(pg_advisory_lock_shared(1, i)) FROM generate_series(1, 6000) AS i")
	overEach(t, func(t *testing.T, d drivers) {
		pool := d.open(t, 0, s.DSN())
		deaf := s.stand(t, d.open(t, 0, s.DSN()), s.election(t), elector.WithRequests(false)).run(t, nil)
		leader := s.stand(t, d.open(t, 0, s.DSN()), s.election(t)).run(t, nil)
		inside := s.stand(t, d.open(t, 0, s.DSN()), s.election(t), elector.WithRequests(false), elector.WithScope(elector.TransactionScope)).run(t, nil)
		for i, c := range []*candidate{deaf, leader, inside} {
			c.elected(t)
			holder, err := c.Leader(soon(t))
			check(t, err)
			ring := fmt.Sprintf("SELECT pg_advisory_xact_lock_shared(%d, %d), count(pg_advisory_xact_lock_shared(i / 100, i)) FROM generate_series(0, $1::int) AS i", inbox.Bell, holder.PID)
			tx, err := pool.Begin()
			check(t, err)
			defer func() { expect(t, tx.Rollback()) }()
			_, err = tx.Exec(ring, 5000)
			check(t, err)
			if i == 1 {
				prepared := unique("prepared")
				_, err = s.admin.Exec("BEGIN; " + strings.Replace(ring, "$1::int", "10", 1) + "; PREPARE TRANSACTION '" + prepared + "'")
				check(t, err)
				defer func() {
					_, err := s.admin.Exec("ROLLBACK PREPARED '" + prepared + "'")
					expect(t, err)
				}()
			}
		}
		refused := deaf.after()
		asked, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = elector.RequestResign(asked, pool, deaf.Election()) }()
		next(t, refused, func(f hooks.Failure) bool { return f.Op == hooks.OpRequest })
		cancel()
		_, err := elector.RequestResign(soon(t), pool, leader.Election())
		check(t, err)
		if d := wait[hooks.Demoted](t, leader, nil); d.Reason != hooks.Requested {
			t.Errorf("demoted (%s): %v", d.Reason, d.Err)
		}
		for _, c := range []*candidate{deaf, inside} {
			if d := c.rec.Demoted(); len(d) > 0 {
				t.Errorf("demoted: %+v", d)
			}
		}
	})
}

// Somebody who shares an election's lock, or has it in a prepared transaction, keeps everybody from
// being elected. Whoever asks who leads is told.
func TestWhoeverBlocksAnElectionIsNamed(t *testing.T) {
	t.Parallel()
	s := on(t, own(t, pgcluster.WithSetting("max_prepared_transactions", "5")))
	overEach(t, func(t *testing.T, d drivers) {
		for name, block := range map[string]struct {
			hold string
			says []string
		}{
			"shared":              {"SELECT pg_advisory_lock_shared($1)", []string{"ShareLock", "pg_terminate_backend"}},
			"prepared":            {"SELECT pg_advisory_xact_lock($1)", []string{"ExclusiveLock", `role "postgres"`, "ROLLBACK PREPARED 'it''s "}},
			"shared and prepared": {"SELECT pg_advisory_xact_lock_shared($1)", []string{"ShareLock", `role "postgres"`, "ROLLBACK PREPARED 'it''s "}},
		} {
			t.Run(name, func(t *testing.T) {
				election := s.election(t)
				c := s.stand(t, d.open(t, 0, s.DSN()), election)
				conn, err := d.open(t, 0, s.Cluster.DSN()).Conn(t.Context())
				check(t, err)
				defer conn.Close()
				end := "SELECT pg_advisory_unlock_all()"
				if name != "shared" {
					gid := unique("it''s prepared")
					check(t, execAll(conn, "BEGIN", strings.Replace(block.hold, "$1", fmt.Sprint(c.Key()), 1), "PREPARE TRANSACTION '"+gid+"'"))
					end = "ROLLBACK PREPARED '" + gid + "'"
				} else {
					check(t, execAll(conn, strings.Replace(block.hold, "$1", fmt.Sprint(c.Key()), 1)))
				}
				defer func() { check(t, execAll(conn, end)) }()
				_, elected, err := c.TryCampaign(t.Context())
				if elected || err != nil {
					t.Fatalf("elected %v, %v", elected, err)
				}
				_, byLeader := c.Leader(soon(t))
				_, byRequest := elector.RequestResign(soon(t), c.pool, election)
				for _, err := range []error{byLeader, byRequest} {
					wraps(t, err, elector.ErrNoLeader)
					for _, says := range block.says {
						if !strings.Contains(fmt.Sprint(err), says) {
							t.Errorf("%v: it does not say %q", err, says)
						}
					}
				}
			})
		}
	})
}

func execAll(conn *sql.Conn, statements ...string) error {
	for _, statement := range statements {
		if _, err := conn.ExecContext(context.Background(), statement); err != nil {
			return err
		}
	}
	return nil
}

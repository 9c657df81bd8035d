//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/docscheck"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// town is a database with an election, the role of its candidates, and a stranger: a role
// with the privileges of PUBLIC only.
type town struct {
	*server
	database, elections, stranger string
	admin                         *sql.DB // in the database
}

func invaded(t *testing.T, s *server) town {
	t.Helper()
	w := town{server: s, elections: s.role(t, nil), stranger: s.role(t, nil)}
	dsn := s.database(t)
	w.database = dsn[strings.LastIndex(dsn, "/")+1 : strings.Index(dsn, "?")]
	w.admin = pgx.open(t, 0, dsn)
	return w
}

func (w town) dsn(role string, opts ...pgcluster.DSNOption) string {
	return w.DSN(append(opts, pgcluster.ForDatabase(w.database), pgcluster.ForRole(role))...)
}

// invader opens a pool as the stranger.
func (w town) invader(t *testing.T) *sql.DB { return pgx.open(t, 0, w.dsn(w.stranger)) }

// candidate runs a candidate of the election "town".
func (w town) candidate(t *testing.T, d drivers, opts ...elector.Option) *candidate {
	t.Helper()
	return w.stand(t, d.open(t, 0, w.dsn(w.elections)), "town", opts...).run(t, nil)
}

// defend runs the statements in docs/threats.md under the comment.
func (w town) defend(t *testing.T, comment string) {
	t.Helper()
	text, err := os.ReadFile("../docs/threats.md")
	check(t, err)
	blocks, err := docscheck.Blocks(string(text))
	check(t, err)
	i := slices.IndexFunc(blocks, func(b docscheck.Block) bool { return strings.HasPrefix(b.Code, "-- "+comment+"\n") })
	if i < 0 {
		t.Fatalf("docs/threats.md has no statements under %q", comment)
	}
	code := strings.NewReplacer("elections", `"`+w.elections+`"`, "stranger", `"`+w.stranger+`"`, "DATABASE app", `DATABASE "`+w.database+`"`).Replace(blocks[i].Code)
	_, err = w.admin.Exec(code)
	check(t, err)
}

// denied fails the test unless the server refuses the statement for lack of privileges.
func denied(t *testing.T, pool *sql.DB, statement string, args ...any) {
	t.Helper()
	_, err := pool.ExecContext(soon(t), statement, args...)
	if state := stateOf(err); state != "42501" {
		t.Errorf("%s: got %v, want SQLSTATE 42501", statement, err)
	}
}

// unelected checks that three attempts of the candidate fail.
func unelected(t *testing.T, c *candidate) {
	t.Helper()
	attempts := c.after()
	for range 3 {
		next(t, attempts, func(e hooks.Campaign) bool { return e.Outcome != hooks.Granted })
	}
	if n := len(c.rec.Elected()); n > 0 {
		t.Errorf("it was elected %d times", n)
	}
}

// keeps takes a session-level lock on a new connection, until end is called or the test ends.
func keeps(t *testing.T, pool *sql.DB, statement string, args ...any) (end func()) {
	t.Helper()
	conn, err := pool.Conn(soon(t))
	check(t, err)
	_, err = conn.ExecContext(soon(t), statement, args...)
	check(t, err)
	ended := false
	end = func() {
		if !ended {
			_, err := conn.ExecContext(context.Background(), "SELECT pg_advisory_unlock_all()")
			expect(t, err)
			expect(t, conn.Close())
		}
		ended = true
	}
	t.Cleanup(end)
	return end
}

// townKey is the key of the election "town".
var townKey = elector.KeyFromName("town")

func TestAnotherRoleCanTakeTheLockAndLeaderNamesIt(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		w := invaded(t, onShared(t))
		end := keeps(t, w.invader(t), "SELECT pg_advisory_lock($1)", townKey)
		c := w.candidate(t, d)
		unelected(t, c)
		leader, err := c.Leader(soon(t)) // it tells nothing of itself
		if err != nil || leader.User != w.stranger || leader.PID == 0 || leader.Lease != 0 || leader.Scope != elector.Auto || !leader.ElectedAt.IsZero() {
			t.Errorf("the holder is %+v, %v", leader, err)
		}
		end()
		c.elected(t)
	})
}

// A role that can read pg_locks sees the key and can take its lock.
func TestASecretKeyIsNoDefence(t *testing.T) {
	t.Parallel()
	w := invaded(t, onShared(t))
	c := w.candidate(t, pgx, elector.WithKey(4711<<40))
	c.elected(t)
	seen := one[int64](t, w.invader(t), `SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
		WHERE locktype = 'advisory' AND objsubid = 1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	if seen != c.Key() {
		t.Errorf("the stranger sees the key %d, want %d", seen, c.Key())
	}
}

func TestAnotherDatabaseCannotTakeTheLock(t *testing.T) {
	t.Parallel()
	w := invaded(t, onShared(t))
	keeps(t, pgx.open(t, 0, w.DSN(pgcluster.ForRole(w.stranger))), "SELECT pg_advisory_lock($1)", townKey)
	w.candidate(t, pgx).elected(t)
}

func TestARoleThatMayNotConnectCannotTakeTheLock(t *testing.T) {
	inSessionScope(t, "the pooler's connections remain")
	t.Parallel()
	w := invaded(t, onShared(t))
	early := w.invader(t)
	end := keeps(t, early, "SELECT pg_advisory_lock($1)", townKey)
	w.defend(t, "connect")
	denied(t, w.invader(t), "SELECT 1")
	c := w.candidate(t, pgx)
	unelected(t, c) // the stranger is still connected
	end()
	c.elected(t)
}

func TestARoleThatMayNotCallTheLockFunctionsCannotTakeTheLock(t *testing.T) {
	t.Parallel()
	w := invaded(t, onShared(t))
	w.defend(t, "locks")
	for _, call := range []string{"pg_advisory_lock($1)", "pg_try_advisory_lock($1)", "pg_advisory_xact_lock($1)", "pg_try_advisory_xact_lock($1)",
		"pg_advisory_lock_shared($1)", "pg_try_advisory_lock_shared($1)", "pg_advisory_xact_lock_shared($1)", "pg_try_advisory_xact_lock_shared($1)"} {
		denied(t, w.invader(t), "SELECT "+call, townKey)
		denied(t, w.invader(t), "SELECT "+strings.Replace(call, "$1", "$1, 0", 1), 1)
	}
}

// The candidates' role may connect, lock and look, and nothing else.
func TestElectionsWorkWhenOnlyTheirRoleMayLock(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		w := invaded(t, onShared(t))
		for _, comment := range []string{"connect", "locks", "tables", "create", "sight"} {
			w.defend(t, comment)
		}
		var all []*candidate
		for _, opts := range [][]elector.Option{nil, {elector.WithTakeover(elector.Wait)}} {
			all = append(all, w.candidate(t, d, opts...))
		}
		for token := int64(0); len(all) > 0; {
			led := firstLeader(t, all, token)
			token = led.Token
			i := slices.IndexFunc(all, func(c *candidate) bool { return c.CandidateID() == led.CandidateID })
			c := all[i]
			term, leading := c.Term()
			if !leading {
				t.Fatalf("%s has lost its term", led.CandidateID)
			}
			expect(t, term.Verify(soon(t)))
			expect(t, term.InTx(soon(t), c.pool, nil, func(*sql.Tx) error { return nil }))
			_, err := c.Candidates(soon(t))
			expect(t, err)
			if leader, err := c.Leader(soon(t)); err != nil || leader.CandidateID != led.CandidateID || leader.User != w.elections || leader.SessionAt.IsZero() {
				t.Errorf("the leader is %+v, %v", leader, err)
			}
			c.end(t)
			for _, f := range c.rec.Failures() {
				t.Errorf("%s: %v", f.Op, f.Err)
			}
			all = slices.Delete(all, i, i+1)
		}
	})
}

// The key of the guard lock of fenced transactions is derived from the election's key.
func TestAnotherRoleCanBlockFencedTransactionsUnlessItMayNotLock(t *testing.T) {
	t.Parallel()
	w := invaded(t, onShared(t))
	high, low := int32(townKey>>32), int32(townKey)
	end := keeps(t, w.invader(t), "SELECT pg_advisory_lock_shared($1, $2)", high, low)
	c := w.candidate(t, pgx, briefly)
	wait(t, c, func(f hooks.Failure) bool { return f.Op == hooks.OpCampaign })
	end()
	c.elected(t)
	end = keeps(t, w.invader(t), "SELECT pg_advisory_lock($1, $2)", high, low)
	term := termOf(t, c)
	nothing := func(*sql.Tx) error { return nil }
	if err := term.InTx(soon(t), c.pool, nil, nothing); !elector.Retryable(err) {
		t.Errorf("a fenced transaction ended with %v", err)
	}
	end()
	expect(t, term.InTx(soon(t), c.pool, nil, nothing))
	w.defend(t, "locks")
	denied(t, w.invader(t), "SELECT pg_advisory_lock_shared($1, $2)", high, low)
}

// stateOf returns the SQLSTATE of a driver's error, "" if it has none.
func stateOf(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}

// PostgreSQL 14 lets everybody create objects in the schema public. What they are is without effect:
// TestImpostorsInTheSearchPathAreNotCalled.
func TestAStrangerCreatesNothingInTheSchemaPublicUnlessItMay(t *testing.T) {
	t.Parallel()
	w := invaded(t, onShared(t))
	_, err := w.admin.Exec("GRANT CREATE ON SCHEMA public TO PUBLIC")
	check(t, err)
	const create = "CREATE OR REPLACE FUNCTION public.one() RETURNS integer LANGUAGE sql AS 'SELECT 1'"
	_, err = w.invader(t).Exec(create)
	check(t, err)
	w.defend(t, "create")
	denied(t, w.invader(t), create)
}

// hostile are defaults of a role that could end a session or change its statements'
// meaning.
var hostile = map[string]map[string]string{
	"impatient": {"statement_timeout": "200ms", "lock_timeout": "1ms", "idle_session_timeout": "300ms",
		"idle_in_transaction_session_timeout": "200ms"},
	"deferrable": {"default_transaction_isolation": "serializable", "default_transaction_read_only": "on",
		"default_transaction_deferrable": "on"},
	"hasty": {"synchronous_commit": "off"},
	"foreign": {"datestyle": "German, DMY", "intervalstyle": "sql_standard", "timezone": "Asia/Kathmandu", "bytea_output": "escape",
		"standard_conforming_strings": "off", "client_min_messages": "debug1", "lc_messages": "C", "extra_float_digits": "-15"},
	"planner": {"plan_cache_mode": "force_generic_plan", "enable_nestloop": "off", "enable_hashjoin": "off", "jit_above_cost": "0"},
}

// The deputy waits in the server. A read-only deferrable transaction waits for the end of other serializable
// transactions, which may take longer than a lease.
func TestTheDefaultsOfARoleEndNoTerm(t *testing.T) {
	t.Parallel()
	for name, defaults := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				deferrable := defaults["default_transaction_deferrable"] == "on"
				s := onShared(t)
				if deferrable {
					s = on(t, own(t)) // on the shared one it would wait for those of other tests
				}
				dsn := s.DSN(pgcluster.ForRole(s.role(t, defaults)))
				election := s.election(t)
				leader := s.stand(t, d.open(t, 0, dsn), election).run(t, nil)
				leader.elected(t)
				deputy := s.stand(t, d.open(t, 1, dsn), election, waiting).run(t, nil)
				attempts := deputy.after()
				for range 5 { // the first may wait for transactions of others
					next(t, attempts, func(e hooks.Campaign) bool { return e.Outcome == hooks.Busy })
				}
				tx, err := s.admin.Begin()
				check(t, err)
				defer tx.Rollback()
				if deferrable {
					_, err = tx.Exec("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; CREATE TEMPORARY TABLE written (i int)")
					check(t, err)
				}
				began := time.Now()
				for _, until := range []time.Duration{while, 2 * while} {
					wait(t, leader, func(h hooks.Heartbeat) bool { return h.At.Sub(began) > until })
				}
				leader.survives(t, while)
				check(t, tx.Rollback())
				leader.end(t)
				deputy.survives(t, while)
			})
		})
	}
}

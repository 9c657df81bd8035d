//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/unruly"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// inTransactions are the ways to ask that work through a pooler that does not track prepared
// statements.
var inTransactions = []string{"pq", "pq binary", "pgx simple", "pgx exec", "pgx describe", "pgx cache describe"}

// overTransactions runs a test for each of the ways, through a pooler with so many connections.
func overTransactions(t *testing.T, ways []string, size int, test func(t *testing.T, s *server, open func() *sql.DB, b *pgcluster.Bouncer)) {
	t.Helper()
	for _, name := range ways {
		d := pgx
		if name[:2] == "pq" {
			d = pq
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := direct(t)
			b := bounced(t, s.Cluster, pgcluster.Transaction, pgcluster.WithPoolSize(size))
			test(t, s, func() *sql.DB { return d.open(t, 0, b.DSN(waysToAsk[name]...)) }, b)
		})
	}
}

// through makes a candidate on a pool that leads through a pooler.
func (s *server) through(t *testing.T, pool *sql.DB, election string, opts ...elector.Option) *candidate {
	t.Helper()
	c := s.stand(t, pool, election, opts...)
	c.moved = true
	return c
}

// holdsNothingBack checks that the backend of a leader or deputy has no snapshot and no
// transaction id between its statements, and no lock but advisory ones. It has a snapshot for
// the round trip between two statements of a heartbeat, which takes long on a busy machine.
func (s *server) holdsNothingBack(t *testing.T, id string, samples int) {
	t.Helper()
	held := 0
	for range samples {
		held += one[int](t, s.admin, `SELECT count(*)::int FROM pg_stat_activity
			WHERE application_name = $1 AND state = 'idle in transaction' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
				AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock')`, id)
		time.Sleep(7 * time.Millisecond)
	}
	if held > samples/2 {
		t.Errorf("%s had a snapshot or a transaction id in %d of %d samples", id, held, samples)
	}
	if others := list[string](t, s.admin, `SELECT DISTINCT l.locktype FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
		WHERE a.application_name = $1 AND a.state = 'idle in transaction' AND l.locktype NOT IN ('advisory', 'virtualxid')
			AND l.pid IN (SELECT h.pid FROM pg_locks AS h WHERE h.locktype = 'advisory' AND h.mode = 'ExclusiveLock')`, id); len(others) > 0 {
		t.Errorf("%s holds other locks: %q", id, others)
	}
}

func TestAnElectionThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	overTransactions(t, inTransactions, 20, func(t *testing.T, s *server, open func() *sql.DB, _ *pgcluster.Bouncer) {
		election := s.election(t)
		pool := open()
		leader := s.through(t, pool, election).run(t, nil)
		if e := leader.elected(t); !e.InTransaction {
			t.Error("OnElected does not say that the lock is held inside a transaction")
		}
		follower := s.through(t, open(), election).run(t, nil)
		follower.follows(t)
		term := termOf(t, leader)
		for range 3 {
			expect(t, term.Verify(soon(t)))
			expect(t, term.InTx(soon(t), pool, nil, func(tx *sql.Tx) error {
				_, err := tx.Exec("SELECT 1")
				return err
			}))
		}
		if who, err := follower.Leader(soon(t)); err != nil || who.CandidateID != leader.CandidateID() {
			t.Errorf("the leader is %+v, %v", who, err)
		}
		s.holdsNothingBack(t, leader.CandidateID(), 100)
		old := leader.rec.Elected()[0]
		who, err := elector.RequestTransfer(soon(t), pool, election, follower.CandidateID())
		if err != nil || who.CandidateID != follower.CandidateID() {
			t.Errorf("after the request %+v leads, %v", who, err)
		}
		fresh := follower.elected(t)
		if fresh.Token <= old.Token {
			t.Errorf("token %d does not rise above %d", fresh.Token, old.Token)
		}
		cursor := leader.after()
		follower.end(t)
		if last := nextElected(t, cursor); last.Token <= fresh.Token {
			t.Errorf("token %d does not rise above %d", last.Token, fresh.Token)
		}
	})
}

// Candidates in both scopes exclude each other, and transfer to each other.
func TestATransferBetweenTheScopes(t *testing.T) {
	t.Parallel()
	overTransactions(t, []string{"pq", "pgx exec"}, 20, func(t *testing.T, s *server, open func() *sql.DB, _ *pgcluster.Bouncer) {
		election := s.election(t)
		inside := s.through(t, open(), election).run(t, nil)
		inside.elected(t)
		direct := s.stand(t, pgx.open(t, 0, s.DSN()), election).run(t, nil)
		direct.follows(t)
		leader, next := inside, direct
		for range 12 {
			cursor := next.after()
			expect(t, termOf(t, leader).TransferTo(soon(t), next.CandidateID()))
			nextElected(t, cursor)
			leader, next = next, leader
		}
		s.holdsNothingBack(t, inside.CandidateID(), 30)
	})
}

func TestALeaderInATransactionHoldsNothingBack(t *testing.T) {
	t.Parallel()
	s := direct(t)
	dsn := s.database(t)
	c := s.through(t, pgx.open(t, 0, dsn), s.election(t), elector.WithScope(elector.TransactionScope), elector.WithHeartbeatInterval(150*time.Millisecond)).run(t, nil)
	c.elected(t)
	pool := pgx.open(t, 0, dsn)
	for _, statement := range []string{
		"CREATE TABLE t AS SELECT generate_series(1, 1000) AS n", "DELETE FROM t", "VACUUM t",
		"CREATE INDEX CONCURRENTLY i ON t (n)", "REINDEX INDEX CONCURRENTLY i", "VACUUM FULL t", "DROP INDEX CONCURRENTLY i",
	} {
		_, err := pool.ExecContext(soon(t), statement)
		check(t, err)
	}
	eventually(t, "VACUUM leaves nothing, once writes of other tests that were older have ended", func() bool {
		_, err := pool.ExecContext(soon(t), "VACUUM FULL t")
		check(t, err)
		return one[int](t, pool, "SELECT pg_relation_size('t')::int") == 0
	})
	for range 300 { // heartbeats, and other questions between them
		expect(t, termOf(t, c).Verify(soon(t)))
		time.Sleep(10 * time.Millisecond)
	}
	s.holdsNothingBack(t, c.CandidateID(), 100)
	if n := len(c.rec.Elected()); n != 1 {
		t.Errorf("%d terms", n)
	}
}

// An election takes a snapshot, for an instant. CREATE INDEX CONCURRENTLY that looks just then
// waits for the end of the leader's transaction.
func TestALeaderThatCreateIndexConcurrentlyWaitsForLetsItGoOn(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := direct(t)
		dsn := s.database(t)
		pool, counter := d.openCounted(t, 0, dsn)
		const snapshot = 7_000_000_001 // a lock that keeps the snapshot of who waits for it
		counter.before.Store(db.TryTransactionLock, fmt.Sprintf("SELECT pg_advisory_xact_lock_shared(%d)", snapshot))
		c := s.through(t, pool, s.election(t), elector.WithScope(elector.TransactionScope), elector.WithRequests(false)).run(t, nil)
		other := d.open(t, 0, dsn)
		release := keeps(t, other, "SELECT pg_advisory_lock($1)", int64(snapshot))
		database := one[string](t, other, "SELECT current_database()")
		waits := func(lock string) bool {
			return one[bool](t, s.admin, "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND locktype = $1 AND datname = $2)", lock, database)
		}
		eventually(t, "the candidate's transaction has a snapshot", func() bool { return waits("advisory") })
		created := make(chan error, 1)
		go func() {
			_, err := other.Exec("CREATE TABLE t AS SELECT generate_series(1, 10) AS n")
			if err == nil {
				_, err = other.Exec("CREATE INDEX CONCURRENTLY i ON t (n)")
			}
			created <- err
		}()
		eventually(t, "CREATE INDEX CONCURRENTLY waits for it", func() bool { return waits("virtualxid") })
		release()
		first := c.elected(t)
		select {
		case err := <-created:
			check(t, err)
		case <-time.After(patience):
			t.Fatal("CREATE INDEX CONCURRENTLY still waits")
		}
		ended := wait(t, c, func(e hooks.Demoted) bool { return e.Token == first.Token })
		if ended.Reason != hooks.Requested || !strings.Contains(ended.Err.Error(), "CREATE INDEX CONCURRENTLY") {
			t.Errorf("the term ended: %+v", ended)
		}
		wait(t, c, func(e hooks.Elected) bool { return e.Token > first.Token })
	})
}

// A pooler answers for a server that is down, with errors that look like its own refusals.
func TestAServerThatIsDownBehindItsPoolerIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, scope := range map[string]elector.Scope{"auto": elector.Auto, "transaction": elector.TransactionScope} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				cluster := own(t)
				s := &server{Cluster: cluster, admin: pgx.open(t, 0, cluster.DSN())}
				b := bounced(t, cluster, pgcluster.Transaction, pgcluster.WithPoolSize(20), pgcluster.WithBouncerSetting("server_login_retry", "1"))
				election := s.election(t)
				check(t, d.open(t, 0, b.DSN()).PingContext(soon(t))) // so that it admits clients while the server is down
				check(t, cluster.Shutdown(soon(t), pgcluster.Fast))
				c := s.through(t, d.open(t, 0, b.DSN(waysToAsk["pgx exec"]...)), election, elector.WithScope(scope), elector.WithLease(lease/3)).run(t, nil)
				for cursor, n := c.rec.Cursor(), 0; n < 2; n++ {
					if f := next(t, cursor, func(f hooks.Failure) bool { return f.Op == hooks.OpCampaign }); f.Permanent {
						t.Fatalf("refused: %v", f.Err)
					}
				}
				check(t, cluster.Resume(soon(t)))
				c.elected(t)
			})
		})
	}
}

// PAUSE waits for the leader's transaction, and has all other clients wait.
func TestALeaderOutlastsAPauseOfItsPooler(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := direct(t)
		b := bounced(t, s.Cluster, pgcluster.Transaction, pgcluster.WithPoolSize(20))
		election := s.election(t)
		stand := func(opts ...elector.Option) *candidate {
			return s.through(t, d.open(t, 0, b.DSN(waysToAsk["pgx exec"]...)), election, opts...).run(t, nil)
		}
		leader := stand()
		leader.elected(t)
		deputy := stand(elector.WithTakeover(elector.Deputy))
		wait(t, deputy, func(e hooks.Campaign) bool { return e.Deputy })
		eventually(t, "leader and deputy hold one connection of the pooler each", func() bool {
			return one[string](t, s.admin, `SELECT concat(count(*) FILTER (WHERE application_name = $1), ' ', count(*) FILTER (WHERE application_name = $2))
				FROM pg_stat_activity`, leader.CandidateID(), deputy.CandidateID()) == "1 1"
		})
		paused := make(chan error, 1)
		go func() { paused <- b.Console(context.Background(), "PAUSE") }()
		newcomer := stand()
		for name, c := range map[string]*candidate{"the deputy": deputy, "the newcomer": newcomer} {
			if f := wait(t, c, func(f hooks.Failure) bool { return f.Op == hooks.OpCampaign }); f.Permanent {
				t.Errorf("%s was refused: %v", name, f.Err)
			}
		}
		expect(t, termOf(t, leader).Verify(soon(t)))
		leader.survives(t, 3*while)
		select {
		case err := <-paused:
			t.Errorf("PAUSE did not wait for the leader: %v", err)
		default:
		}
		leader.end(t)
		check(t, <-paused)
		if len(s.holders(t, leader.Key())) > 0 || len(deputy.rec.Elected())+len(newcomer.rec.Elected()) > 0 {
			t.Error("somebody was elected through a pooler that has paused")
		}
		check(t, b.Console(soon(t), "RESUME"))
		eventually(t, "somebody is elected", func() bool { return len(deputy.rec.Elected())+len(newcomer.rec.Elected()) > 0 })
	})
}

// Clients in pgx's default mode are in the way of each other, and not in that of others.
func TestStrangersInTheDefaultModeOfPgxCostNoTerm(t *testing.T) {
	t.Parallel()
	s := direct(t)
	b := bounced(t, s.Cluster, pgcluster.Transaction, pgcluster.WithPoolSize(15))
	var strangers sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	defer strangers.Wait()
	defer stop()
	for range 4 {
		pool := pgx.open(t, 0, b.DSN())
		strangers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = pool.ExecContext(ctx, fmt.Sprint("SELECT $1::int + ", n%3), n)
			}
		})
	}
	var all []*candidate
	for _, name := range []string{"pq", "pgx exec", "pgx simple"} {
		d := pgx
		if name == "pq" {
			d = pq
		}
		all = append(all, s.through(t, d.open(t, 0, b.DSN(waysToAsk[name]...)), s.election(t)).run(t, nil))
	}
	named := map[*candidate]bool{}
	election := s.election(t)
	for _, scope := range []elector.Scope{elector.Auto, elector.TransactionScope} {
		for range 2 {
			c := s.through(t, pgx.open(t, 0, b.DSN()), election, elector.WithScope(scope)).run(t, nil)
			named[c] = true
			eventually(t, "it is refused, or elected", func() bool {
				select {
				case <-c.done:
					return true
				default:
					return len(c.rec.Elected()) > 0
				}
			})
			all = append(all, c)
		}
	}
	for _, c := range all {
		for _, f := range c.rec.Failures() {
			if !named[c] || !strings.Contains(f.Err.Error(), "default_query_exec_mode") {
				t.Errorf("%v: %v", named[c], f.Err)
			}
		}
		if len(c.rec.Elected()) > 0 || !named[c] {
			c.survives(t, 2*while)
		} else if wraps(t, c.err, elector.ErrSessionPooled); !strings.Contains(c.err.Error(), "set default_query_exec_mode=exec") || strings.Contains(c.err.Error(), "connect to the server itself") {
			t.Errorf("the error does not name the setting alone: %v", c.err)
		}
	}
}

// The cause comes first, then one thing to do, then a link.
func TestAnErrorBehindAPoolerIsShortAndHasOneAdvice(t *testing.T) {
	t.Parallel()
	s := direct(t)
	for _, mode := range []pgcluster.PoolMode{pgcluster.Transaction, pgcluster.Statement} {
		b := bounced(t, s.Cluster, mode, pgcluster.WithPoolSize(4))
		strangers(t, b, 2)
		for _, d := range []drivers{pgx, pq} {
			for _, scope := range []elector.Scope{elector.SessionScope, elector.TransactionScope} {
				if mode == pgcluster.Transaction && scope == elector.TransactionScope && d.name(0) != "pgx" {
					continue // it is elected
				}
				c := s.through(t, d.open(t, 0, b.DSN()), s.election(t), elector.WithScope(scope)).run(t, nil)
				text := wait(t, c, func(f hooks.Failure) bool { return f.Op == hooks.OpCampaign }).Err.Error()
				if len(text) > 350 || strings.Count(text, "docs/runbook.md#behind-a-pooler") != 1 {
					t.Errorf("%s, %s, %v: %d characters: %s", mode, d.name(0), scope, len(text), text)
				}
			}
		}
	}
}

func TestTheErrorSaysThatAPoolerIsFull(t *testing.T) {
	t.Parallel()
	for name, full := range map[string]struct {
		scope     elector.Scope
		strangers int    // of two connections
		timeout   string // of the pooler, in seconds
	}{
		"the pooler ends the wait":                      {elector.TransactionScope, 2, "1"},
		"the candidate ends the wait":                   {elector.TransactionScope, 2, "60"},
		"the first check has one connection of its two": {elector.Auto, 1, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				s := direct(t)
				b := bounced(t, s.Cluster, pgcluster.Transaction, pgcluster.WithPoolSize(2), pgcluster.WithBouncerSetting("query_wait_timeout", full.timeout))
				var strangers []*sql.Tx
				for range full.strangers {
					tx, err := pq.open(t, 0, b.DSN()).BeginTx(soon(t), nil)
					check(t, err)
					strangers = append(strangers, tx)
				}
				c := s.through(t, d.open(t, 0, b.DSN(waysToAsk["pgx exec"]...)), s.election(t), elector.WithScope(full.scope), elector.WithLease(lease/3)).run(t, nil)
				f := wait(t, c, func(f hooks.Failure) bool { return f.Op == hooks.OpCampaign })
				if !strings.Contains(f.Err.Error(), "default_pool_size") || f.Permanent {
					t.Errorf("permanent %v: %v", f.Permanent, f.Err)
				}
				for _, tx := range strangers {
					check(t, tx.Rollback())
				}
				c.elected(t)
			})
		})
	}
}

// One finding of a pooler does not last: each check asks anew. The pool leads through a pooler, then to the server
// itself, then through the pooler again.
func TestTheScopeFollowsWhereThePoolLeads(t *testing.T) {
	inSessionScope(t, "the pool leads to the server itself, too")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := direct(t)
		b := bounced(t, s.Cluster, pgcluster.Transaction, pgcluster.WithPoolSize(20))
		var at atomic.Pointer[string]
		leads := func(addr string) { at.Store(&addr) }
		leads(b.Addr())
		var opts []pgcluster.DSNOption
		if d.listens() { // pgx, which prepares statements
			opts = waysToAsk["pgx exec"]
		}
		pool, err := unruly.Open(d.name(0), s.Cluster.DSN(opts...), unruly.None, func() string { return *at.Load() })
		check(t, err)
		t.Cleanup(func() { expect(t, pool.Close()) })
		pool.SetMaxIdleConns(-1)
		c := s.through(t, pool, s.election(t)).run(t, nil)
		if first := c.elected(t); !first.InTransaction {
			t.Fatal("no pooler was found")
		}
		for _, through := range []string{s.Addr(), b.Addr(), s.Addr()} {
			leads(through)
			after := c.after()
			s.terminate(t, s.holders(t, c.Key())[0])
			if again := nextElected(t, after); again.InTransaction != (through == b.Addr()) {
				t.Errorf("inside a transaction: %t; through the pooler: %t", again.InTransaction, through == b.Addr())
			}
		}
	})
}

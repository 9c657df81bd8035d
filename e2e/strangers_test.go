//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
)

// A stranger can make a pooler of two backends look like the server itself: it keeps one while
// one connection of the check asks, and gives it back for the other. The check sees its use.
func TestAStrangerThatSortsTheBackendsHidesNoTransactionPooler(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := direct(t)
		b := bounced(t, s.Cluster, pgcluster.Transaction)
		stranger := pq.open(t, 0, b.DSN())
		var kept *sql.Tx
		keep := func(keeps bool) {
			var err error
			switch {
			case keeps && kept == nil:
				kept, err = stranger.BeginTx(soon(t), nil)
			case !keeps && kept != nil:
				err, kept = kept.Rollback(), nil
			}
			expect(t, err)
		}
		for during := range 16 { // a bit for each of the first statements
			pool, counter := d.openCounted(t, 0, b.DSN(waysToAsk["pgx exec"]...))
			var mu sync.Mutex
			over := false
			counter.each = func(n int) {
				mu.Lock()
				defer mu.Unlock()
				if !over { // a call that was given up may reach the driver late
					keep(during>>n&1 == 1)
				}
			}
			e, err := elector.New(pool, s.election(t), elector.WithLease(lease), elector.WithScope(elector.SessionScope))
			check(t, err)
			_, elected, err := e.TryCampaign(soon(t))
			mu.Lock()
			over = true
			keep(false)
			mu.Unlock()
			if elected || !errors.Is(err, elector.ErrSessionPooled) {
				t.Errorf("with a stranger during %04b: elected %v, %v", during, elected, err)
			}
		}
	})
}

// PgBouncer reports a cut server connection with the same error as a transaction that its
// mode does not allow: FATAL, 08P01.
func TestACutConnectionBehindASessionPoolerIsATemporaryFailure(t *testing.T) {
	t.Parallel()
	modes := map[string][]elector.Option{"polling": nil, "waiting": {elector.WithTakeover(elector.Wait)}}
	waits := map[string]time.Duration{"before it is noticed": 0, "when it was noticed": 30 * time.Millisecond}
	overEach(t, func(t *testing.T, d drivers) {
		for mode, opts := range modes {
			for when, wait := range waits {
				t.Run(mode+" "+when, func(t *testing.T) {
					t.Parallel()
					cutAtEachStatement(t, d, wait, append(opts, elector.WithBackoff(10*time.Millisecond, 50*time.Millisecond)))
				})
			}
		}
	})
}

// cutAtEachStatement campaigns through a pooler whose connections to the server are cut
// before one statement and before the next.
func cutAtEachStatement(t *testing.T, d drivers, wait time.Duration, opts []elector.Option) {
	l := behindARoute(t)
	b, err := pgcluster.NewBouncer(t.Context(), l.proxy.Addr(), pgcluster.Session, pgcluster.WithPoolSize(40))
	if errors.Is(err, pgcluster.ErrNoBouncer) {
		t.Skip(err)
	}
	check(t, err)
	t.Cleanup(func() { expect(t, b.Stop()) })
	for n := range 13 { // the statements of a check and an election
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var over atomic.Bool
			pool, counter := d.openCounted(t, 0, b.DSN())
			counter.each = func(asked int) {
				if !over.Load() && (asked == n || asked == n+1) { // the second cut hits the new connections
					l.proxy.Reset()
					time.Sleep(wait)
				}
			}
			c := l.server.stand(t, pool, l.election(t), opts...)
			c.shared = true
			term, err := c.Campaign(soon(t))
			over.Store(true)
			check(t, err)
			_ = term.Resign(soon(t)) // its connection may also have been cut
		})
	}
}

// checks is how many checks each test makes of each pooler and each server:
// PGELECTOR_CHECKS=200 measures.
func checks(few int) int {
	if n, err := strconv.Atoi(os.Getenv("PGELECTOR_CHECKS")); err == nil {
		return n
	}
	return few
}

// found has n new candidates of session scope check the server, and returns how many of them found a
// pooler.
func (s *server) found(t *testing.T, n int, pool *sql.DB) (poolers int) {
	t.Helper()
	for range n {
		e, err := elector.New(pool, s.election(t), elector.WithLease(lease), elector.WithScope(elector.SessionScope))
		check(t, err)
		term, elected, err := e.TryCampaign(soon(t))
		switch {
		case elected:
			_ = term.Resign(soon(t)) // through a pooler the session may be lost
		case errors.Is(err, elector.ErrSessionPooled):
			poolers++
		default:
			t.Errorf("no answer: %v", err)
		}
	}
	return poolers
}

// during has many work until the end of the test.
func during(t *testing.T, many int, work func(ctx context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		workers.Wait()
	})
	for range many {
		workers.Go(func() {
			for ctx.Err() == nil {
				work(ctx)
			}
		})
	}
}

// A backend begins transactions by itself: to catch up with the changes of the catalog that others
// make, and to deliver notifications. They are no strangers' on a backend that a pooler shares.
func TestAServerWhoseBackendsBeginTransactionsByThemselvesIsNoPooler(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]func(t *testing.T, s *server, pool *sql.DB){
		"beside DDL": func(t *testing.T, s *server, _ *sql.DB) {
			others := pgx.open(t, 0, s.DSN())
			during(t, 2, func(ctx context.Context) {
				conn, err := others.Conn(ctx)
				if err != nil {
					return
				}
				defer conn.Close()
				for range 100 {
					_, _ = conn.ExecContext(ctx, "CREATE TEMPORARY TABLE brief (a int PRIMARY KEY, b text, c text, d text)")
					_, _ = conn.ExecContext(ctx, "DROP TABLE IF EXISTS brief")
				}
			})
		},
		"beside NOTIFY": func(t *testing.T, s *server, pool *sql.DB) {
			channel := unique("channel")
			for _, conn := range pooled(t, pool) {
				_, err := conn.ExecContext(soon(t), "LISTEN "+channel)
				check(t, err)
				check(t, conn.Close())
			}
			others := pgx.open(t, 0, s.DSN())
			during(t, 1, func(ctx context.Context) {
				_, _ = others.ExecContext(ctx, "NOTIFY "+channel)
				time.Sleep(5 * time.Millisecond)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				s := direct(t)
				proxy, err := s.Proxy(t.Context())
				check(t, err)
				t.Cleanup(func() { expect(t, proxy.Close()) })
				pool := d.open(t, 0, proxy.DSN())
				busy(t, s, pool)
				proxy.Slow(5*time.Millisecond, 0)
				n := checks(3)
				if poolers := s.found(t, n, pool); poolers > 0 {
					t.Errorf("%d of %d checks found a pooler", poolers, n)
				}
			})
		})
	}
}

// With strangers and without, a transaction pooler is always found, and a session pooler never.
func TestEachCheckFindsATransactionPoolerAndNoneASessionPooler(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgcluster.PoolMode{pgcluster.Transaction, pgcluster.Session} {
		for _, size := range []int{1, 2, 20} {
			for _, strangers := range []int{0, 3, 12} { // of 12, some always wait for one of two backends
				if mode == pgcluster.Session && size < 20 {
					continue // it has no backend for a second connection
				}
				if strangers == 12 && size != 2 {
					continue
				}
				t.Run(fmt.Sprintf("%s %d, %d strangers", mode, size, strangers), func(t *testing.T) {
					t.Parallel()
					s := direct(t)
					b := bounced(t, s.Cluster, mode, pgcluster.WithPoolSize(size))
					others := pq.open(t, 0, b.DSN())
					during(t, strangers, func(ctx context.Context) { _, _ = others.ExecContext(ctx, "SELECT pg_sleep(0.002)") })
					n, want := checks(10), 0
					if mode == pgcluster.Transaction {
						want = n
					}
					for _, way := range []string{"pgx simple", "pgx exec"} {
						pool := pgx.open(t, 0, b.DSN(waysToAsk[way]...))
						pool.SetMaxIdleConns(-1) // each check has two new connections
						if poolers := s.found(t, n, pool); poolers != want {
							t.Errorf("%s: %d of %d checks found a pooler, want %d", way, poolers, n, want)
						} else {
							t.Logf("%s: %d of %d checks found a pooler", way, poolers, n)
						}
					}
				})
			}
		}
	}
}

// Over lib/pq a connection that its pooler closes says no more than driver.ErrBadConn, as one in
// statement mode does at BEGIN.
func TestATransactionPoolerWhoseBackendsEndAgainAndAgainIsNotRefused(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := direct(t)
		name := unique("ending")
		s.databaseOf(t, name)
		b := bounced(t, s.Cluster, pgcluster.Transaction, pgcluster.WithPoolSize(20))
		during(t, 1, func(context.Context) {
			time.Sleep(rand.N(60 * time.Millisecond))
			_, _ = s.admin.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
		})
		var all sync.WaitGroup
		for range checks(8) {
			pool := d.open(t, 0, b.DSN(append(waysToAsk["pgx exec"], pgcluster.ForDatabase(name))...))
			e, err := elector.New(pool, s.election(t), elector.WithLease(lease), elector.WithRetryInterval(retry))
			check(t, err)
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				if err := e.Run(ctx, nil); err != nil && ctx.Err() == nil {
					t.Errorf("Run has ended: %v", err)
				}
			})
		}
		all.Wait()
	})
}

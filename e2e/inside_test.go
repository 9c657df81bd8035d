//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// throughPooler has the pools of tests lead to their server through PgBouncer in transaction
// mode, where strangers are busy: make e2e SCOPE=transaction.
var throughPooler = os.Getenv("PGELECTOR_SCOPE") == "transaction"

// poolers has the PgBouncer of each cluster.
var poolers = struct {
	sync.Mutex
	of map[*pgcluster.Cluster]*pgcluster.Bouncer
}{of: map[*pgcluster.Cluster]*pgcluster.Bouncer{}}

// startPooler starts the PgBouncer of the server's cluster, unless it runs. It ends with the cluster. It leaves a
// quarter of the connections to the administrator.
func (s *server) startPooler(t *testing.T) {
	t.Helper()
	poolers.Lock()
	defer poolers.Unlock()
	if s.pooler = poolers.of[s.Cluster]; s.pooler == nil {
		size := one[int](t, s.admin, "SELECT current_setting('max_connections')::int * 3 / 4")
		var err error
		s.pooler, err = s.Bouncer(context.Background(), pgcluster.Transaction, pgcluster.WithPoolSize(size),
			pgcluster.WithBouncerSetting("max_db_connections", strconv.Itoa(size)), pgcluster.WithBouncerSetting("max_client_conn", "3000"))
		check(t, err)
		check(t, s.pooler.ShieldCancels(context.Background()))
		poolers.of[s.Cluster] = s.pooler
	}
}

// DSN is the cluster's, or that of its pooler.
func (s *server) DSN(opts ...pgcluster.DSNOption) string {
	if s.pooler == nil {
		return s.Cluster.DSN(opts...)
	}
	return s.pooler.DSN(append(s.options(), opts...)...)
}

// options has pgx keep no prepared statements, whose names a pooler mixes up.
func (s *server) options() []pgcluster.DSNOption {
	if s.pooler == nil {
		return nil
	}
	return []pgcluster.DSNOption{pgcluster.WithParam("default_query_exec_mode", "exec")}
}

// takeovers makes deputies, also where that is not the default.
func (s *server) takeovers() []elector.Option {
	if s.pooler == nil {
		return nil
	}
	return []elector.Option{elector.WithTakeover(elector.Deputy)}
}

// quietly keeps candidates from looking for a pooler, which leaves errors in the server's log.
func (s *server) quietly() elector.Option {
	if s.pooler == nil {
		return elector.WithScope(elector.Auto)
	}
	return elector.WithScope(elector.TransactionScope)
}

// directly has a candidate lead in the run's scope where there is no pooler.
func directly() elector.Option {
	if throughPooler {
		return elector.WithScope(elector.TransactionScope)
	}
	return elector.WithScope(elector.Auto)
}

// inSessionScope skips a test that makes no sense in transaction scope.
func inSessionScope(t *testing.T, reason string) {
	t.Helper()
	if throughPooler {
		t.Skip("in transaction scope:", reason)
	}
}

// strangersView is what another client of a pooler sees of the backend that it is given.
const strangersView = `SELECT concat_ws(', ',
	(SELECT 'holds advisory locks' WHERE EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())),
	(SELECT 'is inside a transaction' WHERE transaction_timestamp() <> statement_timestamp()),
	(SELECT 'has another isolation level' WHERE current_setting('transaction_isolation') <> current_setting('default_transaction_isolation')),
	(SELECT string_agg(name || ' = ' || setting, ', ') FROM pg_settings WHERE source = 'session'
		AND name <> ALL ('{application_name, client_encoding, DateStyle, TimeZone, standard_conforming_strings, extra_float_digits}')),
	(SELECT 'application_name = ' || s FROM current_setting('application_name') AS s WHERE s <> 'stranger'),
	(SELECT 'pgelector.' || n || ' = ' || s FROM unnest('{transaction, key, role, wait}'::text[]) AS n, current_setting('pgelector.' || n, true) AS s WHERE s <> ''),
	(SELECT NULL::text FROM pg_sleep(0.002)))`

// strangers are busy on the pooler until the test ends, and see to it that they never meet a
// leader or deputy, nor what one has left.
func strangers(t *testing.T, b *pgcluster.Bouncer, n int) (met *atomic.Int64) {
	t.Helper()
	met = new(atomic.Int64) // backends
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range n {
		pool, err := sql.Open(mixed.name(i), b.DSN(pgcluster.WithParam("default_query_exec_mode", "simple_protocol"), pgcluster.WithParam("application_name", "stranger")))
		check(t, err)
		pool.SetMaxOpenConns(2)
		all.Go(func() {
			defer pool.Close()
			for ctx.Err() == nil {
				var saw string
				switch err := pool.QueryRowContext(ctx, strangersView).Scan(&saw); {
				case err == nil && saw != "":
					t.Errorf("a stranger's backend %s", saw)
					return
				case err == nil:
					met.Add(1)
				case len(pgerr.State(err)) == 5 && pgerr.State(err)[:2] == "25":
					t.Errorf("a stranger met a transaction: %v", err)
					return
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		all.Wait()
	})
	return met
}

// However a term in transaction scope ends, other clients of the pooler never meet it.
func TestStrangersMeetNoLeader(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		c := own(t)
		b := bounced(t, c, pgcluster.Transaction, pgcluster.WithPoolSize(12), pgcluster.WithBouncerSetting("max_client_conn", "1000"))
		check(t, b.ShieldCancels(t.Context()))
		s := &server{Cluster: c, admin: pgx.open(t, 0, c.DSN()), pooler: b}
		met := strangers(t, b, 6)
		f := s.launch(t, d, 4, shortLeases, func(_ int, s *settings) { s.Takeover = elector.Deputy })
		var last int64
		for _, end := range []func(*testing.T, entry){
			func(t *testing.T, leader entry) { f.command(t, leader.ID, commandResign) },
			func(t *testing.T, leader entry) { f.terminateLeader(t) },
			func(t *testing.T, leader entry) {
				f.signal(t, leader.ID, syscall.SIGSTOP)
				f.leader(t, leader.Token)
				f.signal(t, leader.ID, syscall.SIGCONT)
			},
			func(t *testing.T, leader entry) {
				f.excused = append(f.excused, leader.ID) // the pooler's end terminates its backend
				check(t, b.Restart(soon(t)))
			},
			func(t *testing.T, leader entry) { f.quit(t, leader.ID) }, // cancelled
			func(t *testing.T, leader entry) { f.kill(t, leader.ID) },
		} {
			leader := f.leader(t, last)
			last = leader.Token
			time.Sleep(heartbeat)
			end(t, leader)
		}
		f.leader(t, last)
		eventually(t, "strangers have met backends", func() bool { return met.Load() > 100 })
	})
}

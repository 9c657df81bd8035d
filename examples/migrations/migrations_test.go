//go:build unix

package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/migrations"
	goosemigrations "github.com/pgelector/pgelector/migrations/goose"
)

var rounds = flag.Int("rounds", 10, "in each, 20 processes start at once")

const (
	lease    = 4 * time.Second  // of a test that waits for its end
	unbroken = 30 * time.Second // which a busy machine does not use up
)

func TestOfTwentyProcessesThatStartAtOnceOneRunsEachMigration(t *testing.T) {
	t.Parallel()
	for round := range *rounds {
		dsn := newDatabase(t)
		var all []*process
		for i := range 20 {
			all = append(all, launch(t, "goose", drivers[i%2], dsn, unbroken))
		}
		var versions []string
		for _, p := range all {
			said := p.wait(t)
			if !strings.HasSuffix(said, "done\n") {
				t.Errorf("round %d: a process failed: %s", round, said)
			}
			versions = append(versions, applied(said)...)
		}
		if slices.Sort(versions); !slices.Equal(versions, []string{"1", "2"}) {
			t.Errorf("round %d: applied were %q", round, versions)
		}
		isClean(t, open(t, "pgx", dsn))
	}
	t.Logf("%d rounds of 20 processes: one ran each migration", *rounds)
}

// isClean checks that nothing is left: no lock, and no index that is not valid.
func isClean(t *testing.T, pool *sql.DB) {
	t.Helper()
	eventually(t, "no lock is left", func() bool {
		return query[int](t, pool, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == 0
	})
	if invalid, err := migrations.InvalidIndexes(context.Background(), pool); err != nil || len(invalid) > 0 {
		t.Errorf("invalid indexes: %q, %v", invalid, err)
	}
}

// scene is a database whose index takes as long as the test wants.
type scene struct {
	pool    *sql.DB
	dsn     string
	blocker *sql.Tx // CREATE INDEX CONCURRENTLY waits for it
	watch   chan struct{}
	seen    chan sight
}

// sight is the worst that was seen while migrators ran.
type sight struct {
	atWork  int     // backends with a statement that migrates, at once
	waiting float64 // the age of the oldest snapshot of another, in seconds
	looks   int
	failed  error
}

// neverTwo checks that no two were at work at once, and that nobody who waited, for a lease, held a snapshot.
func (s sight) neverTwo(t *testing.T) {
	t.Helper()
	if s.atWork > 1 || s.waiting > lease.Seconds()/2 || s.looks < 10 || s.failed != nil {
		t.Errorf("at the worst of %d looks, %d were at work, and others held a snapshot for %.1f s: %v", s.looks, s.atWork, s.waiting, s.failed)
	}
}

const migrating = `state = 'active' AND (query LIKE 'CREATE INDEX%' OR query LIKE 'DROP INDEX%')`

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{dsn: newDatabase(t), watch: make(chan struct{}), seen: make(chan sight, 1)}
	s.pool = open(t, "pgx", s.dsn)
	execute(t, s.pool, "CREATE TABLE events (id bigint)")
	var err error
	s.blocker, err = s.pool.Begin()
	check(t, err)
	_, err = s.blocker.Exec("INSERT INTO events VALUES (1)")
	check(t, err)
	go func() {
		var worst sight
		defer func() { s.seen <- worst }()
		for {
			var now sight
			err := s.pool.QueryRow(`SELECT count(*) FILTER (WHERE `+migrating+`),
				coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)) FILTER (WHERE backend_xmin IS NOT NULL AND NOT (`+migrating+`)), 0)
				FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&now.atWork, &now.waiting)
			worst = sight{max(worst.atWork, now.atWork), max(worst.waiting, now.waiting), worst.looks + 1, errors.Join(worst.failed, err)}
			select {
			case <-s.watch:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		_ = s.blocker.Rollback()
		s.worst()
	})
	return s
}

// worst ends the watch.
func (s *scene) worst() sight {
	select {
	case <-s.watch:
	default:
		close(s.watch)
	}
	worst := <-s.seen
	s.seen <- worst
	return worst
}

func (s *scene) atWork(t *testing.T) int {
	return query[int](t, s.pool, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND "+migrating)
}

// begin starts a process and waits until its index waits for the blocker: a statement before that
// one would end by itself, also when its client is gone.
func (s *scene) begin(t *testing.T, lock, driver string) *process {
	t.Helper()
	p := launch(t, lock, driver, s.dsn, lease)
	eventually(t, "the index waits", func() bool {
		return query[int](t, s.pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND state = 'active' AND wait_event_type = 'Lock' AND query LIKE 'CREATE INDEX%' AND pid <> pg_backend_pid()`) == 1
	})
	return p
}

// documented checks that the migration is the one of the document.
func documented(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile("../../docs/migrations.md")
	check(t, err)
	_, block, _ := strings.Cut(string(page), "```sql\n")
	block, _, _ = strings.Cut(block, "```")
	migration, err := os.ReadFile("internal/migrator/goose/2_index.sql")
	check(t, err)
	if block == "" || !strings.HasPrefix(string(migration), block) {
		t.Errorf("docs/migrations.md has another migration:\n%s", block)
	}
}

func TestAfterKill9TheNextGoesOnWhenTheStatementHasEndedAndNeverTwo(t *testing.T) {
	t.Parallel()
	documented(t)
	overBoth(t, func(t *testing.T, driver string) {
		s := newScene(t)
		first := s.begin(t, "goose", driver)
		second := launch(t, "goose", driver, s.dsn, lease)
		builds := query[int](t, s.pool, "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND "+migrating)
		check(t, first.Process.Kill())
		killed := time.Now()
		eventually(t, "the statement of the killed process ends", func() bool {
			return query[int](t, s.pool, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", builds) == 0
		})
		ended := time.Now()
		eventually(t, "the next goes on", func() bool { return s.atWork(t) == 1 })
		t.Logf("the statement ended %v after kill -9, and the next went on %v later", ended.Sub(killed), time.Since(ended))
		if invalid, err := migrations.InvalidIndexes(t.Context(), s.pool); err != nil || !slices.Equal(invalid, []string{"events_by_id"}) {
			t.Errorf("the index that was left is shown as %q, %v", invalid, err)
		}
		check(t, s.blocker.Commit())
		if got := applied(second.wait(t)); !slices.Equal(got, []string{"2"}) && !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("the next applied %q: %s", got, second.said)
		}
		s.worst().neverTwo(t)
		isClean(t, s.pool)
	})
}

func TestAFrozenProcessIsReplacedWithinTheLeaseAndDoesNotGoOn(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, driver string) {
		s := newScene(t)
		first := s.begin(t, "goose", driver)
		second := launch(t, "goose", driver, s.dsn, lease)
		first.freeze(t)
		check(t, s.blocker.Commit())
		frozen := time.Now()
		said := second.wait(t)
		t.Logf("with a lease of %v, the next was done %v after the freeze", lease, time.Since(frozen))
		if !slices.Contains(applied(said), "2") {
			t.Errorf("the next said %s", said)
		}
		check(t, first.Process.Signal(syscall.SIGCONT))
		if said := first.wait(t); strings.Contains(said, "done") || slices.Contains(applied(said), "2") {
			t.Errorf("the frozen process went on: %s", said)
		}
		s.worst().neverTwo(t)
		isClean(t, s.pool)
	})
}

// golang-migrate marks the version before it runs it.
func TestGolangMigrateRefusesAfterKill9AndNeverTwo(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, driver string) {
		s := newScene(t)
		first := s.begin(t, "golang-migrate", driver)
		second := launch(t, "golang-migrate", driver, s.dsn, lease)
		check(t, first.Process.Kill())
		if said := second.wait(t); !strings.Contains(said, "Dirty database version 2") {
			t.Errorf("the next said %s", said)
		}
		s.worst().neverTwo(t)
	})
}

func TestGolangMigrateMigratesOnce(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	var all []*process
	for i := range 10 {
		all = append(all, launch(t, "golang-migrate", drivers[i%2], dsn, unbroken))
	}
	for _, p := range all {
		if said := p.wait(t); said != "done\n" {
			t.Errorf("a process said %s", said)
		}
	}
	isClean(t, open(t, "pgx", dsn))
}

// The pool is the program's: what the lock sets ends with it.
func TestTheConnectionGoesBackAsItCame(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, driver string) {
		pool := open(t, driver, newDatabase(t))
		conn, err := pool.Conn(t.Context())
		check(t, err)
		defer conn.Close()
		l, err := migrations.New(pool, "migrations", elector.WithLease(lease))
		check(t, err)
		settings := func() (all string) {
			check(t, conn.QueryRowContext(t.Context(), `SELECT string_agg(setting, ' ' ORDER BY name) FROM pg_settings
				WHERE name IN ('idle_session_timeout', 'idle_in_transaction_session_timeout', 'client_connection_check_interval')`).Scan(&all))
			return all
		}
		_, err = conn.ExecContext(t.Context(), "SET idle_in_transaction_session_timeout = '61s'") // as a pool does for each of its connections
		check(t, err)
		before := settings()
		check(t, l.SessionLock(t.Context(), conn))
		if got := settings(); got != "500 4000 4000" {
			t.Errorf("under the lock: %s", got)
		}
		check(t, l.SessionUnlock(t.Context(), conn))
		if got := settings(); got != before {
			t.Errorf("after the lock: %s, before it: %s", got, before)
		}
		isClean(t, pool)
	})
}

// A transaction pooler leaves goose only its Locker. What the lock did before it knew that is undone.
func TestSessionLockIsRefusedBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, driver string) {
		pooler, err := shared.Get(t).Bouncer(t.Context(), pgcluster.Transaction)
		check(t, err)
		defer pooler.Stop()
		dsn := pooler.DSN()
		if driver == "pgx" {
			dsn = pooler.DSN(pgcluster.WithParam("default_query_exec_mode", "exec"))
		}
		pool := open(t, driver, dsn)
		conn, err := pool.Conn(t.Context())
		check(t, err)
		defer conn.Close()
		l, err := migrations.New(pool, t.Name(), elector.WithLease(unbroken))
		check(t, err)
		if err := l.SessionLock(t.Context(), conn); err == nil || !strings.Contains(err.Error(), "use goose.WithLocker") {
			t.Errorf("got %v", err)
		}
		if leader, err := elector.New(pool, t.Name()); err != nil {
			t.Error(err)
		} else if _, err := leader.Leader(t.Context()); !errors.Is(err, elector.ErrNoLeader) {
			t.Errorf("the lock is left: %v", err)
		}
	})
}

// goose has tests for locks.
func TestGoosesOwnTestsOfLocksPass(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, driver string) {
		pool := open(t, driver, newDatabase(t))
		files := fstest.MapFS{
			"1_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE a ();")},
			"2_b.sql": {Data: []byte("-- +goose Up\nCREATE TABLE b ();")},
		}
		newLock := func(t *testing.T) *migrations.Lock {
			l, err := migrations.New(pool, "migrations")
			check(t, err)
			return l
		}
		t.Run("SessionLocker", func(t *testing.T) {
			locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
				provider, err := goosemigrations.NewProvider(pool, files, newLock(t))
				check(t, err)
				return provider
			})
		})
		t.Run("Locker", func(t *testing.T) {
			pool := open(t, driver, newDatabase(t))
			locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
				provider, err := goose.NewProvider(goose.DialectPostgres, pool, fs.FS(files), goose.WithLocker(newLock(t)))
				check(t, err)
				return provider
			})
		})
		t.Run("ConcurrentLockers", func(t *testing.T) {
			locktesting.TestConcurrentLocking(t, pool, func(t *testing.T) lock.Locker { return newLock(t) }, time.Second)
		})
	})
}

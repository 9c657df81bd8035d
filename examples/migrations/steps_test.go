//go:build unix

package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/migrations"
	"github.com/pgelector/pgelector/migrations/golangmigrate"
	goosemigrations "github.com/pgelector/pgelector/migrations/goose"
)

// stages are migrations whose second waits until the test lets it go.
type stages struct {
	pool    *sql.DB
	holding *sql.Tx // the second waits for it
	lock    *migrations.Lock
	source  source.Driver
}

func files(last int) fstest.MapFS {
	all := []string{"CREATE TABLE a ();", "SELECT pg_advisory_xact_lock(4, 2); CREATE TABLE b ();", "CREATE TABLE c ();"}
	files := fstest.MapFS{}
	for i, name := range []string{"1_a.up.sql", "2_b.up.sql", "3_c.up.sql"}[:last] {
		files[name] = &fstest.MapFile{Data: []byte(all[i])}
	}
	return files
}

func sourceOf(t *testing.T, files fstest.MapFS) source.Driver {
	t.Helper()
	from, err := iofs.New(files, ".")
	check(t, err)
	t.Cleanup(func() { check(t, from.Close()) })
	return from
}

func stage(t *testing.T, driver string, last int) *stages {
	t.Helper()
	s := &stages{pool: open(t, driver, newDatabase(t)), source: sourceOf(t, files(last))}
	var err error
	s.lock, err = migrations.New(s.pool, "migrations", elector.WithLease(unbroken))
	check(t, err)
	s.holding, err = s.pool.Begin()
	check(t, err)
	t.Cleanup(func() { _ = s.holding.Rollback() })
	_, err = s.holding.Exec("SELECT pg_advisory_xact_lock(4, 2)")
	check(t, err)
	return s
}

// upTo calls Up, calls meanwhile while the second migration waits, lets it go, and returns Up's error.
func (s *stages) upTo(t *testing.T, ctx context.Context, meanwhile func()) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- golangmigrate.Up(ctx, s.pool, s.source, s.lock) }()
	eventually(t, "the second migration waits", func() bool {
		return query[int](t, s.pool, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%CREATE TABLE b%'") == 1
	})
	meanwhile()
	check(t, s.holding.Rollback())
	return <-ended
}

// has checks the version of the database, and that the tables are those that it makes.
func (s *stages) has(t *testing.T, version int) {
	t.Helper()
	if got := query[int](t, s.pool, "SELECT version FROM schema_migrations WHERE NOT dirty"); got != version {
		t.Errorf("the database has version %d, not %d", got, version)
	}
	if got := query[int](t, s.pool, "SELECT count(*) FROM pg_tables WHERE tablename IN ('a', 'b', 'c')"); got != version {
		t.Errorf("the database has %d tables, with version %d", got, version)
	}
	isClean(t, s.pool)
}

var errStop = errors.New("the program stops")

func TestUpReturnsAnErrorIfItsContextEndsBeforeTheLastMigration(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, driver string) {
		s := stage(t, driver, 3)
		ctx, stop := context.WithCancelCause(t.Context())
		err := s.upTo(t, ctx, func() { stop(errStop) })
		if !errors.Is(err, errStop) || !strings.Contains(err.Error(), "stopped before version 3") {
			t.Errorf("with 2 of 3 migrations applied, Up returned %v", err)
		}
		s.has(t, 2)
		check(t, golangmigrate.Up(t.Context(), s.pool, s.source, s.lock))
		check(t, golangmigrate.Up(t.Context(), s.pool, s.source, s.lock))
		s.has(t, 3)
	})
}

func TestUpIsDoneIfItsContextEndsInTheLastMigration(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, driver string) {
		s := stage(t, driver, 2)
		ctx, stop := context.WithCancel(t.Context())
		check(t, s.upTo(t, ctx, stop))
		s.has(t, 2)
	})
}

func TestUpReturnsAnErrorIfTheTermIsLostInAMigration(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]int{"Last": 2, "NotLast": 3} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, driver string) {
				s := stage(t, driver, last)
				err := s.upTo(t, t.Context(), func() {
					e, err := elector.New(s.pool, "migrations")
					check(t, err)
					leader, err := e.Leader(t.Context())
					check(t, err)
					terminate(t, s.pool, leader.PID)
				})
				if !errors.Is(err, elector.ErrNotLeader) || !strings.Contains(err.Error(), "version 2 has ended, but the term was lost") {
					t.Errorf("Up returned %v", err)
				}
				s.has(t, 2)
			})
		})
	}
}

// terminate ends a backend, and waits until it is gone.
func terminate(t *testing.T, pool *sql.DB, pid int32) {
	t.Helper()
	if !query[bool](t, pool, "SELECT pg_terminate_backend($1, 60000)", pid) {
		t.Fatalf("backend %d has not ended", pid)
	}
}

// losing is a source that loses the connection that migrates, when a version is read.
type losing struct {
	source.Driver
	at   uint
	lose func()
}

func (l *losing) ReadUp(version uint) (io.ReadCloser, string, error) {
	if version == l.at {
		l.lose()
	}
	return l.Driver.ReadUp(version)
}

// TestMain finds the goroutine, if one is left.
func TestUpLeavesNothingBehindIfItsConnectionIsLostBetweenTwoMigrations(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, driver string) {
		pool := open(t, driver, newDatabase(t))
		l, err := migrations.New(pool, "migrations", elector.WithLease(unbroken))
		check(t, err)
		from := &losing{Driver: sourceOf(t, files(3)), at: 2}
		from.lose = func() {
			terminate(t, pool, query[int32](t, pool, "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"))
			from.lose = func() {}
		}
		if err := golangmigrate.Up(t.Context(), pool, from, l); err == nil || !strings.Contains(err.Error(), "version 2") {
			t.Errorf("Up returned %v", err)
		}
		check(t, golangmigrate.Up(t.Context(), pool, from, l))
	})
}

func TestUpNamesAVersionThatIsDirtyAndDoesNothingAgain(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, driver string) {
		pool := open(t, driver, newDatabase(t))
		l, err := migrations.New(pool, "migrations", elector.WithLease(unbroken))
		check(t, err)
		broken := files(3)
		broken["2_b.up.sql"].Data = []byte("CREATE TABLE b (); SELECT 1/0;")
		if err := golangmigrate.Up(t.Context(), pool, sourceOf(t, broken), l); err == nil || !strings.Contains(err.Error(), "version 2: ") || !strings.Contains(err.Error(), "call Force") {
			t.Errorf("Up returned %v", err)
		}
		var dirty migrate.ErrDirty
		if err := golangmigrate.Up(t.Context(), pool, sourceOf(t, files(3)), l); !errors.As(err, &dirty) || dirty.Version != 2 {
			t.Errorf("on a dirty version, Up returned %v", err)
		}
		if query[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_tables WHERE tablename = 'b')") {
			t.Error("the dirty migration was run again")
		}
		isClean(t, pool)
	})
}

func TestUpRefusesASourceThatIsOlderThanTheDatabase(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, driver string) {
		pool := open(t, driver, newDatabase(t))
		l, err := migrations.New(pool, "migrations", elector.WithLease(unbroken))
		check(t, err)
		check(t, golangmigrate.Up(t.Context(), pool, sourceOf(t, files(3)), l))
		if err := golangmigrate.Up(t.Context(), pool, sourceOf(t, files(2)), l); err == nil || !strings.Contains(err.Error(), "version 3, which the source lacks") {
			t.Errorf("Up returned %v", err)
		}
		if err := golangmigrate.Up(t.Context(), pool, sourceOf(t, files(0)), l); err == nil || !strings.Contains(err.Error(), "no migrations") {
			t.Errorf("with an empty source, Up returned %v", err)
		}
	})
}

func TestAPoolOfTwoIsRefusedAtOnceAndOneOfThreeSuffices(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, driver string) {
		pool := open(t, driver, newDatabase(t))
		pool.SetMaxOpenConns(2)
		if _, err := migrations.New(pool, "migrations"); !errors.Is(err, elector.ErrConfig) {
			t.Errorf("New returned %v", err)
		}
		pool.SetMaxOpenConns(3)
		l, err := migrations.New(pool, "migrations", elector.WithLease(unbroken))
		check(t, err)
		pool.SetMaxOpenConns(2)
		provider, err := goosemigrations.NewProvider(pool, fstest.MapFS{"1_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE d ();")}}, l)
		check(t, err)
		if _, err := provider.Up(t.Context()); !errors.Is(err, elector.ErrConfig) {
			t.Errorf("goose's Up returned %v", err)
		}
		if err := golangmigrate.Up(t.Context(), pool, sourceOf(t, files(3)), l); !errors.Is(err, elector.ErrConfig) {
			t.Errorf("Up returned %v", err)
		}
		pool.SetMaxOpenConns(3)
		_, err = provider.Up(t.Context())
		check(t, err)
		check(t, golangmigrate.Up(t.Context(), pool, sourceOf(t, files(3)), l))
	})
}

// An older version of the program, say, which calls golang-migrate alone, and hangs.
func TestUpEndsWithItsContextWhileAnotherProgramHoldsGolangMigratesLock(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, driver string) {
		pool := open(t, driver, newDatabase(t))
		key, err := database.GenerateAdvisoryLockId(query[string](t, pool, "SELECT current_database()"), "public", "schema_migrations")
		check(t, err)
		older, err := pool.Begin()
		check(t, err)
		defer older.Rollback()
		_, err = older.Exec("SELECT pg_advisory_xact_lock($1)", key)
		check(t, err)
		l, err := migrations.New(pool, "migrations", elector.WithLease(unbroken))
		check(t, err)
		ctx, stop := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- golangmigrate.Up(ctx, pool, sourceOf(t, files(3)), l) }()
		eventually(t, "it would migrate, but for that lock", func() bool {
			return query[int](t, pool, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query IN ('SELECT pg_advisory_lock($1)', 'SELECT pg_catalog.pg_try_advisory_lock($1::pg_catalog.text::pg_catalog.int8)')") > 0
		})
		stop(errStop)
		select {
		case err := <-ended:
			if err == nil {
				t.Error("Up returned nil")
			}
		case <-time.After(timeout / 3):
			check(t, older.Rollback())
			t.Fatalf("Up went on: then %v", <-ended)
		}
		check(t, older.Rollback())
		check(t, golangmigrate.Up(t.Context(), pool, sourceOf(t, files(3)), l))
		isClean(t, pool)
	})
}

// As a dump begins. The program would not find its tables later, on one connection of its pool.
func TestWhatAMigrationSetsStaysOnNoConnectionOfThePool(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, driver string) {
		pool := open(t, driver, newDatabase(t))
		pool.SetMaxIdleConns(5)
		l, err := migrations.New(pool, "migrations", elector.WithLease(unbroken))
		check(t, err)
		dump := fstest.MapFS{"1_a.up.sql": {Data: []byte("SELECT pg_catalog.set_config('search_path', '', false); CREATE TABLE public.a ();")}}
		check(t, golangmigrate.Up(t.Context(), pool, sourceOf(t, dump), l))
		for range 5 {
			conn, err := pool.Conn(t.Context())
			check(t, err)
			defer conn.Close()
			var path string
			check(t, conn.QueryRowContext(t.Context(), "SHOW search_path").Scan(&path))
			if path == "" || path == `""` {
				t.Errorf("a connection of the pool has the search_path %q", path)
			}
		}
	})
}

// atBound cancels a context just before the guard is bounded, when it is taken.
type atBound struct{ cancel context.CancelFunc }

func (a atBound) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "set_config('idle_session_timeout', $1, false), pg_catalog.set_config('idle_in_transaction_session_timeout', $1") {
		a.cancel()
	}
	return ctx
}

func (a atBound) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Over a pgxpool, closing the driver's connection only returns it to that pool.
func TestAConnectionThatMayHaveTheGuardIsNotReturnedToAPgxpool(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	config, err := pgxpool.ParseConfig(newDatabase(t))
	check(t, err)
	config.ConnConfig.Tracer = atBound{stop}
	below, err := pgxpool.NewWithConfig(t.Context(), config)
	check(t, err)
	defer below.Close()
	pool := stdlib.OpenDBFromPool(below)
	defer pool.Close()
	l, err := migrations.New(pool, "migrations", elector.WithLease(unbroken))
	check(t, err)
	conn, err := pool.Conn(ctx)
	check(t, err)
	if err := l.SessionLock(ctx, conn); err == nil {
		check(t, l.SessionUnlock(ctx, conn))
	}
	if ctx.Err() == nil {
		t.Fatal("the guard was not bounded")
	}
	_ = conn.Close()
	isClean(t, pool)
}

func TestASecondCallerOfALockIsRefusedAndTheFirstOneUnlocks(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, driver string) {
		pool := open(t, driver, newDatabase(t))
		l, err := migrations.New(pool, "migrations", elector.WithLease(unbroken))
		check(t, err)
		check(t, l.Lock(t.Context(), pool))
		if err := l.Lock(t.Context(), pool); !errors.Is(err, elector.ErrAlreadyRunning) {
			t.Errorf("got %v", err)
		}
		if l.Term() == nil {
			t.Fatal("the first one's term is gone")
		}
		check(t, l.Unlock(t.Context(), pool))
		if l.Term() != nil {
			t.Error("the term is there after Unlock")
		}
		if err := l.Unlock(t.Context(), pool); err == nil {
			t.Error("unlocked twice")
		}
		isClean(t, pool)
	})
}

// replaced makes a primary and its standby, which has all that was committed, and a proxy that leads to the primary.
// replace kills the primary and has the proxy lead to the promoted standby.
func replaced(t *testing.T) (primary *pgcluster.Cluster, proxy *pgcluster.Proxy, replace func() *pgcluster.Cluster) {
	t.Helper()
	primary, err := pgcluster.Start(t.Context())
	check(t, err)
	t.Cleanup(func() { check(t, primary.Stop()) })
	standby, err := primary.AddStandby(t.Context())
	check(t, err)
	admin := open(t, "pgx", primary.DSN())
	execute(t, admin, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	execute(t, admin, "SELECT pg_reload_conf()")
	proxy, err = primary.Proxy(t.Context())
	check(t, err)
	t.Cleanup(func() { check(t, proxy.Close()) })
	return primary, proxy, func() *pgcluster.Cluster {
		check(t, primary.Kill())
		proxy.LeadTo(standby)
		proxy.Reset()
		check(t, standby.Promote(t.Context()))
		return standby
	}
}

// byGoose runs the same migrations as golangmigrate.Up.
func byGoose(t *testing.T, pool *sql.DB, l *migrations.Lock) error {
	t.Helper()
	forGoose := fstest.MapFS{}
	for name, file := range files(3) {
		forGoose[strings.Replace(name, ".up.sql", ".sql", 1)] = &fstest.MapFile{Data: append([]byte("-- +goose Up\n"), file.Data...)}
	}
	provider, err := goosemigrations.NewProvider(pool, forGoose, l)
	check(t, err)
	_, err = provider.Up(t.Context())
	return err
}

func byGolangMigrate(t *testing.T, pool *sql.DB, l *migrations.Lock) error {
	t.Helper()
	return golangmigrate.Up(t.Context(), pool, sourceOf(t, files(3)), l)
}

func TestAMigrationWhosePrimaryIsReplacedIsAnErrorThatNamesTheVersionAndIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, driver string) {
		primary, proxy, replace := replaced(t)
		const goose, golangMigrate = "goose", "golang_migrate" // a database for each
		all := map[string]func(*testing.T, *sql.DB, *migrations.Lock) error{goose: byGoose, golangMigrate: byGolangMigrate}
		start := func(tool string) error { // as the program does
			pool := open(t, driver, proxy.DSN(pgcluster.ForDatabase(tool)))
			l, err := migrations.New(pool, "migrations", elector.WithLease(unbroken))
			check(t, err)
			return all[tool](t, pool, l)
		}
		ended := map[string]chan error{}
		for tool := range all {
			execute(t, open(t, "pgx", primary.DSN()), "CREATE DATABASE "+tool)
			admin := open(t, "pgx", primary.DSN(pgcluster.ForDatabase(tool)))
			holding, err := admin.Conn(t.Context())
			check(t, err)
			defer holding.Close()
			_, err = holding.ExecContext(t.Context(), "SELECT pg_advisory_lock(4, 2)")
			check(t, err)
			ended[tool] = make(chan error, 1)
			go func() { ended[tool] <- start(tool) }()
			eventually(t, "the second migration waits", func() bool {
				return query[int](t, admin, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND (classid, objid) = (4, 2) AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == 1
			})
		}
		next := replace()
		tables := func(tool string) string {
			return query[string](t, open(t, "pgx", next.DSN(pgcluster.ForDatabase(tool))), "SELECT string_agg(tablename, '' ORDER BY 1) FROM pg_tables WHERE tablename IN ('a', 'b', 'c')")
		}
		for tool, version := range map[string]string{goose: "version:2", golangMigrate: "migrations: version 2: "} {
			if err := <-ended[tool]; err == nil || !strings.Contains(err.Error(), version) || tool == golangMigrate && !strings.Contains(err.Error(), "look at what it did and at schema_migrations") {
				t.Errorf("%s ended with %v", tool, err)
			}
			if left := tables(tool); left != "a" {
				t.Errorf("%s has left the tables %q", tool, left)
			}
		}
		var dirty migrate.ErrDirty
		if err := start(golangMigrate); !errors.As(err, &dirty) || dirty.Version != 2 || tables(golangMigrate) != "a" {
			t.Errorf("the next start of golang-migrate: %v, and the tables %q", err, tables(golangMigrate))
		}
		if err := start(goose); err != nil || tables(goose) != "abc" { // the server has rolled the second one back
			t.Errorf("the next start of goose: %v, and the tables %q", err, tables(goose))
		}
	})
}

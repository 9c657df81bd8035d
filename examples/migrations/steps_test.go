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

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"

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
	s := &stages{pool: open(t, driver, database(t)), source: sourceOf(t, files(last))}
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
		pool := open(t, driver, database(t))
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
		pool := open(t, driver, database(t))
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
		pool := open(t, driver, database(t))
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
		pool := open(t, driver, database(t))
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

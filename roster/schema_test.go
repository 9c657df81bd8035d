package roster

import (
	"database/sql"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/tables"
	"github.com/pgelector/pgelector/roster/internal/db"
)

// During a rolling update, programs of two versions run at once, and each new process
// migrates at its start.
func TestANewVersionMigratesOnceWhileTheOldOneRuns(t *testing.T) {
	pool := server(t)
	before, err := New(pool)
	check(t, err)
	check(t, before.Migrate(t.Context()))
	record(t, before, 1)

	var all sync.WaitGroup
	for range 10 {
		after, err := New(pool)
		check(t, err)
		after.migrations = append(migrations[:len(migrations):len(migrations)],
			"ALTER TABLE chosen.roster_terms ADD COLUMN note text NOT NULL DEFAULT ''",
			"ALTER TABLE chosen.roster_candidates ADD COLUMN note text NOT NULL DEFAULT ''")
		all.Go(func() {
			if err := after.Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var applied int
	check(t, pool.QueryRow("SELECT count(*) FROM pgelector.roster_migrations").Scan(&applied))
	if applied != len(migrations)+2 {
		t.Errorf("%d migrations were applied, want %d", applied, len(migrations)+2)
	}
	check(t, before.Migrate(t.Context())) // a process of the old version starts late
	record(t, before, 2)
	if terms, err := before.Terms(t.Context(), 10); err != nil || len(terms) != 2 {
		t.Errorf("the old version reads %+v, %v", terms, err)
	}
	check(t, before.Close(t.Context()))
}

func TestAMigrationThatFailsLeavesNothing(t *testing.T) {
	pool := server(t)
	r, err := New(pool, WithSchema("half"))
	check(t, err)
	r.migrations = append(migrations[:len(migrations):len(migrations)], "CREATE TABLE chosen.roster_more (); SELECT 1 / 0")
	if err := r.Migrate(t.Context()); err == nil {
		t.Error("it has not failed")
	}
	var schemas int
	check(t, pool.QueryRow("SELECT count(*) FROM pg_namespace WHERE nspname = 'half'").Scan(&schemas))
	if schemas != 0 {
		t.Error("it has left the schema")
	}
}

// server returns a pool of the empty database that PGELECTOR_ROSTER_DSN names. The tests of
// e2e/roster start a server and run these tests with it.
func server(t *testing.T) *sql.DB {
	t.Helper()
	dsn := os.Getenv("PGELECTOR_ROSTER_DSN")
	if dsn == "" {
		t.Skip("needs a server: go -C e2e test ./roster runs it with one")
	}
	pool, err := sql.Open("pgx", dsn)
	check(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// record waits until a term is recorded.
func record(t *testing.T, r *Roster, token int64) {
	t.Helper()
	r.OnElected(t.Context(), hooks.Elected{Origin: one, Token: token, At: time.Now()})
	for deadline := time.Now().Add(90 * time.Second); r.Stats().Writes == 0 || r.Stats().Waiting > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it is not recorded: %+v", r.Stats())
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Every statement and migration names its tables in the placeholder's schema, and uses the
// placeholder for nothing else.
func TestNoStatementNamesATableOutsideTheChosenSchema(t *testing.T) {
	statements := map[string]string{
		"Publish": db.Publish, "Leave": db.Leave, "RecordTerms": db.RecordTerms, "Candidates": db.Candidates, "Terms": db.Terms,
		"RemoveCandidates": db.RemoveCandidates, "RemoveTerms": db.RemoveTerms, "Version": db.Version, "RecordVersion": db.RecordVersion,
		"Installed": db.Installed, "LockMigrations": db.LockMigrations, "ReadBytes": db.ReadBytes,
	}
	if methods := reflect.TypeFor[*db.Queries]().NumMethod() - 1; methods != len(statements) { // WithTx is none
		t.Errorf("there are %d statements, and this test knows %d", methods, len(statements))
	}
	entries, err := files.ReadDir("migrations")
	if err != nil || len(entries) != len(migrations) {
		t.Errorf("there are %d migrations, and %d are known (%v): are they numbered from 1?", len(entries), len(migrations), err)
	}
	for i, migration := range migrations {
		statements[entries[i].Name()] = migration
	}
	table := regexp.MustCompile(`\S*\broster_(candidates|terms|migrations)\b`)
	for name, statement := range statements {
		left := statement
		for _, found := range table.FindAllString(statement, -1) {
			if !strings.HasPrefix(found, tables.Placeholder) && !strings.HasPrefix(found, "'") {
				t.Errorf("%s names %s", name, found)
			}
			left = strings.Replace(left, found, "", 1)
		}
		if strings.Contains(left, tables.Placeholder) {
			t.Errorf("%s names the schema without a table:\n%s", name, left)
		}
	}
}

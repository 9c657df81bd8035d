//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/roster"
)

// quoted quotes an identifier, independently of the library.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// publishTerm makes a roster publish a candidate and record a term of it.
func publishTerm(r *roster.Roster, id string, token int64) hooks.Elected {
	e := hooks.Elected{Origin: hooks.Origin{Election: "any", Key: 1, CandidateID: id}, Token: token, At: time.Now()}
	r.OnElected(context.Background(), e)
	return e
}

// written waits until a roster has written all events.
func written(t *testing.T, r *roster.Roster) {
	t.Helper()
	eventually(t, "all events are written", func() bool { s := r.Stats(); return s.Writes > 0 && s.Waiting == 0 && s.Err == nil })
}

func TestARosterWorksInASchemaWithAnyName(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.database(t))
		for _, name := range []string{
			"public", "pgelector", "Capital", "with space", `quo"te`, `"`, `";DROP SCHEMA public CASCADE;--`, `a'b`, `back\slash`, "$1", "$$", "?", ":x",
			"chosen", "chosen.", "a.chosen.b", "select", "ünïcödé", "新しい", "-- name: X :one", "/*", "\n", strings.Repeat("x", 63),
		} {
			r := rosterOn(t, pool, name)
			publishTerm(r, "one", 7)
			written(t, r)
			all, err := r.Terms(soon(t), 10)
			check(t, err)
			if len(all) != 1 || all[0].Token != 7 {
				t.Errorf("%q: the terms are %+v", name, all)
			}
			if states(t, r, 1)["one"] != roster.Live {
				t.Errorf("%q: the candidate is not live", name)
			}
			check(t, r.Close(soon(t)))
			if got := one[int](t, pool, "SELECT count(*) FROM "+quoted(name)+".roster_terms"); got != 1 {
				t.Errorf("%q has %d terms, want the one", name, got)
			}
			_, err = r.CleanUp(soon(t))
			expect(t, err)
		}
	})
}

func TestTwentyProcessesCanMigrateAtOnce(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		// With these defaults a transaction does not see later commits.
		role := s.role(t, map[string]string{"default_transaction_isolation": "serializable"})
		dsn := s.database(t)
		address, err := url.Parse(dsn)
		check(t, err)
		database := strings.TrimPrefix(address.Path, "/")
		_, err = s.admin.Exec("GRANT CREATE ON DATABASE " + quoted(database) + " TO " + quoted(role))
		check(t, err)
		var all sync.WaitGroup
		for i := range 20 {
			r, err := roster.New(d.open(t, i, s.DSN(pgcluster.ForDatabase(database), pgcluster.ForRole(role))))
			check(t, err)
			all.Go(func() { expect(t, r.Migrate(soon(t))) })
		}
		all.Wait()
		if applied := list[int](t, d.open(t, 0, dsn), "SELECT version FROM pgelector.roster_migrations"); len(applied) != 1 {
			t.Errorf("applied were %v, want each version once", applied)
		}
	})
}

func TestMigrateKeepsTablesOfANewerVersion(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	schema := s.schema(t)
	r := rosterOn(t, s.admin, schema)
	_, err := s.admin.Exec("INSERT INTO " + quoted(schema) + ".roster_migrations VALUES (99)")
	check(t, err)
	expect(t, r.Migrate(soon(t)))
}

func TestMigrateFailsOnAnotherApplicationsTable(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	schema := s.schema(t)
	_, err := s.admin.Exec(fmt.Sprintf("CREATE SCHEMA %[1]s; CREATE TABLE %[1]s.roster_terms (theirs text)", quoted(schema)))
	check(t, err)
	r, err := roster.New(s.admin, roster.WithSchema(schema))
	check(t, err)
	if err := r.Migrate(soon(t)); err == nil {
		t.Error("the migration used another application's table")
	}
	if left := list[string](t, s.admin, "SELECT tablename::text FROM pg_tables WHERE schemaname = $1", schema); len(left) != 1 {
		t.Errorf("the schema has the tables %v, want only the other application's", left)
	}
}

func TestATermIsRecordedInADatabaseThatLacksItsCharacters(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		name := unique("latin")
		_, err := s.admin.Exec("CREATE DATABASE " + quoted(name) + " ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
		check(t, err)
		t.Cleanup(func() {
			_, err := s.admin.Exec("DROP DATABASE " + quoted(name) + " WITH (FORCE)")
			expect(t, err)
		})
		r := rosterOn(t, d.open(t, 0, s.DSN(pgcluster.ForDatabase(name))), "pgelector", roster.WithMetadata(map[string]string{"名": "é"}))
		r.OnElected(context.Background(), hooks.Elected{Origin: hooks.Origin{Election: "新しい", Key: 1, CandidateID: "one"}, Token: 7, At: time.Now()})
		written(t, r)
		want := map[string]string{"postgres": "???", "pgx": "新しい"}[d.name(0)] // pgx has the server take bytes for characters
		if all := terms(t, r, 1); len(all) != 1 || all[0].Election != want {
			t.Errorf("the terms are %+v, want one of %q", all, want)
		}
		if states(t, r, 1)["one"] != roster.Live {
			t.Error("the candidate is not live")
		}
	})
}

func TestARowWrittenByHandCanBeRead(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		schema := s.schema(t)
		r := rosterOn(t, d.open(t, 0, s.DSN()), schema)
		_, err := s.admin.Exec("INSERT INTO " + quoted(schema) + `.roster_candidates VALUES
			(1, 'one', 'any', '', '{"deep": {"a": [1, "x"]}, "number": 7, "null": null}', now(), 'NaN', now(), now())`)
		check(t, err)
		all, err := r.Candidates(soon(t))
		check(t, err)
		if got := all[0].Metadata; got["deep"] != `{"a": [1, "x"]}` || got["number"] != "7" || got["null"] != "" {
			t.Errorf("the metadata is %v", got)
		}
	})
}

// The privileges that docs/observing.md grants suffice.
func TestTheDocumentedPrivilegesSuffice(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		schema, role := s.schema(t), s.role(t, nil)
		owner := rosterOn(t, s.admin, schema)
		pool := d.open(t, 0, s.DSN(pgcluster.ForRole(role)))
		r, err := roster.New(pool, roster.WithSchema(schema))
		check(t, err)
		t.Cleanup(func() { _ = r.Close(soon(t)) })
		wraps(t, r.Migrate(soon(t)), roster.ErrNoPrivilege)
		_, err = r.Candidates(soon(t))
		wraps(t, err, roster.ErrNoPrivilege)
		grants := strings.NewReplacer("pgelector", quoted(schema), "orders_service", quoted(role))
		for _, grant := range documentedGrants(t, "orders_service") {
			_, err = s.admin.Exec(grants.Replace(grant))
			check(t, err)
		}
		expect(t, r.Migrate(soon(t)))
		e := publishTerm(r, "one", 7)
		written(t, r)
		r.OnDemoted(context.Background(), hooks.Demoted{Origin: e.Origin, Token: 7, Reason: hooks.Resigned, At: time.Now()})
		eventually(t, "the end is recorded", func() bool { return terms(t, owner, 1)[0].Reason == string(hooks.Resigned) })
		_, err = r.CleanUp(soon(t))
		expect(t, err)
		expect(t, r.Close(soon(t)))
		if state := states(t, owner, 1)["one"]; state != roster.Left {
			t.Errorf("the candidate is %s, want left", state)
		}

		reader := s.role(t, nil)
		for _, grant := range documentedGrants(t, "admin_page") {
			_, err = s.admin.Exec(strings.NewReplacer("pgelector", quoted(schema), "admin_page", quoted(reader)).Replace(grant))
			check(t, err)
		}
		reading, err := roster.New(d.open(t, 0, s.DSN(pgcluster.ForRole(reader))), roster.WithSchema(schema))
		check(t, err)
		if len(terms(t, reading, 1)) != 1 || len(states(t, reading, 1)) != 1 {
			t.Error("a role with read privileges reads nothing")
		}
		_, err = reading.CleanUp(soon(t))
		wraps(t, err, roster.ErrNoPrivilege)
	})
}

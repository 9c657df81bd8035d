//go:build unix

package e2e_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
)

// server is a cluster with a connection past every fault, to look at it and to
// hurt it as its administrator.
type server struct {
	*pgcluster.Cluster
	admin *sql.DB
}

func onShared(t *testing.T) *server {
	t.Helper()
	return on(t, shared.Get(t))
}

func on(t *testing.T, c *pgcluster.Cluster) *server {
	t.Helper()
	return &server{Cluster: c, admin: pgx.open(t, 0, c.DSN(pgcluster.WithParam("application_name", "admin")))}
}

// election makes the name of a new election, whose lock must be free at the
// end of the test.
func (s *server) election(t *testing.T) string {
	t.Helper()
	election := unique(t.Name())
	s.freeAtTheEnd(t, elector.KeyFromName(election))
	return election
}

func (s *server) freeAtTheEnd(t *testing.T, key int64) {
	t.Helper()
	t.Cleanup(func() {
		if s.up() {
			eventually(t, "the lock is free", func() bool { return len(s.holders(t, key)) == 0 })
		}
	})
}

func (s *server) up() bool { return s.admin.PingContext(context.Background()) == nil }

// unique makes a name that no other test has, nor a repetition of this one.
func unique(name string) string { return name + "-" + strings.ToLower(rand.Text()[:6]) }

// database makes a database that is dropped at the end of the test, and returns
// the address of it.
func (s *server) database(t *testing.T) string {
	t.Helper()
	return s.databaseOf(t, unique("database"))
}

// databaseOf is database with a name that the test chooses, and perhaps a role.
func (s *server) databaseOf(t *testing.T, name string, opts ...pgcluster.DSNOption) string {
	t.Helper()
	_, err := s.admin.Exec(`CREATE DATABASE "` + name + `"`)
	check(t, err)
	t.Cleanup(func() {
		_, err := s.admin.Exec(`DROP DATABASE "` + name + `" WITH (FORCE)`)
		expect(t, err)
	})
	return s.DSN(append(opts, pgcluster.ForDatabase(name))...)
}

// role makes a role with defaults of its own, which is dropped at the end of
// the test, and returns its name.
func (s *server) role(t *testing.T, defaults map[string]string) string {
	t.Helper()
	name := unique("role")
	check(t, s.CreateRole(t.Context(), name, defaults))
	t.Cleanup(func() {
		_, err := s.admin.Exec(`DROP OWNED BY "` + name + `"; DROP ROLE "` + name + `"`)
		expect(t, err)
	})
	return name
}

// holders are the backends that hold or await any lock with the key, granted
// first. The key is compared in a way of its own.
func (s *server) holders(t *testing.T, key int64) []int {
	t.Helper()
	return s.locksOf(t, key, "true")
}

// locksOf are the backends of those of the key's locks (in pg_locks) for which the
// condition holds, granted first.
func (s *server) locksOf(t *testing.T, key int64, condition string) []int {
	t.Helper()
	return list[int](t, s.admin, `SELECT pid FROM pg_locks WHERE locktype = 'advisory'
		AND classid = (($1::bigint >> 32) & 4294967295)::oid AND objid = ($1::bigint & 4294967295)::oid AND `+condition+` ORDER BY granted DESC`, key)
}

// terminate ends a backend, and returns once that is decided.
func (s *server) terminate(t *testing.T, pid int) {
	t.Helper()
	if !one[bool](t, s.admin, "SELECT pg_terminate_backend($1)", pid) {
		t.Fatalf("there is no backend %d", pid)
	}
}

// one returns the value that a query yields.
func one[T any](t *testing.T, q querier, query string, args ...any) T {
	t.Helper()
	all := list[T](t, q, query, args...)
	if len(all) != 1 {
		t.Fatalf("%d rows, want 1: %s", len(all), query)
	}
	return all[0]
}

// list returns the values of a query's one column.
func list[T any](t *testing.T, q querier, query string, args ...any) []T {
	t.Helper()
	rows, err := q.QueryContext(context.Background(), query, args...)
	check(t, err)
	defer rows.Close()
	var all []T
	for rows.Next() {
		var value T
		check(t, rows.Scan(&value))
		all = append(all, value)
	}
	check(t, rows.Err())
	return all
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

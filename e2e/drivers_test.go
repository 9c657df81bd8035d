//go:build unix

package e2e_test

import (
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
)

// drivers are the names by which candidates open their pools, in turn.
type drivers []string

var (
	pq    = drivers{"postgres"}
	pgx   = drivers{"pgx"}
	mixed = drivers{"postgres", "pgx"}
)

// name is that of the i-th candidate's driver.
func (d drivers) name(i int) string { return d[i%len(d)] }

// open opens the pool of the i-th candidate.
func (d drivers) open(t *testing.T, i int, dsn string) *sql.DB {
	t.Helper()
	pool, err := sql.Open(d.name(i), dsn)
	check(t, err)
	t.Cleanup(func() { expect(t, pool.Close()) })
	return pool
}

// overDrivers repeats a test of several candidates over lib/pq, over pgx and
// over both, at the same time.
func overDrivers(t *testing.T, test func(t *testing.T, d drivers)) {
	t.Helper()
	over(t, map[string]drivers{"pq": pq, "pgx": pgx, "mixed": mixed}, true, test)
}

// overEach repeats a test of one candidate over lib/pq and over pgx.
func overEach(t *testing.T, test func(t *testing.T, d drivers)) {
	t.Helper()
	over(t, map[string]drivers{"pq": pq, "pgx": pgx}, true, test)
}

// oneByOne is overDrivers for tests that need the machine for themselves, which are the
// only ones that do not call t.Parallel.
func oneByOne(t *testing.T, test func(t *testing.T, d drivers)) {
	t.Helper()
	over(t, map[string]drivers{"pq": pq, "pgx": pgx, "mixed": mixed}, false, test)
}

func over(t *testing.T, all map[string]drivers, parallel bool, test func(t *testing.T, d drivers)) {
	t.Helper()
	for name, d := range all {
		t.Run(name, func(t *testing.T) {
			if parallel {
				t.Parallel()
			}
			test(t, d)
		})
	}
}

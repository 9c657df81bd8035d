//go:build unix

// Package e2e_test holds the election to its promise on real servers, through
// real drivers, among real processes, and with real faults.
//
// # What is asserted, and what is not
//
// Machines are noisy, so no test asserts a figure of the wall clock. What is
// asserted is order (the leader stepped down, then the server freed the lock),
// counts (one statement per heartbeat), and that a thing happens at all, within
// a patience that is long. Tests wait for events, never for time to pass.
//
// # Reading order
//
// main_test.go has the cluster that most tests share, drivers_test.go what each
// test is repeated over, and harness_test.go a candidate inside this process,
// with the check that each of them leaves nothing behind. A candidate in a
// process of its own is candidate_test.go; fleet_test.go starts, commands and
// kills such processes, and history_test.go judges what they told. Every other
// file is one theme.
package e2e_test

import (
	"context"
	"database/sql"
	"flag"
	"os"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// shared is the server of the tests that do not break it.
var shared = pgcluster.NewShared(pgcluster.WithSetting("max_connections", "400"))

func TestMain(m *testing.M) {
	if settings := os.Getenv(candidateVariable); settings != "" {
		os.Exit(beCandidate(settings)) // this is a process of a fleet
	}
	// Most tests wait most of the time, and not for a processor.
	if err := flag.Set("test.parallel", "10"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(shared.Around(m))
}

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// soon is a context that ends when patience does.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// own starts a cluster that the test may break.
func own(t *testing.T, opts ...pgcluster.Option) *pgcluster.Cluster {
	t.Helper()
	c, err := pgcluster.Start(t.Context(), opts...)
	check(t, err)
	t.Cleanup(func() { expect(t, c.Stop()) })
	return c
}

// check ends the test at an error, expect goes on; both fail it.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// eventually waits for what another process does in its own time.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// closed waits for a channel to be closed.
func closed(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}

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

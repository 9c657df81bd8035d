//go:build unix

// Package e2e_test tests elections on real servers, with real drivers, processes and
// faults.
//
// # What the tests assert
//
// Machines are noisy, so tests do not assert times of the wall clock. They assert order
// (the leader stepped down before the server released the lock), counts (one statement per
// heartbeat), and that an event happens within a generous time. Tests wait for events, not
// for time to pass.
//
// # Reading order
//
// main_test.go has the shared cluster and runs tests over the drivers. harness_test.go has
// servers and candidates inside this process, and checks that each candidate leaves nothing
// behind. candidate_test.go is a candidate in a separate process; fleet_test.go starts and
// kills such processes, and checks what they recorded. Every other file tests one subject.
package e2e_test

import (
	"database/sql"
	"errors"
	"flag"
	"os"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/internal/preference"
)

// shared is the server of the tests that do not break it.
var shared = pgcluster.NewShared(pgcluster.WithSetting("max_connections", "400"))

func TestMain(m *testing.M) {
	if settings := os.Getenv(candidateVariable); settings != "" {
		os.Exit(runCandidate(settings)) // a process of a fleet
	}
	parallel := "14" // most tests wait
	if throughPooler {
		parallel = "6" // the poolers and their strangers need more
	}
	if err := flag.Set("test.parallel", parallel); err != nil {
		panic(err)
	}
	preference.MinTerm = 100 * time.Millisecond // no test waits for a minute
	goleak.VerifyTestMain(shared.Around(m))
}

// own starts a cluster that the test may break.
func own(t *testing.T, opts ...pgcluster.Option) *pgcluster.Cluster {
	t.Helper()
	c, err := pgcluster.Start(t.Context(), opts...)
	check(t, err)
	t.Cleanup(func() { expect(t, c.Stop()) })
	return c
}

const patience = must.Patience

var check, expect, eventually, soon = must.Check, must.Expect, must.Eventually, must.Soon

// closed waits for a channel to be closed.
func closed(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}

// drivers are driver names; candidates use them in turn.
type drivers []string

var (
	pq    = drivers{"postgres"}
	pgx   = drivers{"pgx"}
	mixed = drivers{"postgres", "pgx"}
)

// name returns the i-th candidate's driver.
func (d drivers) name(i int) string { return d[i%len(d)] }

// open opens the i-th candidate's pool.
func (d drivers) open(t *testing.T, i int, dsn string) *sql.DB {
	t.Helper()
	pool, err := sql.Open(d.name(i), dsn)
	check(t, err)
	t.Cleanup(func() {
		if err := pool.Close(); !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) { // the server may be gone
			expect(t, err)
		}
	})
	return pool
}

// overDrivers runs a test of several candidates, which use the drivers in turn. With
// PGELECTOR_DRIVERS=all it also runs it over lib/pq alone and over pgx alone.
func overDrivers(t *testing.T, test func(t *testing.T, d drivers)) {
	t.Helper()
	over(t, combinations(), true, test)
}

func combinations() map[string]drivers {
	if os.Getenv("PGELECTOR_DRIVERS") == "all" {
		return map[string]drivers{"pq": pq, "pgx": pgx, "mixed": mixed}
	}
	return map[string]drivers{"mixed": mixed}
}

// overEach runs a test of one candidate over lib/pq and over pgx.
func overEach(t *testing.T, test func(t *testing.T, d drivers)) {
	t.Helper()
	over(t, map[string]drivers{"pq": pq, "pgx": pgx}, true, test)
}

// oneByOne is overDrivers for tests that need the whole machine. Only these do not call
// t.Parallel.
func oneByOne(t *testing.T, test func(t *testing.T, d drivers)) {
	t.Helper()
	over(t, combinations(), false, test)
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

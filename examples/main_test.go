//go:build unix

package examples_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

var shared = pgcluster.NewShared()

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil { // these mostly wait
		panic(err)
	}
	goleak.VerifyTestMain(cleaned{shared.Around(m)})
}

var databases atomic.Int32

// timeout limits each wait of a test.
const timeout = 90 * time.Second

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// overBoth runs a test with each driver, each time in a new database.
func overBoth(t *testing.T, test func(t *testing.T, pool *sql.DB)) {
	t.Helper()
	for _, driver := range []string{"postgres", "pgx"} {
		t.Run(driver, func(t *testing.T) { test(t, open(t, driver, database(t))) })
	}
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	pool, err := sql.Open(driver, dsn)
	check(t, err)
	t.Cleanup(func() { check(t, pool.Close()) })
	return pool
}

// database creates a database, which has no elections and tables yet.
func database(t *testing.T) (dsn string) {
	t.Helper()
	name := fmt.Sprint("example_", databases.Add(1))
	admin := open(t, "pgx", shared.Get(t).DSN())
	execute(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	return shared.Get(t).DSN(pgcluster.ForDatabase(name))
}

func execute(t *testing.T, pool *sql.DB, statement string, args ...any) {
	t.Helper()
	_, err := pool.ExecContext(context.Background(), statement, args...)
	check(t, err)
}

// candidate is a candidate of the election "example" that records its events.
type candidate struct {
	*elector.Elector
	rec *hookstest.Recorder
}

func newCandidate(t *testing.T, pool *sql.DB, id string) candidate {
	t.Helper()
	rec := hookstest.NewRecorder()
	e, err := elector.New(pool, "example", elector.WithCandidateID(id), elector.WithHooks(rec), elector.WithRetryInterval(50*time.Millisecond))
	check(t, err)
	t.Cleanup(func() {
		for _, violation := range rec.Violations() {
			t.Error(violation)
		}
	})
	return candidate{e, rec}
}

// lead starts a candidate in the background and waits until it leads.
func lead(t *testing.T, pool *sql.DB, id string) candidate {
	t.Helper()
	c := newCandidate(t, pool, id)
	c.start(t)
	wait[hooks.Elected](t, c, nil)
	return c
}

// start starts a candidate in the background, until the end of the test.
func (c candidate) start(t *testing.T) {
	t.Helper()
	check(t, c.Start(context.Background()))
	t.Cleanup(func() { check(t, c.Stop(soon(t))) })
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// wait returns the first event that matches, now or later.
func wait[E hookstest.Event](t *testing.T, c candidate, match func(E) bool) E {
	t.Helper()
	e, err := hookstest.Wait(soon(t), c.rec, match)
	check(t, err)
	return e
}

// awaitBusy waits until the candidate has found another leader.
func awaitBusy(t *testing.T, c candidate) {
	t.Helper()
	wait(t, c, func(e hooks.Campaign) bool { return e.Outcome == hooks.Busy })
}

// eventually waits until happened returns true.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", timeout, what)
		}
	}
}

// receive waits for a value.
func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(timeout):
		t.Fatalf("not within %v: %s", timeout, what)
		panic("unreachable")
	}
}

// inBackground runs fn. stop cancels its context and returns its error. The end of the
// test calls stop too.
func inBackground(t *testing.T, fn func(context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- fn(ctx) }()
	stopped := false
	var err error
	stop = func() error {
		if !stopped {
			stopped = true
			cancel(errStop)
			err = receive(t, "the example returns", ended)
		}
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

var errStop = errors.New("the test has ended")

//go:build unix

package command_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
)

// shared is the server of the tests that do not break it.
var shared = pgcluster.NewShared(pgcluster.WithSetting("max_connections", "200"))

func TestMain(m *testing.M) {
	if signal.Ignored(syscall.SIGHUP) { // under nohup the tested programs would ignore it, too
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	// Most tests need little processor time.
	if err := flag.Set("test.parallel", "5"); err != nil {
		panic(err)
	}
	code := func() int {
		dir, err := os.MkdirTemp("", "pgelector-command-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		programDir = dir
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each process would end a second late
		return shared.Around(m).Run()
	}()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// patience bounds the wait for an expected event.
const patience = 30 * time.Second

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// own starts a cluster that the test may break.
func own(t *testing.T, opts ...pgcluster.Option) *pgcluster.Cluster {
	t.Helper()
	c, err := pgcluster.Start(t.Context(), opts...)
	check(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// at returns the environment that sets the program's server.
func at(dsn string) []string { return []string{"DATABASE_URL=" + dsn} }

// name returns the name of the test's election.
func name(t *testing.T) string { return t.Name() }

var made atomic.Int64

// unique returns a new name for an object in the shared server, also when tests are repeated.
func unique(kind string) string { return fmt.Sprint(kind, "_", made.Add(1)) }

// eventually waits until happened returns true.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// connection opens a connection that is closed at the end of the test.
func connection(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}

// occupy takes the election's lock until release is called.
func occupy(t *testing.T, dsn, election string) (release func()) {
	t.Helper()
	conn := connection(t, dsn)
	var granted bool
	check(t, conn.QueryRow(t.Context(), "SELECT pg_try_advisory_lock($1)", elector.KeyFromName(election)).Scan(&granted))
	if !granted {
		t.Fatal("the election is led already")
	}
	return func() {
		_, err := conn.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
		check(t, err)
	}
}

// awaitLock waits in the server for the lock, and returns when it was granted.
func awaitLock(t *testing.T, dsn, election string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", elector.KeyFromName(election)); err != nil {
		t.Error(err)
	}
	_ = conn.Close(ctx)
}

// terminate ends the leader's backend.
func terminate(t *testing.T, dsn, election string) {
	t.Helper()
	key := elector.KeyFromName(election)
	var ended bool
	check(t, connection(t, dsn).QueryRow(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' AND objsubid = 1
		AND ((classid::bigint << 32) | objid::bigint) = $1`, key).Scan(&ended))
}

// guarded starts a server that asks for passwords, with a role app that has one.
func guarded(t *testing.T, password string) *pgcluster.Cluster {
	t.Helper()
	hba := filepath.Join(programDir, strings.ReplaceAll(t.Name(), "/", "-")+".hba")
	check(t, os.Chmod(programDir, 0o755))
	check(t, os.WriteFile(hba, []byte("host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"), 0o644))
	c := own(t, pgcluster.WithSetting("hba_file", hba))
	check(t, c.Exec(t.Context(), "CREATE ROLE app LOGIN PASSWORD '"+password+"'"))
	return c
}

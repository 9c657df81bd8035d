//go:build unix

package pgcluster

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// shared is the cluster of the tests that do not break it.
var shared = NewShared()

func TestMain(m *testing.M) {
	if scenario := os.Getenv(scenarioVariable); scenario != "" {
		actScenario(scenario) // this is a child of a test in leftovers_test.go
		return
	}
	goleak.VerifyTestMain(shared.Around(m))
}

// own starts a cluster that the test may break.
func own(t *testing.T, opts ...Option) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, c.Stop()) })
	return c
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// connect opens a connection that is closed at the end of the test.
func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn.Close(ctx)
	})
	return conn
}

// ask returns the one value that a query yields.
func ask[T any](t *testing.T, conn *pgx.Conn, sql string) T {
	t.Helper()
	var value T
	check(t, conn.QueryRow(t.Context(), sql).Scan(&value))
	return value
}

// silent fails the test if the connection answers within a moment. The connection is spent after.
func silent(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, "SELECT 1"); ctx.Err() == nil {
		t.Fatalf("got an answer (error %v), want silence", err)
	}
}

// eventually waits for something that another process does in its own time.
func eventually(t *testing.T, within time.Duration, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

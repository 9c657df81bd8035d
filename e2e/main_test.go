//go:build unix

package e2e_test

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

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

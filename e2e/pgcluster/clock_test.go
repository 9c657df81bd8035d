//go:build unix

package pgcluster

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func withClock(t *testing.T) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), WithClock())
	if errors.Is(err, ErrNoClock) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	check(t, err)
	t.Cleanup(func() { check(t, c.Stop()) })
	return c
}

// ahead is how far the server's clock is ahead of this process's.
func ahead(t *testing.T, conn *pgx.Conn) time.Duration {
	t.Helper()
	return time.Until(ask[time.Time](t, conn, "SELECT clock_timestamp()"))
}

func TestAServersClockIsSetInSessionsThatAreOpen(t *testing.T) {
	c := withClock(t)
	conn := connect(t, c.DSN())
	for _, offset := range []time.Duration{0, time.Hour, -90*time.Minute - 999*time.Millisecond, 0} {
		check(t, c.SetClock(offset))
		if got := ahead(t, conn); (got - offset).Abs() > time.Minute {
			t.Errorf("set to %v: the server is %v ahead", offset, got)
		}
	}
}

// PostgreSQL looks at the clock in the handler of a timer's signal, where the offset must count too.
func TestATimeoutOfAServerWhoseClockIsSetBackComesLater(t *testing.T) {
	const timeout, back = time.Second, 2 * time.Second
	c := withClock(t)
	conn := connect(t, c.DSN())
	began := time.Now()
	time.AfterFunc(timeout/2, func() {
		if err := c.SetClock(-back); err != nil {
			t.Error(err)
		}
	})
	_, err := conn.Exec(t.Context(), "SET statement_timeout = 1000; SELECT pg_sleep(60)")
	if took := time.Since(began); err == nil || took < timeout+back {
		t.Errorf("ended after %v: %v", took, err)
	}
}

func TestAClockThatWasNotAskedForIsNotSet(t *testing.T) {
	if err := shared.Get(t).SetClock(time.Hour); err == nil {
		t.Error("no error")
	}
}

package status

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// A candidate takes the lock before its name. Other holders of the lock never tell a lease.
func TestWatchWaitsForTheNameOfANewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		pool := server.NewProcess().Open()
		defer pool.Close()
		ctx, stop := context.WithCancel(t.Context())
		var leaders []string
		watch := Watch{Election: "orders", Interval: naming / 10, Timeout: time.Second, Report: func(c Change) error {
			leaders = append(leaders, "")
			if c.Leader != nil {
				leaders[len(leaders)-1] = c.Leader.ID
			}
			return nil
		}}
		over := make(chan error, 1)
		go func() { over <- watch.Run(ctx, pool, func(error) bool { return true }) }()
		time.Sleep(naming / 20) // between two questions
		lock := func(conn *sql.Conn, settings string) {
			t.Helper()
			row, err := db.New(conn).TryLock(ctx, db.TryLockParams{Key: elector.KeyFromName("orders"), Settings: settings})
			if err != nil || row.Outcome != "granted" {
				t.Fatal(row, err)
			}
			time.Sleep(naming * 9 / 10)
		}
		connect := func() *sql.Conn {
			conn, err := pool.Conn(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}
		one, other := connect(), connect()
		defer other.Close()
		lock(one, `[{"name":"application_name","value":"pool"}]`)
		lock(one, `[{"name":"application_name","value":"one"},{"name":"idle_session_timeout","value":"10000"}]`)
		_ = one.Raw(func(any) error { return driver.ErrBadConn }) // closes it
		_ = one.Close()
		synctest.Wait() // until its backend has ended
		lock(other, `[{"name":"application_name","value":"other"}]`)
		time.Sleep(naming)
		stop()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if want := []string{"", "one", "other"}; !slices.Equal(leaders, want) {
			t.Errorf("reported %q, want %q", leaders, want)
		}
	})
}

func TestALeaderThatOutlastsAnOutageHasNoPredecessor(t *testing.T) {
	leader, other := &Candidate{ID: "web-1", PID: 7}, &Candidate{ID: "web-2", PID: 8}
	for _, c := range []struct {
		now  *Candidate
		want string
	}{{leader, ""}, {other, "web-1"}} {
		away := Change{Event: Unreachable, Leader: leader}
		if got, news := (Change{Event: Leads, Leader: c.now}).since(away); !news || got.Event != Leads || got.Previous != c.want {
			t.Errorf("after the outage %s leads, after %q, news %v; want after %q", c.now.ID, got.Previous, news, c.want)
		}
	}
}

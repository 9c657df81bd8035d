package tenure

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/internal/pgerr"
)

// A connector never connects.
type connector struct{}

func (connector) Connect(context.Context) (driver.Conn, error) { return nil, driver.ErrBadConn }
func (connector) Driver() driver.Driver                        { return nil }

func open(t *testing.T) *sql.DB {
	t.Helper()
	pool := sql.OpenDB(connector{})
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

func TestAPrimaryIsKnownSinceItWasFirstSeenThroughThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, another := open(t), open(t)
		on := Primary{Timeline: 1, Started: 7}
		for i, step := range []struct {
			pool *sql.DB
			on   Primary
			want time.Duration
		}{
			{one, on, 0},
			{one, on, time.Second},
			{another, on, 0},
			{one, Primary{Timeline: 2, Started: 7}, 0}, // promoted
			{one, Primary{Timeline: 1, Started: 8}, 0}, // started anew
			{one, on, 5 * time.Second},
			{another, on, 4 * time.Second},
		} {
			if got := Known(step.pool, step.on); got != step.want {
				t.Errorf("step %d: known for %v, want %v", i, got, step.want)
			}
			time.Sleep(time.Second)
		}
	})
}

// A program may make a pool for each election that it tries.
func TestAPoolThatIsGoneIsForgotten(t *testing.T) {
	var p pools
	for range 100 {
		pool := sql.OpenDB(connector{})
		p.known(pool, Primary{})
		_ = pool.Close()
	}
	left := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.first)
	}
	for began := time.Now(); left() > 0; time.Sleep(time.Millisecond) {
		runtime.GC()
		if time.Since(began) > time.Minute {
			t.Fatalf("%d of 100 pools are left", left())
		}
	}
}

func TestTheErrorSaysHowLongToWait(t *testing.T) {
	err := error(&TooEarly{Why: "it is new", Wait: 1500 * time.Millisecond})
	if want := pgerr.ErrTooEarly.Error() + ": it is new: wait another 1.5s"; err.Error() != want || !errors.Is(err, pgerr.ErrTooEarly) {
		t.Errorf("got %v, want %s", err, want)
	}
}

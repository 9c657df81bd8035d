package session

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

func TestALateConnectionReturnsToThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan struct{})
		pool := (&drivertest.Driver{Connecting: drivertest.Late(late)}).Open()
		defer pool.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := borrow(ctx, pool, lease.Lease{Length: time.Minute}, func(error) {})
		if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "within") || time.Since(began) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		close(late)
		synctest.Wait()
		if n := pool.Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use", n)
		}
	})
}

// What a part does at the end of a session may need what it knows of it.
func TestWhatIsKeptOfASessionIsThereAtItsEnd(t *testing.T) {
	for name, end := range map[string]func(*Session){
		"GiveBack": (*Session).GiveBack,
		"Discard":  (*Session).Discard,
		"Discard of one that has ended": func(s *Session) {
			s.Lose(pgerr.ErrSessionLost)
			synctest.Wait()
			s.Discard()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool := new(drivertest.Driver).Open()
				defer pool.Close()
				s, err := borrow(t.Context(), pool, lease.Lease{Length: time.Minute}, func(error) {})
				if err != nil {
					t.Fatal(err)
				}
				var one, other PerSession[string]
				*one.Of(s), *other.Of(s) = "one", "other"
				got := ""
				s.AtEnd(func() { got = *one.Of(s) + *other.Of(s) })
				end(s)
				if got != "oneother" {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}

// A connection of pgx may hang when it is taken from the pool again, because it sends a statement then,
// and the server may be frozen.
func TestAnIdleConnectionMayHangForOneValidity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := (&drivertest.Driver{Reset: func(ctx context.Context) error {
			<-ctx.Done()
			return driver.ErrBadConn
		}}).Open()
		defer pool.Close()
		conn, err := pool.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		l := lease.Lease{Length: 10 * time.Second}
		began := time.Now()
		_, err = borrow(t.Context(), pool, l, func(error) {})
		if took := time.Since(began); err == nil || took != l.Validity() {
			t.Errorf("got %v after %v, want an error after %v", err, took, l.Validity())
		}
		s, err := borrow(t.Context(), pool, l, func(error) {})
		if err != nil {
			t.Fatalf("a new connection: %v", err)
		}
		s.GiveBack()
	})
}

// Opening a connection may take longer than a validity. A pool that is full opens none.
func TestANewConnectionHasHalfAMinute(t *testing.T) {
	l := lease.Lease{Length: 10 * time.Second}
	for name, c := range map[string]struct {
		most, inUse int
		want        time.Duration
	}{"no limit": {0, 1, connectTimeout}, "room": {2, 1, connectTimeout}, "full": {1, 1, l.Validity()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hangs := make(chan struct{})
				d := &drivertest.Driver{}
				pool := d.Open()
				pool.SetMaxOpenConns(c.most)
				for range c.inUse {
					conn, err := pool.Conn(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
				}
				defer pool.Close()
				d.Connecting = drivertest.Late(hangs)
				began := time.Now()
				if _, err := borrow(t.Context(), pool, l, func(error) {}); err == nil {
					t.Error("borrowed a connection")
				}
				if took := time.Since(began); took < c.want || took > c.want+pin.CloseGrace {
					t.Errorf("it gave up after %v, want %v", took, c.want)
				}
				close(hangs)
			})
		})
	}
}

// database/sql can ask any driver.
func TestASessionOfADriverWithoutDirectStatementsIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := new(drivertest.Driver).Open()
		defer pool.Close()
		s, err := borrow(t.Context(), pool, leaseOf(time.Hour, time.Minute, time.Minute), func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		if s.Discard(); pool.Stats().OpenConnections != 0 {
			t.Error("the connection is open")
		}
	})
}

// A session that has ended is kept until its last hold is released. Later holds do not block.
func TestASessionIsKeptUntilItsLastHoldIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := new(drivertest.Driver).Open()
		defer pool.Close()
		s, err := borrow(t.Context(), pool, leaseOf(10*time.Second, 2*time.Second, 2*time.Second), func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		defer s.GiveBack()
		first, second := s.Hold(), s.Hold()
		s.life.cancel(pgerr.ErrLeaseExpired)
		start := time.Now()
		time.AfterFunc(time.Second, first)
		time.AfterFunc(1500*time.Millisecond, second)
		s.life.awaitHolds(2 * time.Second)
		if took := time.Since(start); took != 1500*time.Millisecond {
			t.Errorf("kept for %v", took)
		}
		s.Hold()()
		s.life.awaitHolds(2 * time.Second)
		s.Hold()()
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

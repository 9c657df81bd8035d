package listen

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A pool makes one connection.
type pool struct{ conn driver.Conn }

func (p pool) Connect(context.Context) (driver.Conn, error) { return p.conn, nil }
func (p pool) Driver() driver.Driver                        { return nil }

// trying runs a test in virtual time with a connection, which is made there.
func trying(t *testing.T, conn func() driver.Conn, test func(t *testing.T, c *pin.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(pool{conn()})
		defer db.Close()
		c, _, err := pin.Take(t.Context(), db, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		test(t, c)
	})
}

// A bareConn cannot be waited on.
type bareConn struct{}

func (bareConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (bareConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (bareConn) Close() error                        { return nil }

// An idleConn waits until the wait is ended.
type idleConn struct{ bareConn }

func (idleConn) WaitForEnd(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// A stuckConn cannot be waited on: the wait does not end before the connection is closed.
type stuckConn struct {
	bareConn
	closed chan struct{}
}

func (c *stuckConn) Close() error {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return nil
}

func (c *stuckConn) WaitForEnd(context.Context) error {
	<-c.closed
	return driver.ErrBadConn
}

// Wrappers, as tracing libraries have them.
type (
	byRaw     struct{ driver.Conn }
	byUnwrap  struct{ driver.Conn }
	byWrapped struct{ driver.Conn }
	sealed    struct{ driver.Conn }
)

func (w byRaw) Raw() driver.Conn             { return w.Conn }
func (w byUnwrap) Unwrap() driver.Conn       { return w.Conn }
func (w byWrapped) WrappedConn() driver.Conn { return w.Conn }

func TestAConnectionIsFoundBelowItsWrappers(t *testing.T) {
	deep := driver.Conn(idleConn{})
	for range 8 {
		deep = byRaw{deep}
	}
	for name, wrapped := range map[string]struct {
		conn driver.Conn
		deaf bool
	}{
		"none":         {idleConn{}, false},
		"Raw":          {byRaw{idleConn{}}, false},
		"Unwrap":       {byUnwrap{idleConn{}}, false},
		"WrappedConn":  {byWrapped{idleConn{}}, false},
		"three":        {byRaw{byUnwrap{byWrapped{idleConn{}}}}, false},
		"too many":     {deep, true},
		"sealed":       {sealed{idleConn{}}, true},
		"another type": {bareConn{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			trying(t, func() driver.Conn { return wrapped.conn }, func(t *testing.T, c *pin.Conn) {
				deaf, err := try(t.Context(), c)
				if err != nil || errors.Is(deaf, pin.ErrDeaf) != wrapped.deaf {
					t.Errorf("deaf: %v, %v", deaf, err)
				}
				c.GiveBack()
			})
		})
	}
}

// The trial closes the connection below the driver: otherwise it could not be discarded.
func TestAConnectionWhoseWaitDoesNotEndIsFoundInATrialAndDiscarded(t *testing.T) {
	trying(t, func() driver.Conn { return &stuckConn{closed: make(chan struct{})} }, func(t *testing.T, c *pin.Conn) {
		deaf, err := try(t.Context(), c)
		if !errors.Is(deaf, pin.ErrDeaf) || err == nil {
			t.Errorf("deaf: %v, %v", deaf, err)
		}
		if !c.Discard(false, true) {
			t.Error("the connection was not closed")
		}
	})
}

// What is found holds for all connections of the pool, and is asked once.
func TestASourceIsTriedOnceAndItsDriverIsDeafAlsoIfTheConnectionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(pool{&stuckConn{closed: make(chan struct{})}})
		defer db.Close()
		from := session.NewSource(db, session.Config{Lease: lease.Lease{Length: time.Minute, Heartbeat: time.Second}, Report: func(context.Context, session.Task, error) {}})
		deaf, err := Try(t.Context(), from)
		if !errors.Is(deaf, pin.ErrDeaf) || err != nil {
			t.Errorf("deaf: %v, %v", deaf, err)
		}
		for _, found := range []error{deaf, nil} {
			from.Passed(session.Finding{Deaf: found})
			began := time.Now()
			if again, err := Try(t.Context(), from); again != found || err != nil || time.Since(began) > 0 {
				t.Errorf("again: deaf: %v, %v after %v", again, err, time.Since(began))
			}
		}
	})
}

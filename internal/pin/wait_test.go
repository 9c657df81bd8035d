package pin_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pin"
)

var errEnded = errors.New("the server ended the session")

// An idler's connection can be waited on. A wait needs a moment to end.
type idler struct {
	once    sync.Once
	ends    chan error // ends the connection
	waits   atomic.Int32
	waiting atomic.Bool // a wait goes on
	overlap atomic.Bool // a statement came during a wait
	panics  bool
	closed  chan struct{}
}

func newIdler() *idler { return &idler{} }

// init makes the channels in the test's bubble.
func (c *idler) init() {
	c.once.Do(func() { c.ends, c.closed = make(chan error, 1), make(chan struct{}) })
}

func (c *idler) WaitForEnd(ctx context.Context) error {
	c.init()
	c.waits.Add(1)
	if c.panics && c.waits.Load() > 1 { // the trial passes
		panic("a bug of the driver")
	}
	c.waiting.Store(true)
	defer c.waiting.Store(false)
	select {
	case err := <-c.ends:
		return err
	case <-c.closed:
		return driver.ErrBadConn
	case <-ctx.Done():
		time.Sleep(time.Millisecond)
		return nil
	}
}

// wait is a pin.Wait.
func wait(ctx context.Context, conn any) error { return conn.(*idler).WaitForEnd(ctx) }

func (c *idler) statement() {
	if c.waiting.Load() {
		c.overlap.Store(true)
	}
	time.Sleep(time.Millisecond)
}

func (c *idler) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	c.statement()
	return nil, errors.ErrUnsupported
}

func (c *idler) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	c.statement()
	return driver.ResultNoRows, nil
}

func (c *idler) Close() error {
	c.init()
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return nil
}

func (c *idler) Begin() (driver.Tx, error)                                    { return c, nil }
func (c *idler) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return c, nil }
func (c *idler) Commit() error                                                { return nil }
func (c *idler) Rollback() error                                              { return nil }
func (c *idler) Prepare(string) (driver.Stmt, error)                          { return nil, errors.ErrUnsupported }

// A pool makes one connection.
type pool struct{ conn driver.Conn }

func (p pool) Connect(context.Context) (driver.Conn, error) { return p.conn, nil }
func (p pool) Driver() driver.Driver                        { return nil }

// listening runs a test with a pinned connection that is listened to. lost receives how it was lost.
func listening(t *testing.T, conn driver.Conn, test func(t *testing.T, c *pin.Conn, lost <-chan error)) {
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(pool{conn})
		defer db.Close()
		c, _, err := pin.Take(t.Context(), db, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		lost, ended := make(chan error, 1), make(chan struct{})
		go func() {
			defer close(ended)
			c.Listen(ctx, wait, func(err error) { lost <- err })
		}()
		synctest.Wait()
		test(t, c, lost)
		cancel()
		<-ended
		began := time.Now()
		if !c.Discard(false, false) || time.Since(began) > 10*time.Millisecond {
			t.Errorf("the connection was closed after %v", time.Since(began))
		}
	})
}

func call(t *testing.T, c *pin.Conn) error {
	_, err := c.Call(t.Context(), func(ctx context.Context, q *db.Queries) error {
		_, err := q.Ping(ctx)
		return err
	}, func() {})
	return err
}

func TestACallEndsTheWaitFirstAndAnotherBeginsAfterIt(t *testing.T) {
	conn := newIdler()
	listening(t, conn, func(t *testing.T, c *pin.Conn, lost <-chan error) {
		for range 100 {
			_ = call(t, c)
			synctest.Wait()
			if !conn.waiting.Load() {
				t.Fatal("between two calls nobody listens")
			}
		}
		conn.ends <- errEnded
		if err := <-lost; !errors.Is(err, errEnded) || !c.IsBroken() {
			t.Errorf("lost by %v, broken: %t", err, c.IsBroken())
		}
	})
	if conn.overlap.Load() {
		t.Error("a statement was sent during a wait")
	}
}

// Many want the call slot. No wait begins before all had it.
func TestNoWaitBeginsWhileSomebodyWantsTheSlot(t *testing.T) {
	conn := newIdler()
	listening(t, conn, func(t *testing.T, c *pin.Conn, _ <-chan error) {
		before := conn.waits.Load()
		returned := make(chan struct{})
		const callers = 20
		for range callers {
			go func() {
				_ = call(t, c)
				returned <- struct{}{}
			}()
		}
		synctest.Wait()
		for range callers {
			<-returned
		}
		if n := conn.waits.Load() - before; n > 1 { // one may have begun after the last
			t.Errorf("%d waits began between calls that queue", n)
		}
		synctest.Wait()
		if !conn.waiting.Load() {
			t.Error("nobody listens afterwards")
		}
	})
	if conn.overlap.Load() {
		t.Error("a statement was sent during a wait")
	}
}

// sql.Conn.Close would wait for the end of the transaction.
func TestDiscardBesideAnOpenTransactionEndsTheWait(t *testing.T) {
	for name, inTx := range map[string]bool{"in a transaction": true, "outside": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := newIdler()
				lent := sql.OpenDB(pool{conn})
				defer lent.Close()
				c, _, err := pin.Take(t.Context(), lent, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					c.Listen(ctx, wait, func(err error) { t.Errorf("lost by %v", err) })
				}()
				synctest.Wait()
				if inTx {
					_, err := c.Call(t.Context(), func(ctx context.Context, _ *db.Queries) error { return c.Begin() }, func() {})
					if err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				began := time.Now()
				if !conn.waiting.Load() || !c.Discard(false, false) || time.Since(began) > 10*time.Millisecond {
					t.Errorf("the connection was closed after %v (waited on: %t)", time.Since(began), conn.waiting.Load())
				}
				<-ended
			})
		})
	}
}

// The next statement tells whether the session has outlived it.
func TestAPanicOfTheDriverEndsTheWaitAndNoSession(t *testing.T) {
	conn := newIdler()
	conn.panics = true
	conn.waits.Store(1)
	listening(t, conn, func(t *testing.T, c *pin.Conn, lost <-chan error) {
		_ = call(t, c)
		synctest.Wait()
		if n := conn.waits.Load(); c.IsBroken() || n > 2 {
			t.Errorf("after a panic: broken %t, %d waits", c.IsBroken(), n)
		}
		select {
		case err := <-lost:
			t.Errorf("lost by %v", err)
		case <-conn.closed:
			t.Error("database/sql closed the connection, which may hold a lock")
		default:
		}
	})
}

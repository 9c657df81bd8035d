package pin_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A lendingConn belongs to a pool below database/sql, such as a pgxpool. Close returns it there,
// unless a call was cancelled on it or it is inside a transaction. A call takes a moment before
// it sends its statement.
type lendingConn struct {
	cut, begun, returned bool
}

func (c *lendingConn) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	time.Sleep(pin.SendGrace / 2)
	if ctx.Err() != nil {
		return nil, driver.ErrBadConn // nothing was sent: another connection may be tried
	}
	<-ctx.Done()
	c.cut = true
	return nil, ctx.Err()
}

func (c *lendingConn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	c.begun = true
	return driver.ResultNoRows, nil
}

func (c *lendingConn) Close() error {
	c.returned = !c.cut && !c.begun
	return nil
}

func (c *lendingConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (c *lendingConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }

func (c *lendingConn) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (c *lendingConn) Driver() driver.Driver                        { return nil }

// It may be discarded just before a statement is sent on it.
func TestAConnectionThatIsDiscardedIsNotReturnedToAPoolBelow(t *testing.T) {
	for name, pause := range map[string]time.Duration{"idle": -1, "before it sends": 0, "while it waits for the answer": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := &lendingConn{}
				pool := sql.OpenDB(conn)
				defer pool.Close()
				c, _, err := pin.Take(t.Context(), pool, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				asked := make(chan struct{})
				go func() {
					defer close(asked)
					if pause >= 0 {
						_, _ = c.Call(t.Context(), func(ctx context.Context, q *db.Queries) error {
							_, err := q.Ping(ctx)
							return err
						}, func() {})
					}
				}()
				synctest.Wait()
				time.Sleep(max(pause, 0))
				if !c.Discard(false, false) {
					t.Error("the connection was not closed")
				}
				<-asked
				if conn.returned {
					t.Error("the connection was returned to the pool below")
				}
			})
		})
	}
}

// A wrapper may hide a driver's Ping. An answer that nobody gave would prove that a session lives.
func TestAConnectionWithoutPingIsAskedByAStatement(t *testing.T) {
	for name, connector := range map[string]driver.Connector{"with ExecContext": &lendingConn{}, "with neither": &bareConn{}} {
		pool := sql.OpenDB(connector)
		conn, _, err := pin.Take(t.Context(), pool, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Ping(t.Context()); err != nil {
			t.Errorf("%s: got %v", name, err)
		}
		switch c := connector.(type) {
		case *lendingConn:
			if !c.begun {
				t.Errorf("%s: nothing was sent", name)
			}
		case *bareConn:
			if c.prepared != 1 || c.closed != 1 {
				t.Errorf("%s: %d statements were prepared, and %d closed", name, c.prepared, c.closed)
			}
		}
		conn.Discard(false, false)
		_ = pool.Close()
	}
}

func TestAPingWhoseStatementIsRefusedFails(t *testing.T) {
	refused := errors.New("refused")
	pool := sql.OpenDB(&bareConn{refuses: refused})
	defer pool.Close()
	conn, _, err := pin.Take(t.Context(), pool, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Discard(false, false)
	if err := conn.Ping(t.Context()); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
}

// A bareConn has nothing but what a driver must have.
type bareConn struct {
	prepared, closed int
	refuses          error
}

func (c *bareConn) Begin() (driver.Tx, error) { return nil, errors.ErrUnsupported }
func (c *bareConn) Prepare(string) (driver.Stmt, error) {
	if c.refuses != nil {
		return nil, c.refuses
	}
	c.prepared++
	return bareStmt{of: c}, nil
}
func (c *bareConn) Close() error                                 { return nil }
func (c *bareConn) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (c *bareConn) Driver() driver.Driver                        { return nil }

type bareStmt struct {
	driver.Stmt
	of *bareConn
}

func (s bareStmt) Close() error {
	s.of.closed++
	return nil
}

// The rollback of a cancelled transaction may close its connection while a call comes. (To
// compare: without afterTx the race detector makes 5 in 300,000 panic.)
func TestAConnectionMayBeClosedWhileItsTransactionIsRolledBack(t *testing.T) {
	closing := new(sql.Conn) // looks as in that moment: not done, and without a connection
	for name, call := range map[string]func() error{
		"Raw":         func() error { return closing.Raw(func(any) error { return driver.ErrBadConn }) },
		"PingContext": func() error { return closing.PingContext(context.Background()) },
	} {
		if err := pin.AfterTx(call); !errors.Is(err, sql.ErrConnDone) {
			t.Errorf("%s returned %v", name, err)
		}
	}
	if err := pin.AfterTx(func() error { return driver.ErrBadConn }); !errors.Is(err, driver.ErrBadConn) {
		t.Errorf("another error became %v", err)
	}
}

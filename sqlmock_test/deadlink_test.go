package sqlmock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
)

// A link stands between the pool and the mock. When it is dead, no call of the
// driver returns, whatever its context says, nor does Close: that is how lib/pq
// is on a network that swallows packets. When it is restored, the connections
// turn out to be broken.
type link struct {
	mu    sync.Mutex
	left  int           // how many calls pass before it dies; -1 is all
	alive chan struct{} // closed by restore; nil if it is alive
	died  func()        // is told when the first call hangs; may be nil
}

// newLinkedMock is newMock behind a link.
func newLinkedMock(t *testing.T) (*sql.DB, sqlmock.Sqlmock, *link) {
	t.Helper()
	direct, mock, err := sqlmock.NewWithDSN(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	l := &link{left: -1}
	pool := sql.OpenDB(&linked{driver: direct.Driver(), dsn: t.Name(), link: l})
	t.Cleanup(func() {
		l.restore()
		_ = pool.Close()
		_ = direct.Close()
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(err)
		}
	})
	return pool, mock, l
}

// dieAfter lets n more calls pass. Closing a connection is not counted.
func (l *link) dieAfter(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = n
}

func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alive != nil {
		close(l.alive)
		l.alive = nil
	}
	l.left = -1
}

// pass lets a call through, or does not return until the link is restored.
func (l *link) pass(calls int) error {
	l.mu.Lock()
	if l.left >= calls || l.left < 0 {
		l.left = max(l.left-calls, min(l.left, 0))
		l.mu.Unlock()
		return nil
	}
	if l.alive == nil {
		l.alive = make(chan struct{})
		if l.died != nil {
			l.died()
		}
	}
	alive := l.alive
	l.mu.Unlock()
	<-alive
	return driver.ErrBadConn
}

// dead reports whether a call hangs.
func (l *link) dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.alive != nil
}

type linked struct {
	driver driver.Driver
	dsn    string
	link   *link
}

func (d *linked) Driver() driver.Driver { return d.driver }

func (d *linked) Connect(context.Context) (driver.Conn, error) {
	if d.link.dead() {
		if err := d.link.pass(1); err != nil {
			return nil, err
		}
	}
	conn, err := d.driver.Open(d.dsn)
	return &linkedConn{conn, d.link}, err
}

type linkedConn struct {
	driver.Conn
	link *link
}

func (c *linkedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.link.pass(1); err != nil {
		return nil, err
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *linkedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if err := c.link.pass(1); err != nil {
		return nil, err
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	return &linkedTx{tx, c.link}, err
}

func (c *linkedConn) Close() error {
	if c.link.dead() {
		_ = c.link.pass(1)
	}
	return c.Conn.Close()
}

type linkedTx struct {
	driver.Tx
	link *link
}

func (tx *linkedTx) Rollback() error {
	if err := tx.link.pass(1); err != nil {
		return err
	}
	return tx.Tx.Rollback()
}

func (tx *linkedTx) Commit() error {
	if err := tx.link.pass(1); err != nil {
		return err
	}
	return tx.Tx.Commit()
}

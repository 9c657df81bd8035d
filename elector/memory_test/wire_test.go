package memory_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/backoff"
)

// A wire sends each message of a candidate, and may delay it, or return another error.
type wire func(m message, send func() error) error

// A message is on its way to the server.
type message struct {
	name  string    // of a statement; or CONNECT, PREPARE, BEGIN, COMMIT, ROLLBACK
	inTx  bool      // it is sent inside a transaction
	begun time.Time // when that began
	text  *string   // of a query, which the wire may replace
	ctx   context.Context
}

// delay waits on the way. As with a driver, that ends with the context: a sleep would not, and a transaction whose context ends
// meanwhile waits on a mutex, where no time passes in a bubble.
func (m message) delay(d time.Duration) { backoff.Sleep(m.ctx, d) }

// fail returns a wire on which the messages of that name fail with err, from the first (1) to the
// last.
func fail(name string, first, last int, err error) wire {
	var mu sync.Mutex
	n := 0
	return func(m message, send func() error) error {
		mu.Lock()
		if m.name == name {
			n++
		}
		fails := m.name == name && n >= first && n <= last
		mu.Unlock()
		if fails {
			return err
		}
		return send()
	}
}

// wired is candidate with a wire.
func (b *bench) wired(w wire, id string, opts ...elector.Option) *candidate {
	b.Helper()
	return b.wiredBy(false, w, id, opts...)
}

// wiredBy is wired with a driver that may have the least that database/sql demands.
func (b *bench) wiredBy(bare bool, w wire, id string, opts ...elector.Option) *candidate {
	b.Helper()
	process := b.NewProcess()
	lends := process.Open()
	b.Cleanup(func() { _ = lends.Close() })
	return b.candidateOn(process, sql.OpenDB(connector{lends, w, bare}), id, opts...)
}

// A connector lends connections with a wire.
type connector struct {
	lends *sql.DB
	wire  wire
	bare  bool
}

func (c connector) Driver() driver.Driver { return c.lends.Driver() }

func (c connector) Connect(ctx context.Context) (made driver.Conn, err error) {
	err = c.wire(message{name: "CONNECT", ctx: ctx}, func() error {
		lent, err := c.lends.Conn(ctx)
		if err != nil {
			return err
		}
		return lent.Raw(func(conn any) error {
			made = &wiredConn{fullConn: conn.(fullConn), wire: c.wire}
			if c.bare {
				made = struct {
					driver.Conn
					driver.ConnPrepareContext
				}{made, made.(driver.ConnPrepareContext)}
			}
			return nil
		})
	})
	return made, err
}

// A fullConn has what database/sql asks of a connection.
type fullConn interface {
	driver.Conn
	driver.Pinger
	driver.QueryerContext
	driver.ExecerContext
	driver.ConnBeginTx
	driver.SessionResetter
	driver.Validator
}

type wiredConn struct {
	fullConn
	wire   wire
	inTx   bool
	begun  time.Time
	spoilt bool
}

func (c *wiredConn) send(ctx context.Context, text *string, send func() error) error {
	name, _, _ := strings.Cut(strings.TrimPrefix(*text, "-- name: "), " ")
	err := c.wire(message{name, c.inTx, c.begun, text, ctx}, send)
	c.spoilt = c.spoilt || errors.Is(err, errSpoilt)
	return err
}

func (c *wiredConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = c.send(ctx, &query, func() (err error) {
		rows, err = c.fullConn.QueryContext(ctx, query, args)
		return err
	})
	return rows, err
}

func (c *wiredConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	err = c.send(ctx, &query, func() (err error) {
		result, err = c.fullConn.ExecContext(ctx, query, args)
		return err
	})
	return result, err
}

func (c *wiredConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return wiredStmt{c, query}, c.wire(message{"PREPARE", c.inTx, c.begun, &query, ctx}, func() error { return nil })
}

// IsValid is false after errSpoilt, as with a driver that has found a connection broken.
func (c *wiredConn) IsValid() bool { return !c.spoilt && c.fullConn.IsValid() }

var errSpoilt = errors.New("the connection is spoilt")

func (c *wiredConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	begin := "BEGIN"
	err = c.send(ctx, &begin, func() (err error) {
		tx, err = c.fullConn.BeginTx(ctx, opts)
		return err
	})
	if err == nil {
		c.inTx, c.begun = true, time.Now()
	}
	return wiredTx{tx, c}, err
}

type wiredTx struct {
	driver.Tx
	conn *wiredConn
}

func (t wiredTx) Commit() error   { return t.end("COMMIT", t.Tx.Commit) }
func (t wiredTx) Rollback() error { return t.end("ROLLBACK", t.Tx.Rollback) }

func (t wiredTx) end(name string, send func() error) error {
	defer func() { t.conn.inTx = false }()
	return t.conn.send(context.Background(), &name, send)
}

type wiredStmt struct {
	conn  *wiredConn
	query string
}

func (s wiredStmt) Close() error                               { return nil }
func (s wiredStmt) NumInput() int                              { return -1 }
func (s wiredStmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }
func (s wiredStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }
func (s wiredStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.ExecContext(ctx, s.query, args)
}
func (s wiredStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, s.query, args)
}

// serverError is an error of the server with that SQLSTATE.
func serverError(state, text string) error { return &electortest.Error{Code: state, Message: text} }

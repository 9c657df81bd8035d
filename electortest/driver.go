package electortest

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
)

var (
	_ driver.Connector          = connector{}
	_ driver.Pinger             = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
	_ driver.StmtQueryContext   = statementOf{}
	_ driver.StmtExecContext    = statementOf{}
)

// A connector makes connections of a process.
type connector struct{ p *Process }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	made, err := c.p.connect(ctx)
	if err != nil {
		return nil, err // not a nil *conn in an interface
	}
	return made, nil
}

func (c connector) Driver() driver.Driver { return processDriver(c) }

// processDriver is the driver of a process's pools.
type processDriver struct{ p *Process }

// Open fails: Server.Open and Process.Open make pools.
func (processDriver) Open(string) (driver.Conn, error) {
	return nil, errors.New("electortest: use Server.Open or Process.Open")
}

// Ping is a round trip.
func (c *conn) Ping(ctx context.Context) error {
	_, err := c.call(ctx, &message{kind: aPing})
	return err
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	a, err := c.call(ctx, &message{kind: aQuery, query: query, args: values(args)})
	if err != nil {
		return nil, err
	}
	return &rows{answer: a}, nil
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	switch query { // transactions by statement
	case "BEGIN":
		_, err := c.BeginTx(context.WithoutCancel(ctx), driver.TxOptions{})
		return driver.RowsAffected(0), err
	case "COMMIT":
		return driver.RowsAffected(0), c.endTx(ctx, aCommit)
	case "ROLLBACK":
		return driver.RowsAffected(0), c.endTx(ctx, aRollback)
	}
	a, err := c.call(ctx, &message{kind: aQuery, query: query, args: values(args)})
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(a.Affected), nil
}

func values(args []driver.NamedValue) (all []any) {
	for _, arg := range args {
		all = append(all, arg.Value)
	}
	return all
}

// BeginTx begins a transaction. It ignores the isolation level.
func (c *conn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	before := c.tx // BEGIN may be sent within a transaction
	c.tx = ctx
	if _, err := c.call(ctx, &message{kind: aBegin}); err != nil {
		c.tx = before
		return nil, err
	}
	return transactionOf{c}, nil
}

// Begin implements driver.Conn.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// A transactionOf is the transaction of a connection, with the context of BeginTx.
type transactionOf struct{ c *conn }

func (t transactionOf) Commit() error   { return t.end(aCommit) }
func (t transactionOf) Rollback() error { return t.end(aRollback) }

func (t transactionOf) end(how messageKind) error {
	ctx := t.c.tx
	if ctx.Err() != nil { // as pgx does
		t.c.abort()
		return closedBy(ctx)
	}
	return t.c.endTx(ctx, how)
}

func (c *conn) endTx(ctx context.Context, how messageKind) error {
	_, err := c.call(ctx, &message{kind: how})
	c.tx = nil
	return err
}

// abort closes the connection, which rolls its transaction back.
func (c *conn) abort() {
	c.tx = nil
	if !c.dead && c.b != nil {
		c.giveUp(c.b)
	}
	c.dead = true
}

// PrepareContext returns a statement. It sends nothing.
func (c *conn) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return statementOf{c, query}, nil
}

// Prepare implements driver.Conn.
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// A statementOf is a prepared statement of a connection.
type statementOf struct {
	c     *conn
	query string
}

func (s statementOf) Close() error  { return nil }
func (s statementOf) NumInput() int { return -1 }

func (s statementOf) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.QueryContext(ctx, s.query, args)
}

func (s statementOf) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.ExecContext(ctx, s.query, args)
}

// Query and Exec implement driver.Stmt. database/sql does not call them.
func (s statementOf) Query(args []driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }
func (s statementOf) Exec(args []driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }

// rows are the rows of an answer.
type rows struct {
	answer Answer
	next   int
}

func (r *rows) Close() error { return nil }

func (r *rows) Columns() []string {
	if r.answer.Columns == nil && len(r.answer.Rows) > 0 {
		return make([]string, len(r.answer.Rows[0]))
	}
	return r.answer.Columns
}

func (r *rows) Next(into []driver.Value) error {
	if r.next >= len(r.answer.Rows) {
		return io.EOF
	}
	row := r.answer.Rows[r.next]
	if len(row) != len(into) {
		return newError(unsupported, "electortest: row %d has %d values, but the answer has %d columns", r.next+1, len(row), len(into))
	}
	for i, value := range row {
		into[i] = value
	}
	r.next++
	return nil
}

// An Error is an error of the server. Like the errors of lib/pq and pgx it has a method
// SQLState.
type Error struct {
	Code    string // the SQLSTATE
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("electortest: %s (SQLSTATE %s)", e.Message, e.Code)
}

// SQLState returns the SQLSTATE.
func (e *Error) SQLState() string { return e.Code }

func newError(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// The SQLSTATEs of this server.
const (
	unsupported        = "0A000"
	invalidValue       = "22023"
	internalError      = "XX000"
	failedTransaction  = "25P02"
	idleInTransaction  = "25P03"
	undefinedObject    = "42704"
	outOfMemory        = "53200"
	tooManyConnections = "53300"
	lockNotAvailable   = "55P03"
	queryCanceled      = "57014"
	adminShutdown      = "57P01"
	idleSession        = "57P05"
)

// errCut is the client's error if the other end closed the connection without a message.
var errCut = fmt.Errorf("electortest: the connection was closed by the other end: %w", io.ErrUnexpectedEOF)

// isFatal reports whether the error ended the session.
func isFatal(err error) bool {
	e, ok := err.(*Error)
	if !ok {
		return err == errCut
	}
	switch e.Code {
	case idleInTransaction, adminShutdown, idleSession:
		return true
	}
	return false
}

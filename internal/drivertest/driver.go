// Package drivertest is a database driver for tests of what is above it: its connections do what a
// test says, and it writes down what was asked of them.
package drivertest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
)

// A Driver opens connections. A nil function succeeds at once, except Exec and Query: if they are nil, the
// driver knows no direct statements. Set the functions before the driver is used.
type Driver struct {
	Connecting  func(context.Context) error
	Beginning   func(context.Context, driver.TxOptions) error
	Committing  func() error
	RollingBack func() error
	Ping        func(context.Context) error
	Reset       func(context.Context) error // when the connection is taken from the pool again
	Exec        func(ctx context.Context, statement string) (affected int64, err error)
	Query       func(ctx context.Context, statement string, args []any) (Rows, error)

	mu    sync.Mutex
	calls []string
}

// Rows are an answer. The columns have no names: no statement of this module has named columns.
type Rows [][]driver.Value

// One is an answer of one row.
func One(values ...driver.Value) (Rows, error) { return Rows{values}, nil }

// Late is a call that ignores its context, and succeeds when open is closed.
func Late(open <-chan struct{}) func(context.Context) error {
	return func(context.Context) error { <-open; return nil }
}

// ByName makes a driver that answers each statement, by its name, with the rows and the error that the maps
// have at that time. A statement that is in neither map has no rows.
func ByName(answers map[string]Rows, errs map[string]error) *Driver {
	return &Driver{
		Exec: func(_ context.Context, statement string) (int64, error) { return 0, errs[NameOf(statement)] },
		Query: func(_ context.Context, statement string, _ []any) (Rows, error) {
			return answers[NameOf(statement)], errs[NameOf(statement)]
		},
	}
}

// Open makes a pool of the driver's connections. The caller closes it.
func (d *Driver) Open() *sql.DB { return sql.OpenDB(d) }

// Calls returns what was asked since the last call of Calls, such as "connect", "begin", "query Ping".
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.calls = nil }()
	return slices.Clone(d.calls)
}

func (d *Driver) note(what string, statement string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, strings.TrimSpace(what+" "+NameOf(statement)))
}

// NameOf is the name that sqlc has given to a statement, or the statement.
func NameOf(statement string) string {
	if named, ok := strings.CutPrefix(statement, "-- name: "); ok {
		name, _, _ := strings.Cut(named, " ")
		return name
	}
	return statement
}

// Connect is for database/sql.
func (d *Driver) Connect(ctx context.Context) (driver.Conn, error) {
	d.note("connect", "")
	return &conn{d}, succeed(ctx, d.Connecting)
}

// succeed calls what a test has set.
func succeed(ctx context.Context, call func(context.Context) error) error {
	if call == nil {
		return nil
	}
	return call(ctx)
}

// Driver is for database/sql.
func (d *Driver) Driver() driver.Driver { return nil }

// A conn implements what both drivers do. Without SessionResetter and Validator database/sql closes the
// connection of a transaction whose context has ended.
type conn struct{ *Driver }

func (c *conn) Begin() (driver.Tx, error) { return nil, errors.ErrUnsupported }
func (c *conn) IsValid() bool             { return true }

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.note("begin", map[bool]string{true: "read only"}[opts.ReadOnly])
	if c.Beginning != nil {
		if err := c.Beginning(ctx, opts); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *conn) Close() error {
	c.note("close", "")
	return nil
}

func (c *conn) Commit() error {
	c.note("commit", "")
	if c.Committing != nil {
		return c.Committing()
	}
	return nil
}

func (c *conn) Rollback() error {
	c.note("rollback", "")
	if c.RollingBack != nil {
		return c.RollingBack()
	}
	return nil
}

func (c *conn) ResetSession(ctx context.Context) error {
	return succeed(ctx, c.Reset)
}

func (c *conn) Ping(ctx context.Context) error {
	c.note("ping", "")
	return succeed(ctx, c.Driver.Ping)
}

func (c *conn) ExecContext(ctx context.Context, statement string, _ []driver.NamedValue) (driver.Result, error) {
	if c.Exec == nil {
		return nil, driver.ErrSkip
	}
	c.note("exec", statement)
	n, err := c.Exec(ctx, statement)
	return driver.RowsAffected(n), err
}

func (c *conn) QueryContext(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
	if c.Query == nil {
		return nil, driver.ErrSkip
	}
	c.note("query", statement)
	return c.query(ctx, statement, args)
}

func (c *conn) query(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	answer, err := c.Query(ctx, statement, values)
	if err != nil {
		return nil, err
	}
	return &rows{answer}, nil
}

// Prepare prepares a statement, if the driver knows direct statements.
func (c *conn) Prepare(statement string) (driver.Stmt, error) {
	if c.Query == nil {
		return nil, errors.ErrUnsupported
	}
	c.note("prepare", statement)
	return &stmt{c, statement}, nil
}

// A stmt is a prepared statement.
type stmt struct {
	*conn
	statement string
}

func (s *stmt) Close() error                               { return nil }
func (s *stmt) NumInput() int                              { return -1 }
func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, errors.ErrUnsupported }
func (s *stmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errors.ErrUnsupported }
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.note("execute", s.statement)
	return s.query(ctx, s.statement, args)
}

// rows are those of an answer that are left.
type rows struct{ left Rows }

func (r *rows) Columns() []string {
	if len(r.left) == 0 {
		return nil
	}
	return make([]string, len(r.left[0]))
}
func (r *rows) Close() error { return nil }
func (r *rows) Next(into []driver.Value) error {
	if len(r.left) == 0 {
		return io.EOF
	}
	copy(into, r.left[0])
	r.left = r.left[1:]
	return nil
}

// A State is an error of the server, as both drivers report it: its SQLSTATE.
type State string

func (s State) Error() string    { return "SQLSTATE " + string(s) }
func (s State) SQLState() string { return string(s) }

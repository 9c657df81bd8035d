package electortest

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// Forward makes the server hand the statements of the tested program to db: the statements that
// are not of this library. The server plays the election. db, a pool of go-sqlmock for example, sees
// only what the program itself sends: statements with their arguments, prepared statements, and
// transactions with their options, in the order in which they reach the server. The program gets its
// rows, results and errors unchanged. The transactions of elector.Term.InTx are the program's, too.
//
// A connection to the server that has sent such a statement keeps one connection of db until it ends. If
// it ends within a transaction, the transaction of db is rolled back. [Server.Close] waits for that.
//
// report receives each statement that db fails, with the line of the program that sent it, except
// sql.ErrNoRows: pass testing.T's Error, or its Log if statements fail on purpose. Each call of report has a goroutine
// of its own, and the statement waits for it.
//
// Forward replaces the handler (see [Server.Handle]). Call it before the program connects. A nil db ends it. The
// caller closes db, after the server. Not forwarded: pings, and BEGIN, COMMIT and ROLLBACK as text. An error of db
// does not abort a transaction: db has to do that.
func (s *Server) Forward(db *sql.DB, report ...func(...any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forward = nil
	if db != nil {
		s.forward = &forward{db: db, report: report}
	}
}

// A forward is where the statements of the tested program go.
type forward struct {
	db     *sql.DB
	report []func(...any)
}

// failed reports a statement that failed, and returns its error.
func (f *forward) failed(m *message, what string, err error) error {
	if err == nil || err == sql.ErrNoRows {
		return err
	}
	for _, report := range f.report {
		reported := make(chan struct{})
		go func() { // which testing.T's Fatal ends
			defer close(reported)
			report(fmt.Sprintf("%s: %s: %v", m.line, strings.Join(strings.Fields(what), " "), err))
		}()
		<-reported
	}
	return err
}

// A remote is the connection of db that belongs to a backend, and its open transaction. Only the
// backend's goroutine uses it.
type remote struct {
	conn *sql.Conn
	tx   *sql.Tx
}

// A session is what runs statements: a connection of db, or its transaction.
type session interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
}

// close rolls the transaction back and gives the connection back to db.
func (r *remote) close() {
	if r.tx != nil {
		_ = r.tx.Rollback()
	}
	if r.conn != nil {
		_ = r.conn.Close()
	}
}

// connect takes a connection of db, unless there is one.
func (r *remote) connect(ctx context.Context, f *forward) (err error) {
	if r.conn == nil {
		r.conn, err = f.db.Conn(ctx)
	}
	return err
}

// begin begins a transaction of db.
func (r *remote) begin(ctx context.Context, f *forward, opts driver.TxOptions) (err error) {
	if err := r.connect(ctx, f); err != nil {
		return err
	}
	within, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the transaction outlives ctx
	defer context.AfterFunc(ctx, cancel)()
	r.tx, err = r.conn.BeginTx(within, &sql.TxOptions{Isolation: sql.IsolationLevel(opts.Isolation), ReadOnly: opts.ReadOnly})
	return err
}

// session returns what runs the next statement. inTx says that the client has a transaction open.
func (r *remote) session(ctx context.Context, f *forward, inTx bool) (_ session, err error) {
	switch {
	case r.tx == nil && inTx: // the library has begun it
		err = r.begin(ctx, f, driver.TxOptions{})
	default:
		err = r.connect(ctx, f)
	}
	if r.tx != nil {
		return r.tx, err
	}
	return r.conn, err
}

// end ends the transaction of db, if there is one.
func (r *remote) end(commit bool) error {
	tx := r.tx
	r.tx = nil
	switch {
	case tx == nil:
		return nil
	case commit:
		return tx.Commit()
	}
	return tx.Rollback()
}

// forwarded executes a statement of the tested program on db.
func (x *execution) forwarded(m *message) (a Answer, err error) {
	f := x.server.forward
	x.isRemote()
	inTx := x.tx.number != 0
	x.forwards = true
	x.server.mu.Unlock()
	defer x.server.mu.Lock()
	ctx, executed, cancel := x.interruptible(m.ctx)
	on, err := x.remote.session(ctx, f, inTx)
	if err == nil {
		a, err = m.run(ctx, x.backend, on)
	}
	executed()
	if why := context.Cause(ctx); err != nil && why != nil {
		err = why
	}
	if a.rows == nil {
		cancel(nil)
	} else {
		a.rows.cancel = cancel
	}
	return a, f.failed(m, m.query, err)
}

// isRemote makes Close wait for the backend. The caller holds the mutex.
func (b *backend) isRemote() {
	b.server.remote[b] = true
}

// interruptible returns a context that ends with the backend, and until executed is called, with a cancel request and
// with statement_timeout. cancel must be called.
func (x *execution) interruptible(parent context.Context) (ctx context.Context, executed func(), cancel context.CancelCauseFunc) {
	ctx, cancel = context.WithCancelCause(parent)
	done, timeout := make(chan struct{}), newTimer(until(x.deadline))
	go func() {
		defer timeout.Stop()
		var err error
		select {
		case <-ctx.Done():
		case <-done:
			select {
			case <-ctx.Done():
			case <-x.gone:
				err = errGone
			}
		case <-x.gone:
			err = errGone
		case <-x.cancelled:
			err = newError(queryCanceled, "canceling statement due to user request")
		case <-timeout.C:
			err = newError(queryCanceled, "canceling statement due to statement timeout")
		}
		cancel(err)
	}()
	return ctx, sync.OnceFunc(func() { close(done) }), cancel
}

// run sends the statement.
func (m *message) run(ctx context.Context, b *backend, on session) (a Answer, err error) {
	query, exec := on.QueryContext, on.ExecContext
	if p := m.prepared; p != nil && p.of == b {
		query = func(ctx context.Context, _ string, args ...any) (*sql.Rows, error) {
			return p.stmt.QueryContext(ctx, args...)
		}
		exec = func(ctx context.Context, _ string, args ...any) (sql.Result, error) {
			return p.stmt.ExecContext(ctx, args...)
		}
	}
	switch m.kind {
	case aPrepare:
		m.prepared.of = b
		m.prepared.stmt, err = on.PrepareContext(ctx, m.query)
	case anExec:
		a.result, err = exec(ctx, m.query, m.args...)
	default:
		var rows *sql.Rows
		if rows, err = query(ctx, m.query, m.args...); err == nil {
			a.rows = &remoteRows{Rows: rows}
			a.rows.types, err = rows.ColumnTypes()
		}
	}
	return a, err
}

// remoteRows are rows of db. The program reads and closes them.
type remoteRows struct {
	*sql.Rows
	types  []*sql.ColumnType // of this result set
	cancel context.CancelCauseFunc
}

var (
	_ driver.RowsNextResultSet              = (*remoteRows)(nil)
	_ driver.RowsColumnTypeDatabaseTypeName = (*remoteRows)(nil)
)

// Columns returns the names of the columns.
func (r *remoteRows) Columns() (names []string) {
	for _, t := range r.types {
		names = append(names, t.Name())
	}
	return names
}

// ColumnTypeDatabaseTypeName returns a column's type.
func (r *remoteRows) ColumnTypeDatabaseTypeName(i int) string { return r.types[i].DatabaseTypeName() }

// Next reads a row.
func (r *remoteRows) Next(into []driver.Value) error {
	if !r.Rows.Next() {
		return cmp.Or(r.Err(), io.EOF)
	}
	values, pointers := make([]any, len(into)), make([]any, len(into))
	for i := range values {
		pointers[i] = &values[i]
	}
	if err := r.Scan(pointers...); err != nil {
		return err
	}
	for i, value := range values {
		into[i] = value
	}
	return nil
}

// HasNextResultSet implements driver.RowsNextResultSet: NextResultSet says it.
func (r *remoteRows) HasNextResultSet() bool { return true }

// NextResultSet goes to the next result set.
func (r *remoteRows) NextResultSet() (err error) {
	if !r.Rows.NextResultSet() {
		return cmp.Or(r.Err(), io.EOF)
	}
	r.types, err = r.ColumnTypes()
	return err
}

// Close closes the rows of db.
func (r *remoteRows) Close() error {
	defer r.cancel(nil)
	return r.Rows.Close()
}

// A prepared is a statement of the tested program, prepared on the connection of a backend.
type prepared struct {
	of   *backend
	stmt *sql.Stmt
}

func (p *prepared) close() error {
	if p == nil || p.stmt == nil {
		return nil
	}
	return p.stmt.Close()
}

// forwards reports whether the program's statements go to a database of the test.
func (p *Process) forwards() bool {
	p.mu.Lock()
	server := p.server
	p.mu.Unlock()
	server.mu.Lock()
	defer server.mu.Unlock()
	return server.forward != nil
}

// library is the path of this module.
const library = "github.com/pgelector/pgelector/"

// A caller is who called database/sql.
type caller struct {
	line string // of the program; "" if it is not on this goroutine
	own  bool   // the library sends a statement of its own, or begins a transaction for itself
}

// callerOf returns the caller. The line is the first one in the program's own module, or outside the library.
func callerOf() (c caller) {
	addresses := make([]uintptr, 64)
	frames := runtime.CallersFrames(addresses[:runtime.Callers(2, addresses)])
	for first := true; ; {
		frame, more := frames.Next()
		within, ours := strings.CutPrefix(frame.Function, library)
		switch {
		case strings.HasPrefix(frame.Function, "database/sql."), strings.HasPrefix(frame.Function, "runtime."), strings.HasPrefix(within, "electortest."):
		case ours && isInside(within):
			if first {
				c.own = !strings.HasPrefix(within, "internal/fenced.") // the transactions of InTx are the program's
			}
			first = false
		case c.line == "" || isProgram(frame.Function):
			c.line, first = fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line), false
		}
		if !more || isProgram(frame.Function) && !isInside(within) && c.line != "" {
			return c
		}
	}
}

// isInside reports whether a function is of a package of the library that sends statements of the library.
func isInside(function string) bool {
	for _, folder := range []string{"internal/", "db.", "elector.", "roster.", "roster/", "shard.", "notify/", "dashboard."} {
		if strings.HasPrefix(function, folder) {
			return true
		}
	}
	return false
}

// isProgram reports whether a function is of the module whose tests run.
func isProgram(function string) bool {
	rest, ok := strings.CutPrefix(function, program())
	return ok && program() != "" && strings.IndexAny(rest, "/._") == 0
}

var program = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Path
	}
	return ""
})

package electortest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// Forward makes the server hand the statements of the tested program to db: the statements that
// are not of this library. The server plays the election. db, a pool of go-sqlmock for example, sees
// only what the program itself sends: statements with their arguments, prepared statements, and
// transactions with their options, in the order in which they reach the server. It answers them with
// its rows, results and errors, which the program gets unchanged. The transactions of elector.Term.InTx
// are the program's, too.
//
// A connection to the server that has sent such a statement keeps one connection of db until it ends. If
// it ends within a transaction, the transaction of db is rolled back.
//
// Each statement that db fails is told to report, with the line of the program that sent it: pass
// testing.T's Log, or its Error if no statement may fail. report is called on the server's goroutines.
//
// Forward replaces the handler (see [Server.Handle]). Call it before the program connects. A nil db ends it. The
// caller closes db, after the server. Not forwarded: pings, BEGIN, COMMIT and ROLLBACK as text, and result
// sets after the first.
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
	if err != nil {
		for _, report := range f.report {
			report(strings.TrimPrefix(fmt.Sprintf("%s: %s: %v", m.line, what, err), ": "))
		}
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

// begin begins a transaction of db.
func (r *remote) begin(ctx context.Context, f *forward, opts driver.TxOptions) (err error) {
	if r.conn == nil {
		if r.conn, err = f.db.Conn(ctx); err != nil {
			return err
		}
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
	case r.conn == nil:
		r.conn, err = f.db.Conn(ctx)
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
	inTx := x.tx.number != 0
	x.server.mu.Unlock()
	defer x.server.mu.Lock()
	ctx, cancel := x.interruptible(m.ctx)
	defer cancel(nil)
	on, err := x.remote.session(ctx, f, inTx)
	if err == nil {
		a, err = m.run(ctx, x.backend, on)
	}
	if why := context.Cause(ctx); err != nil && why != nil {
		err = why
	}
	return a, f.failed(m, m.query, err)
}

// interruptible returns a context that ends with the backend, with a cancel request, and with
// statement_timeout. cancel must be called.
func (x *execution) interruptible(parent context.Context) (ctx context.Context, cancel context.CancelCauseFunc) {
	ctx, cancel = context.WithCancelCause(parent)
	timeout := newTimer(until(x.deadline))
	go func() {
		defer timeout.Stop()
		select {
		case <-ctx.Done():
		case <-x.gone:
			cancel(errGone)
		case <-x.cancelled:
			cancel(newError(queryCanceled, "canceling statement due to user request"))
		case <-timeout.C:
			cancel(newError(queryCanceled, "canceling statement due to statement timeout"))
		}
	}()
	return ctx, cancel
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
			a, err = read(rows)
		}
	}
	return a, err
}

// read reads the first result set. An error after some rows is the answer's, behind these rows.
func read(rows *sql.Rows) (a Answer, err error) {
	defer func() { _ = rows.Close() }()
	if a.Columns, err = rows.Columns(); err != nil {
		return a, err
	}
	for rows.Next() {
		row, into := make([]any, len(a.Columns)), make([]any, len(a.Columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return a, err
		}
		a.Rows = append(a.Rows, row)
	}
	a.rest = rows.Err()
	return a, nil
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

// forwards reports whether a statement is the tested program's, and goes to a database of the test.
func (p *Process) forwards(query string) bool {
	p.mu.Lock()
	server := p.server
	p.mu.Unlock()
	server.mu.Lock()
	defer server.mu.Unlock()
	return server.forward != nil && nameOf(query) == ""
}

// library is the path of this module. The packages below it belong to the library, but for tests.
const library = "github.com/pgelector/pgelector/"

// origin returns the line that called database/sql, and whether the library called it for itself. The line is the
// first one of the program's own module, or of any other.
func origin() (line string, own bool) {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for first := true; ; {
		frame, more := frames.Next()
		within, ours := strings.CutPrefix(frame.Function, library)
		switch {
		case strings.HasPrefix(frame.Function, "database/sql."), strings.HasPrefix(within, "electortest."):
		case first && ours && strings.HasPrefix(within, "internal/") && !strings.HasPrefix(within, "internal/fenced."):
			return "", true
		case ours && (strings.HasPrefix(within, "internal/") || strings.HasPrefix(within, "elector.")):
			first = false
		case strings.HasPrefix(frame.Function, "runtime."):
		case line == "" || isProgram(frame.Function):
			line, first = fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line), false
			if isProgram(frame.Function) {
				return line, false
			}
		}
		if !more {
			return line, false
		}
	}
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

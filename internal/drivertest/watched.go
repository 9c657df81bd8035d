package drivertest

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"runtime/pprof"
	"strings"
	"sync"
)

// Watched makes a pool over another one, of any driver. It calls saw with the context of each call of the
// driver, on the call's goroutine, and with what is asked, such as "connect", "begin", "query Ping". The caller
// closes both pools.
func Watched(inner *sql.DB, saw func(ctx context.Context, what string)) *sql.DB {
	inner.SetMaxIdleConns(0)
	return sql.OpenDB(watcher{inner, saw})
}

type watcher struct {
	inner *sql.DB
	saw   func(ctx context.Context, what string)
}

func (w watcher) note(ctx context.Context, what, statement string) {
	w.saw(ctx, strings.TrimSpace(what+" "+NameOf(statement)))
}

func (w watcher) Driver() driver.Driver { return w.inner.Driver() }

// Connect takes a connection out of the inner pool, which never uses it again.
func (w watcher) Connect(ctx context.Context) (driver.Conn, error) {
	w.note(ctx, "connect", "")
	pinned, err := w.inner.Conn(ctx)
	if err != nil {
		return nil, err
	}
	c := &watchedConn{watcher: w, pinned: pinned}
	err = pinned.Raw(func(conn any) error { c.conn = conn.(driver.Conn); return nil })
	return c, err
}

// A watchedConn leaves everything to a connection of another driver.
type watchedConn struct {
	watcher
	pinned *sql.Conn
	conn   driver.Conn
}

// Raw is the connection below, as wrappers that trace show it.
func (c *watchedConn) Raw() driver.Conn { return c.conn }

func (c *watchedConn) Begin() (driver.Tx, error) { return nil, driver.ErrSkip }
func (c *watchedConn) Prepare(statement string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), statement)
}

func (c *watchedConn) Close() error {
	_ = c.conn.Close()
	_ = c.pinned.Raw(func(any) error { return driver.ErrBadConn })
	return nil
}

func (c *watchedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.note(ctx, "begin", "")
	return c.conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c *watchedConn) Ping(ctx context.Context) error {
	c.note(ctx, "ping", "")
	return c.conn.(driver.Pinger).Ping(ctx)
}

func (c *watchedConn) ExecContext(ctx context.Context, statement string, args []driver.NamedValue) (driver.Result, error) {
	c.note(ctx, "exec", statement)
	return c.conn.(driver.ExecerContext).ExecContext(ctx, statement, args)
}

func (c *watchedConn) QueryContext(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
	c.note(ctx, "query", statement)
	return c.conn.(driver.QueryerContext).QueryContext(ctx, statement, args)
}

func (c *watchedConn) PrepareContext(ctx context.Context, statement string) (driver.Stmt, error) {
	c.note(ctx, "prepare", statement)
	stmt, err := c.conn.(driver.ConnPrepareContext).PrepareContext(ctx, statement)
	return watchedStmt{stmt, c.watcher, statement}, err
}

func (c *watchedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *watchedConn) ResetSession(ctx context.Context) error {
	if resetter, ok := c.conn.(driver.SessionResetter); ok {
		return resetter.ResetSession(ctx)
	}
	return nil
}

func (c *watchedConn) IsValid() bool {
	validator, ok := c.conn.(driver.Validator)
	return !ok || validator.IsValid()
}

type watchedStmt struct {
	driver.Stmt
	watcher
	statement string
}

func (s watchedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.note(ctx, "execute", s.statement)
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

var (
	labelling sync.Mutex
	labelsOf  = regexp.MustCompile(`(?m)^# labels: (.*)$`)
)

// Labels are the pprof labels of the goroutine that calls it, as the profile of goroutines shows them; "" without any.
func Labels() string {
	labelling.Lock()
	defer labelling.Unlock()
	return labelsWithLock()
}

// labelsWithLock has a name of its own: the profile has one goroutine in it, and others that wait in Labels.
func labelsWithLock() string {
	for record := range strings.SplitSeq(Goroutines(), "\n\n") {
		if strings.Contains(record, "drivertest.labelsWithLock") {
			return LabelsIn(record)
		}
	}
	return ""
}

// LabelsIn are the labels in a record of a profile.
func LabelsIn(record string) string {
	if found := labelsOf.FindStringSubmatch(record); found != nil {
		return found[1]
	}
	return ""
}

// Goroutines is the profile of goroutines. A blank line is between two records.
func Goroutines() string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return fmt.Sprint(err)
	}
	return profile.String()
}

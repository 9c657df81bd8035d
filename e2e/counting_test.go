//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"maps"
	"regexp"
	"sync"
	"testing"
)

// counter counts the statements that cross a driver, by the name that sqlc has
// written before each.
type counter struct {
	mu     sync.Mutex
	counts map[string]int
}

var nameOfStatement = regexp.MustCompile(`^-- name: (\w+)`)

func (c *counter) count(statement string) {
	name := statement
	if match := nameOfStatement.FindStringSubmatch(statement); match != nil {
		name = match[1]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[name]++
}

// since is what was counted that was not counted before.
func (c *counter) since(before map[string]int) map[string]int {
	now := c.now()
	for name := range now {
		if now[name] -= before[name]; now[name] == 0 {
			delete(now, name)
		}
	}
	return now
}

func (c *counter) now() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// openCounted opens the pool of the i-th candidate, and counts.
func (d drivers) openCounted(t *testing.T, i int, dsn string) (*sql.DB, *counter) {
	t.Helper()
	c := &counter{counts: map[string]int{}}
	pool := sql.OpenDB(countingConnector{d.open(t, i, dsn).Driver(), dsn, c})
	t.Cleanup(func() { expect(t, pool.Close()) })
	return pool, c
}

type countingConnector struct {
	under   driver.Driver
	dsn     string
	counter *counter
}

func (c countingConnector) Driver() driver.Driver { return c.under }

func (c countingConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.under.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	able, ok := conn.(capable)
	if !ok {
		return nil, fmt.Errorf("%T lacks what database/sql would use", conn)
	}
	return countingConn{able, c.counter}, nil
}

// capable is what both drivers' connections are, and what the counting ones
// must therefore be.
type capable interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
}

type countingConn struct {
	capable
	counter *counter
}

func (c countingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.counter.count(query)
	return c.capable.QueryContext(ctx, query, args)
}

func (c countingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.counter.count(query)
	return c.capable.ExecContext(ctx, query, args)
}

func (c countingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.counter.count("prepare")
	stmt, err := c.capable.PrepareContext(ctx, query)
	return countingStmt{stmt, query, c.counter}, err
}

// countingStmt is a prepared statement; those of ours only ask.
type countingStmt struct {
	driver.Stmt
	query   string
	counter *counter
}

func (s countingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.counter.count("prepared " + nameOfStatement.FindStringSubmatch(s.query)[1])
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func (c countingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.counter.count("begin")
	return c.capable.BeginTx(ctx, opts)
}

func (c countingConn) Ping(ctx context.Context) error {
	c.counter.count("ping")
	return c.capable.Ping(ctx)
}

func (c countingConn) IsValid() bool {
	valid, ok := c.capable.(driver.Validator)
	return !ok || valid.IsValid()
}

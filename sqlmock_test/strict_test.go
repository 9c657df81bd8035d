package sqlmock_test

import (
	"context"
	"database/sql/driver"
	"regexp"
)

// strict is the mock's driver. It reports each call that the mock does not expect, since the elector
// may not report the error.
type strict struct {
	driver    driver.Driver
	dsn       string
	complains func(error)
}

func (s *strict) Driver() driver.Driver { return s.driver }

func (s *strict) Connect(context.Context) (driver.Conn, error) {
	conn, err := s.driver.Open(s.dsn)
	return &strictConn{conn, s}, err
}

type strictConn struct {
	driver.Conn
	of *strict
}

func (c *strictConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	return rows, c.of.seen(err)
}

func (c *strictConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if query == "BEGIN" { // the elector closes a connection for good
		return nil, driver.ErrBadConn
	}
	result, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	return result, c.of.seen(err)
}

func (c *strictConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	return stmt, c.of.seen(err)
}

func (c *strictConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	return tx, c.of.seen(err)
}

func (c *strictConn) Ping(ctx context.Context) error {
	return c.of.seen(c.Conn.(driver.Pinger).Ping(ctx))
}

var unexpected = regexp.MustCompile("was not expected|could not match|do not match")

func (s *strict) seen(err error) error {
	if err != nil && unexpected.MatchString(err.Error()) {
		s.complains(err)
	}
	return err
}

package connect

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/ask"
)

// Conn is one connection. Its own statements have no arguments, and so work through a pooler in any mode.
// Its methods return when the context ends, even if the driver does not.
type Conn struct {
	pool   *sql.DB
	conn   *sql.Conn
	driver string
}

// Connect opens one connection with the chosen driver.
func (t *Target) Connect(ctx context.Context) (*Conn, error) {
	pool, err := t.Open(handshake)
	if err != nil {
		return nil, err
	}
	conn, err := ask.Await(ctx, pool.Conn)
	if err != nil {
		go pool.Close() // lib/pq may hang
		return nil, err
	}
	return &Conn{pool, conn, t.Driver}, nil
}

// Close closes the connection. It does not wait.
func (c *Conn) Close() {
	go func() {
		_ = c.conn.Close()
		_ = c.pool.Close()
	}()
}

// Backend returns the process id of the backend that answers. It sets a parameter for the statement, as
// candidates do: some proxies keep the backend from then on.
func (c *Conn) Backend(ctx context.Context) (pid uint32, err error) {
	pid, err = ask.Await(ctx, func(ctx context.Context) (pid uint32, err error) {
		err = c.conn.QueryRowContext(ctx, "SELECT pg_catalog.pg_backend_pid() FROM pg_catalog.set_config('pgelector.doctor', '', true)").Scan(&pid)
		return pid, err
	})
	if err != nil {
		return 0, fmt.Errorf("ask for the backend: %w", err)
	}
	return pid, nil
}

// Do calls f with the connection.
func (c *Conn) Do(ctx context.Context, f func(context.Context, *sql.Conn) error) error {
	_, err := ask.Await(ctx, func(ctx context.Context) (any, error) { return nil, f(ctx, c.conn) })
	return err
}

// Greeted returns the process id with which the other end introduced itself. lib/pq does not tell it.
func (c *Conn) Greeted() (pid uint32, known bool) {
	_ = c.conn.Raw(func(conn any) error {
		if c, ok := conn.(*stdlib.Conn); ok {
			pid, known = c.Conn().PgConn().PID(), true
		}
		return nil
	})
	return pid, known
}

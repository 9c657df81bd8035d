package pin

import (
	"context"
	"database/sql"

	"github.com/pgelector/pgelector/db"
)

// What parts do on a connection, within a call or as its only user: transactions, and statements that are
// prepared ahead.

// Queries are the statements, on the connection or in its transaction.
func (c *Conn) Queries() *db.Queries { return c.q }

// InTx reports whether calls are made within a transaction.
func (c *Conn) InTx() bool { return c.tx != nil }

// Begin has the next calls made within a transaction, until RollBack or Commit. It outlives the call that
// begins it, and carries none of that call's values.
func (c *Conn) Begin() error {
	tx, err := c.conn.BeginTx(c.ctx, nil)
	if err == nil {
		c.tx, c.q = tx, db.New(tx)
	}
	return err
}

// RollBack ends the transaction.
func (c *Conn) RollBack() error { return c.leave().Rollback() }

// Commit ends the transaction.
func (c *Conn) Commit() error { return c.leave().Commit() }

func (c *Conn) leave() *sql.Tx {
	tx := c.tx
	c.tx, c.q = nil, db.New(c.conn)
	return tx
}

// Exec executes a statement within the transaction.
func (c *Conn) Exec(ctx context.Context, statement string) error {
	_, err := c.tx.ExecContext(ctx, statement)
	return err
}

// Show reads one text within the transaction.
func (c *Conn) Show(ctx context.Context, statement string) (text string, err error) {
	err = c.tx.QueryRowContext(ctx, statement).Scan(&text)
	return text, err
}

// Prepare prepares those of the statements, of one row each, that are not prepared yet. They
// then cost one round trip with any driver, and are not planned again.
func (c *Conn) Prepare(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if c.prepared[statement] != nil {
			continue
		}
		stmt, err := c.conn.PrepareContext(ctx, statement)
		if err != nil {
			return err
		}
		c.prepared[statement] = stmt
	}
	c.q = db.New(preparing{c.conn, c.prepared})
	return nil
}

// preparing is a connection with some of its statements prepared.
type preparing struct {
	*sql.Conn
	prepared map[string]*sql.Stmt
}

func (p preparing) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt := p.prepared[query]; stmt != nil {
		return stmt.QueryRowContext(ctx, args...)
	}
	return p.Conn.QueryRowContext(ctx, query, args...)
}

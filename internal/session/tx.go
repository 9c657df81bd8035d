package session

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/pgelector/pgelector/internal/fault"
)

// A Tx is a transaction of the user's, on a connection that is kept beside it to
// tell, after a failed COMMIT, whether it still lives.
type Tx struct {
	*sql.Tx
	conn *sql.Conn
}

// Begin begins a transaction on a connection of the pool: another one, as
// database/sql does it, if that turns out to be dead. It must be ended by Commit or
// Rollback.
func Begin(ctx context.Context, pool *sql.DB, opts *sql.TxOptions) (*Tx, error) {
	for idle := pool.Stats().Idle; ; idle-- {
		conn, err := pool.Conn(ctx)
		if err != nil {
			return nil, err
		}
		tx, err := conn.BeginTx(ctx, opts)
		if err == nil {
			return &Tx{Tx: tx, conn: conn}, nil
		}
		_ = conn.Close()
		if idle <= 0 || !errors.Is(err, driver.ErrBadConn) {
			return nil, err
		}
	}
}

// Rollback ends the transaction, unless it has ended.
func (tx *Tx) Rollback() {
	_ = tx.Tx.Rollback()
	_ = tx.conn.Close()
}

// Commit commits, and tells what is known about the outcome: nil, ErrRolledBack
// or ErrOutcomeUnknown. The driver's call is not waited for once ctx has ended.
func (tx *Tx) Commit(ctx context.Context) error {
	committed := make(chan error, 1)
	go func() {
		defer tx.conn.Close()
		committed <- tx.outcome(ctx, tx.Tx.Commit())
	}()
	select {
	case err := <-committed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: COMMIT was not answered: %w", ErrOutcomeUnknown, context.Cause(ctx))
	}
}

// outcome is what a driver's answer to COMMIT means. An error of the driver's
// own, without a SQLSTATE, on a connection that goes on, is how both drivers say
// that the server has answered ROLLBACK: a statement had failed, and fn has not
// returned the error.
func (tx *Tx) outcome(ctx context.Context, err error) error {
	switch state := fault.State(err); {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("%w: fn has ended the transaction, which InTx does: %w", ErrOutcomeUnknown, err)
	case fault.Broken(err) || strings.HasPrefix(state, "08"):
		return fault.Because(ErrOutcomeUnknown, err)
	case state == "":
		if tx.conn.PingContext(ctx) != nil {
			return fault.Because(ErrOutcomeUnknown, err)
		}
	}
	return fault.Because(ErrRolledBack, err) // the server says so
}

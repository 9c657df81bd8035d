// Package pooled asks on a pool that may have a transaction pooler before it.
package pooled

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// A Pool is a *sql.DB, or one *sql.Conn of it.
type Pool interface {
	db.DBTX
	BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
}

// Ask makes a call that reads, in a transaction. Without it, lib/pq and some modes of pgx send a
// statement and its arguments apart, and a transaction pooler could give the arguments to a
// backend where another client has just prepared its own statement. Only a pooler that answers
// and permits no transaction, as in statement mode, is asked without one.
//
// The transaction is rolled back. It may be one that other code has left open on the connection:
// pgx would refuse that, but a wrapper of the driver may hide its check from database/sql.
func Ask[T any](ctx context.Context, pool Pool, call func(db.DBTX) (T, error)) (T, error) {
	return ask(ctx, pool, false, call)
}

// Tell is Ask for a call that writes. It commits nothing of other code.
func Tell[T any](ctx context.Context, pool Pool, call func(db.DBTX) (T, error)) (T, error) {
	return ask(ctx, pool, true, call)
}

func ask[T any](ctx context.Context, pool Pool, writes bool, call func(db.DBTX) (T, error)) (value T, err error) {
	err = onceOrTwice(ctx, pool, writes, func(q db.DBTX) (err error) {
		value, err = call(q)
		return err
	})
	return value, err
}

func onceOrTwice(ctx context.Context, pool Pool, writes bool, call func(db.DBTX) error) (err error) {
	once := func() string {
		err = pgerr.Connecting(askOnce(ctx, pool, writes, call))
		return pgerr.State(err)
	}
	switch once() {
	case "25P02": // other code has left a transaction open that has failed: BEGIN does, too
		_, _ = pool.ExecContext(ctx, "ROLLBACK") // a pool lends the connection first that came back last
		once()
	case "26000", "42P05": // a prepared statement is missing or in the way: other code has run DISCARD ALL, say
		once()
	}
	return err
}

func askOnce(ctx context.Context, pool Pool, writes bool, call func(db.DBTX) error) error {
	if ctx.Err() != nil { // database/sql may be closing the *sql.Conn of the transaction that ctx has ended
		return ctx.Err() // as BeginTx would
	}
	tx, err := pool.BeginTx(ctx, nil)
	if pgerr.State(err) == "0A000" { // a standby: lib/pq wants to write
		tx, err = pool.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	}
	for n := 1; IsRefusal(err) && Answers(ctx, pool) == nil; n++ { // or the pooler was full, or its backends end
		if n == Refusals {
			return call(pool)
		}
		tx, err = pool.BeginTx(ctx, nil)
	}
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if !writes {
		return call(tx)
	}
	if _, err := tx.ExecContext(ctx, db.RollBackAndChain); err != nil {
		return err
	}
	if err := call(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Answers returns nil if the server answers. It sends a statement, because the Ping of database/sql asks
// nobody where a wrapper hides the driver's Ping.
func Answers(ctx context.Context, pool Pool) error {
	_, err := pool.ExecContext(ctx, db.Nothing)
	return err
}

// Refusals are how many transactions a pooler in statement mode has refused at least.
const Refusals = 5

// IsRefusal reports whether an error of BEGIN may come from a pooler in statement mode. Such a pooler ends
// the connection, and lib/pq then says no more than of any connection that has ended.
func IsRefusal(err error) bool {
	return pgerr.State(err) == "08P01" || errors.Is(err, driver.ErrBadConn)
}

package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// A Pool is a *sql.DB, or one *sql.Conn of it.
type Pool interface {
	DBTX
	BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
}

// Ask makes a call in a transaction. Outside one, lib/pq and some modes of pgx send a statement
// and its arguments apart, and a transaction pooler could give the arguments to a backend where
// another client has just prepared its own statement. If a prepared statement is missing or in
// the way, because other code has run DISCARD ALL say, Ask tries once more. Where no transaction
// can begin, the call is made without one: lib/pq wants to write, which a standby refuses, and a
// pooler in statement mode ends the connection.
func Ask[T any](ctx context.Context, pool Pool, call func(DBTX) (T, error)) (value T, err error) {
	err = ask(ctx, pool, func(q DBTX) (err error) {
		value, err = call(q)
		return err
	})
	return value, err
}

func ask(ctx context.Context, pool Pool, call func(DBTX) error) error {
	err := askOnce(ctx, pool, call)
	if state := stateOf(err); state == "26000" || state == "42P05" {
		err = askOnce(ctx, pool, call)
	}
	return err
}

func stateOf(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}

func askOnce(ctx context.Context, pool Pool, call func(DBTX) error) error {
	tx, err := pool.BeginTx(ctx, nil)
	switch state := stateOf(err); {
	case state == "0A000", state == "08P01", errors.Is(err, driver.ErrBadConn):
		return call(pool)
	case err != nil:
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if err := call(tx); err != nil {
		return err
	}
	return tx.Commit()
}

package db

import (
	"context"
	"database/sql"
	"errors"
)

// A Beginner is a *sql.DB or a *sql.Conn.
type Beginner interface {
	BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
}

// Ask makes a call in a transaction. Outside one, lib/pq and some modes of pgx send a statement
// and its arguments apart, and a transaction pooler could give the arguments to a backend where
// another client has just prepared its own statement. If a prepared statement is missing or in
// the way, because other code has run DISCARD ALL say, Ask tries once more.
func Ask[T any](ctx context.Context, pool Beginner, call func(DBTX) (T, error)) (value T, err error) {
	err = ask(ctx, pool, func(q DBTX) (err error) {
		value, err = call(q)
		return err
	})
	return value, err
}

func ask(ctx context.Context, pool Beginner, call func(DBTX) error) error {
	err := askOnce(ctx, pool, call)
	var state interface{ SQLState() string }
	if errors.As(err, &state) && (state.SQLState() == "26000" || state.SQLState() == "42P05") {
		err = askOnce(ctx, pool, call)
	}
	return err
}

func askOnce(ctx context.Context, pool Beginner, call func(DBTX) error) error {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if err := call(tx); err != nil {
		return err
	}
	return tx.Commit()
}

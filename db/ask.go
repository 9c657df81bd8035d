package db

import (
	"context"
	"database/sql"
	"errors"
)

// A Pool is a *sql.DB, or one *sql.Conn.
type Pool interface {
	DBTX
	BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
}

// Ask makes a call on the pool. A transaction pooler can give a statement and its arguments to
// different backends, of which the second one executes nothing. Then Ask calls again, inside a
// transaction, which has one backend.
func Ask[T any](ctx context.Context, pool Pool, call func(DBTX) (T, error)) (T, error) {
	value, err := call(pool)
	var state interface{ SQLState() string }
	if !errors.As(err, &state) {
		return value, err
	}
	switch state.SQLState() {
	case "08P01", "26000", "42P05": // other parameters than sent, no such statement, it exists already
	default:
		return value, err
	}
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return value, err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if value, err = call(tx); err != nil {
		return value, err
	}
	return value, tx.Commit()
}

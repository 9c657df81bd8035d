// Package ask asks the server a question, and gives up in time. The connection may have a
// transaction pooler before it.
package ask

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/pgelector/pgelector/db"
)

// Await makes a driver call, which may not return when its context ends, as on a dead link. Await
// then returns the context's cause, and leaves the call to its own goroutine.
func Await[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := call(ctx)
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// Sleep waits for d and reports whether it did; false means that ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Server makes a call in a transaction, which it rolls back, and returns when ctx ends. Outside a
// transaction a statement and its arguments may travel apart, and a transaction pooler could give
// the arguments to another backend. Only a pooler that answers and permits no transaction, as in
// statement mode, is asked without one.
func Server[T any](ctx context.Context, pool *sql.DB, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	return Await(ctx, func(ctx context.Context) (T, error) {
		value, err := once(ctx, pool, call)
		switch State(err) {
		case "26000", "42P05": // a prepared statement is missing or in the way: a pooler has changed the backend
			return once(ctx, pool, call)
		}
		return value, err
	})
}

func once[T any](ctx context.Context, pool *sql.DB, call func(context.Context, *db.Queries) (T, error)) (none T, err error) {
	tx, err := pool.BeginTx(ctx, nil)
	if State(err) == "0A000" { // a standby: lib/pq wants to write
		tx, err = pool.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	}
	for n := 1; IsRefusal(err) && pool.PingContext(ctx) == nil; n++ { // or the pooler was full, or its backends end
		if n == refusals {
			return call(ctx, db.New(pool))
		}
		tx, err = pool.BeginTx(ctx, nil)
	}
	if err != nil {
		return none, err
	}
	defer func() { _ = tx.Rollback() }()
	return call(ctx, db.New(tx))
}

// refusals are how many transactions a pooler in statement mode has refused at least.
const refusals = 5

// IsRefusal reports whether an error of BEGIN may come from a pooler in statement mode. Such a pooler ends
// the connection, and lib/pq then says no more than of any connection that has ended.
func IsRefusal(err error) bool {
	return State(err) == "08P01" || errors.Is(err, driver.ErrBadConn)
}

// State is the SQLSTATE of a driver's error, "" if it has none. The errors of both drivers have
// this method.
func State(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}

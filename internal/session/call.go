package session

import (
	"context"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pin"
)

// A Caller makes calls in one way:
//
//	caller               on which connection              in which time          in which transaction
//	a *Session           the session's                    while it is valid      the session's, if it has one
//	Session.Simple       the same, by the simple protocol
//	Session.Fresh        the same                         a whole validity       the same
//	Quiet                the same                         while it is valid      the same; the answer proves nothing
//	Session.Trial        the same                         while it is valid      behind a savepoint, for what the server may refuse
//	Session.Aux          another in transaction scope,    while it is valid      its own there
//	                     else the session's
//	Session.AuxThenVerify  as Aux, and then on the session, which must have its locks still
//	Reading, Writing     any of the pool                  a timeout              its own
type Caller interface {
	// Call waits for the answer while it is of use. Then it returns the cause, and the call
	// goes on; late, which may be nil, is called if it succeeds after all.
	Call(ctx context.Context, call pin.Call, late func()) (answered bool, err error)
}

// A CallerFunc is a function that is a Caller.
type CallerFunc func(ctx context.Context, call pin.Call, late func()) (answered bool, err error)

func (c CallerFunc) Call(ctx context.Context, call pin.Call, late func()) (bool, error) {
	return c(ctx, call, late)
}

// Do has a caller ask the server by a method of db.Queries, or by a function of that form, and returns
// the answer.
func Do[T any](ctx context.Context, by Caller, statement func(*db.Queries, context.Context) (T, error)) (T, error) {
	return DoOr(ctx, by, statement, func(T) {})
}

// DoOr is Do for an answer that must not be lost: drop receives one that comes when DoOr has
// returned.
func DoOr[T any](ctx context.Context, by Caller, statement func(*db.Queries, context.Context) (T, error), drop func(T)) (T, error) {
	var value, none T
	answered, err := by.Call(ctx, func(ctx context.Context, q *db.Queries) (err error) {
		value, err = statement(q, ctx)
		return err
	}, func() { drop(value) })
	if !answered { // the call may go on, and write the value
		return none, err
	}
	return value, err
}

// Ask is Do for a statement with an argument.
func Ask[A, T any](ctx context.Context, by Caller, statement func(*db.Queries, context.Context, A) (T, error), argument A) (T, error) {
	return Do(ctx, by, func(q *db.Queries, ctx context.Context) (T, error) { return statement(q, ctx, argument) })
}

// A Scope is how long the locks of a session last.
type Scope int

const (
	Auto Scope = iota // SessionScope, unless shared backends are found
	SessionScope
	TransactionScope
)

// An Owner is what the server keeps the locks of a session for. It is the connection, unless a part has
// said otherwise by SetOwner. The session calls After, Failed and Ping within its calls.
type Owner interface {
	Scope() Scope

	// By is the caller that makes calls in that way.
	By(way Way) Caller

	// After follows a call that the server has answered. An error says that the locks are gone.
	After(ctx context.Context) error

	// Failed reports whether a call that fails costs the locks.
	Failed() bool

	// Ping asks for a heartbeat. An error says that the session is lost.
	Ping(ctx context.Context, q *db.Queries) (db.PingRow, error)

	// Stay asks the server whether the owner is there still, unless the session is the owner.
	Stay(ctx context.Context) error

	// RollBack releases what was taken, so that the connection can go back to the pool.
	RollBack(ctx context.Context) error

	// Drop gives up what the owner has beside the session. Start and the end of the session call it.
	Drop(discard bool)
}

// A Way is a way to make calls that depends on the owner of the locks: see Caller.
type Way int

const (
	Trial Way = iota
	Aux
	AuxThenVerify
)

package session

import (
	"context"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
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

type caller func(ctx context.Context, call pin.Call, late func()) (answered bool, err error)

func (c caller) Call(ctx context.Context, call pin.Call, late func()) (bool, error) {
	return c(ctx, call, late)
}

// Do makes a call, and returns its value.
func Do[T any](ctx context.Context, by Caller, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	return DoOr(ctx, by, call, func(T) {})
}

// DoOr is Do for an answer that must not be lost: drop receives one that comes when DoOr has
// returned.
func DoOr[T any](ctx context.Context, by Caller, call func(context.Context, *db.Queries) (T, error), drop func(T)) (T, error) {
	var value, none T
	answered, err := by.Call(ctx, func(ctx context.Context, q *db.Queries) (err error) {
		value, err = call(ctx, q)
		return err
	}, func() { drop(value) })
	if !answered { // the call may go on, and write the value
		return none, err
	}
	return value, err
}

// Ask is Do for one statement with an argument.
func Ask[A, T any](ctx context.Context, by Caller, statement func(*db.Queries, context.Context, A) (T, error), argument A) (T, error) {
	return Do(ctx, by, func(ctx context.Context, q *db.Queries) (T, error) { return statement(q, ctx, argument) })
}

// Ask0 is Do for one statement without an argument.
func Ask0[T any](ctx context.Context, by Caller, statement func(*db.Queries, context.Context) (T, error)) (T, error) {
	return Do(ctx, by, func(ctx context.Context, q *db.Queries) (T, error) { return statement(q, ctx) })
}

// Call makes a call on the session. It waits for the answer until ctx ends, or the session does, or
// its validity runs out. Then the call goes on: cancelling it would cost the session, because both
// drivers close a connection whose context ends. An answer proves that the session lives.
func (s *Session) Call(ctx context.Context, call pin.Call, late func()) (answered bool, err error) {
	return s.call(ctx, true, func(ctx context.Context, q *db.Queries) error {
		err := call(ctx, q)
		if err == nil && s.tx.probeAfterCall {
			err = s.pingTransaction(ctx)
		}
		return err
	}, late)
}

// Simple makes calls of a statement without arguments and rows, which drivers send by the simple
// protocol.
func (s *Session) Simple() Caller {
	return caller(func(ctx context.Context, call pin.Call, late func()) (bool, error) {
		return s.call(ctx, true, call, late)
	})
}

// Quiet makes calls whose answers prove nothing, so heartbeats keep their times. But an answer that took
// long does: no heartbeat could be sent meanwhile.
func Quiet(s *Session) Caller {
	return caller(func(ctx context.Context, call pin.Call, late func()) (bool, error) {
		return s.call(ctx, false, func(ctx context.Context, q *db.Queries) error {
			sent := s.Proof.Now()
			err := call(ctx, q)
			if err == nil && s.Proof.Now().Since(sent) > lease.ClockCheckEvery {
				s.Proof.Renew(sent)
			}
			return err
		}, late)
	})
}

// Fresh makes calls on a connection that holds nothing: each may take the whole validity, however
// long those before it took.
func (s *Session) Fresh() Caller {
	return caller(func(ctx context.Context, call pin.Call, late func()) (bool, error) {
		s.Proof.Renew(s.Proof.Now())
		return s.Call(ctx, call, late)
	})
}

// call makes a call. Its success proves that the session lives if it asks the server in any case.
func (s *Session) call(ctx context.Context, proves bool, call pin.Call, late func()) (answered bool, err error) {
	either, stop := backoff.Either(ctx, s.life.ctx)
	defer stop()
	waiting, cancel := s.Proof.While(either, s.errTimeout)
	defer cancel()
	if waiting.Err() == nil && s.life.ctx.Err() != nil { // which the context may not know yet
		return false, context.Cause(s.life.ctx)
	}
	var sent lease.Instant
	return s.pin.Call(waiting, func(ctx context.Context, q *db.Queries) error {
		sent = s.Proof.Now()
		return call(ctx, q)
	}, func(err error) error {
		switch {
		case err == nil:
			if proves {
				s.Proof.Renew(sent)
			}
		case s.pin.IsInLeftTx(err):
			err = pgerr.Wrap(pgerr.ErrOpenTransaction, err)
		case s.tx.probeAfterCall: // the server has released the locks
			s.life.cancel(pgerr.Wrap(pgerr.ErrSessionLost, err))
		}
		return pgerr.CauseOr(waiting, err)
	}, late)
}

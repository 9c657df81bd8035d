package session

import (
	"context"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// Call makes a call on the session. It waits for the answer until ctx ends, or the session does, or
// its validity runs out. Then the call goes on: cancelling it would cost the session, because both
// drivers close a connection whose context ends. An answer proves that the session lives.
func (s *Session) Call(ctx context.Context, call pin.Call, late func()) (answered bool, err error) {
	return s.call(ctx, true, s.owner.After, call, late)
}

// Simple makes calls of a statement without arguments and rows, which drivers send by the simple
// protocol.
func (s *Session) Simple() Caller {
	return CallerFunc(func(ctx context.Context, call pin.Call, late func()) (bool, error) {
		return s.call(ctx, true, nil, call, late)
	})
}

// Quiet makes calls whose answers prove nothing, so heartbeats keep their times. But an answer that took
// long does: no heartbeat could be sent meanwhile.
func Quiet(s *Session) Caller {
	return CallerFunc(func(ctx context.Context, call pin.Call, late func()) (bool, error) {
		return s.call(ctx, false, nil, func(ctx context.Context, q *db.Queries) error {
			sent := s.Proof.Now()
			err := call(ctx, q)
			if err == nil && s.Proof.Now().Since(sent) > lease.ClockCheckEvery {
				s.Proof.Renew(sent)
			}
			return err
		}, late)
	})
}

// Fresh makes one call, at once, on a connection that holds nothing: it may take the whole validity,
// however long those before it took.
func (s *Session) Fresh() Caller {
	s.Proof.Renew(s.Proof.Now())
	return s
}

// call makes a call, and after, if that is not nil, follows one that was answered. Its success proves that
// the session lives if it asks the server in any case.
func (s *Session) call(ctx context.Context, proves bool, after func(context.Context) error, call pin.Call, late func()) (answered bool, err error) {
	either, stop := backoff.Either(ctx, s.life.ctx)
	defer stop()
	waiting, cancel := s.Proof.While(either, s.Timeout())
	defer cancel()
	if waiting.Err() == nil && s.life.ctx.Err() != nil { // which the context may not know yet
		return false, context.Cause(s.life.ctx)
	}
	var sent lease.Instant
	return s.pin.Call(waiting, func(ctx context.Context, q *db.Queries) error {
		sent = s.Proof.Now()
		err := call(ctx, q)
		if err == nil && after != nil {
			err = after(ctx)
		}
		return err
	}, func(err error) error {
		switch {
		case err == nil:
			if proves {
				s.Proof.Renew(sent)
			}
		case s.pin.IsInLeftTx(err):
			err = pgerr.Wrap(pgerr.ErrOpenTransaction, err)
		case s.owner.Failed():
			s.life.cancel(pgerr.Wrap(pgerr.ErrSessionLost, err))
		}
		return pgerr.CauseOr(waiting, err)
	}, late)
}

// Trial, Aux and AuxThenVerify are ways: see Caller.
func (s *Session) Trial() Caller         { return s.owner.By(Trial) }
func (s *Session) Aux() Caller           { return s.owner.By(Aux) }
func (s *Session) AuxThenVerify() Caller { return s.owner.By(AuxThenVerify) }

// Owner is what the server keeps the session's locks for.
func (s *Session) Owner() Owner { return s.owner }

// InTransaction reports whether the session has its locks inside a transaction.
func (s *Session) InTransaction() bool { return s.owner.Scope() == TransactionScope }

// Stay returns nil if the owner of the locks is there still.
func (s *Session) Stay(ctx context.Context) error { return s.owner.Stay(ctx) }

// A connection is the owner of the locks in session scope.
type connection struct{ s *Session }

func (connection) Scope() Scope                   { return SessionScope }
func (c connection) By(Way) Caller                { return c.s }
func (connection) After(context.Context) error    { return nil }
func (connection) Failed() bool                   { return false }
func (connection) Stay(context.Context) error     { return nil }
func (connection) RollBack(context.Context) error { return nil }
func (connection) Drop(bool)                      {}

// Ping lets a full lock table say nothing about the session: then it can take no lock for a moment.
func (connection) Ping(ctx context.Context, q *db.Queries) (db.PingRow, error) {
	ping, err := q.Ping(ctx)
	if pgerr.State(err) == "53200" {
		var server db.DescribeServerRow
		server, err = q.DescribeServer(ctx)
		ping = db.PingRow{Pid: server.Pid, InRecovery: server.InRecovery}
	}
	return ping, err
}

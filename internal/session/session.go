package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// A Session is one pinned connection and the server backend behind it. Its methods may
// be called from any goroutine. It ends in one of two ways. GiveBack returns the
// connection to the pool, and is only for one on which nothing was changed. Discard
// closes it: sql.Conn.Close would return it to the pool with its settings and locks.
type Session struct {
	Proof       *lease.Proof // that it lives
	pin         *pin.Conn
	inside      bool                                    // it has its locks inside a transaction
	stays       bool                                    // PingTransaction follows each query
	forNow      bool                                    // a savepoint stays open, for TryForNow
	settings    string                                  // of the transaction
	borrowAside func(context.Context) (*Session, error) // a connection for Apart
	aside       *Session                                // makes the calls of Apart; may be nil

	ctx        context.Context         // done when the session has ended
	cancel     context.CancelCauseFunc // ends the session
	closed     chan struct{}           // closed when keep has discarded the connection
	errTimeout error                   // of a call that takes longer than the validity that is left
	abandoned  func(error)             // reports a driver call that does not return

	number int64       // of this session, in this process
	pid    int32       // of the backend that the first statement reached
	server string      // when its server started; in session scope "" until a check or a request asks
	mark   string      // of its transaction, which only PingTransaction inside that shows; "" before a statement has told
	name   int64       // random; see Name
	named  atomic.Bool // the session holds that lock

	termCtx  context.Context // done when no term may go on
	endTerms context.CancelCauseFunc

	identity atomic.Pointer[identity] // of its server, once asked
	met      atomic.Pointer[identity] // another server to compare with
	looking  atomic.Bool              // whether LookAround asks for one
	seeking  atomic.Bool              // whether hear asks for them
	unheard  int                      // how often in a row it could not
	newest   *newest                  // the newest primary that its Server has seen

	holds   *gate.Gate    // the work that relies on the session's locks
	evict   func()        // terminates the backend if a pooler has moved the session from it; may be nil
	suspect chan struct{} // asks keep for a heartbeat at once

	beside  []func()       // started with the session; they return soon after its end
	helpers sync.WaitGroup // those that run, and LookAround
}

// An asker is Do, or a function like it.
type asker[T any] func(context.Context, *Session, func(context.Context, *db.Queries) (T, error)) (T, error)

// Do makes one driver call on the session. It waits for the answer until ctx ends, or the
// session does, or its validity runs out. Then it returns the cause, and the call goes on:
// cancelling it would cost the session, because both drivers close a connection whose
// context ends.
func Do[T any](ctx context.Context, s *Session, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	return DoOr(ctx, s, call, func(T) {})
}

// DoOr is Do for an answer that must not be lost: drop receives one that comes when Do has
// returned.
func DoOr[T any](ctx context.Context, s *Session, call func(context.Context, *db.Queries) (T, error), drop func(T)) (T, error) {
	return do(ctx, s, true, func(ctx context.Context, q *db.Queries) (T, error) {
		value, err := call(ctx, q)
		if err == nil && s.stays {
			err = s.pingTransaction(ctx)
		}
		return value, err
	}, drop)
}

// pingTransaction asks whether the transaction goes on. It is called within Do.
func (s *Session) pingTransaction(ctx context.Context) error {
	if !s.pin.InTx() {
		return errTransactionOver
	}
	state, err := s.pin.Show(ctx, db.PingTransaction)
	if pgerr.State(err) == "42704" || err == nil && (state == "" || state != s.mark) {
		err = errTransactionOver
	}
	return err
}

// doSimple is Do for a statement without arguments and rows, which drivers send by the
// simple protocol.
func doSimple[T any](ctx context.Context, s *Session, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	return do(ctx, s, true, call, func(T) {})
}

// do makes a call. Its success proves that the session lives if it asks the server in any case.
func do[T any](ctx context.Context, s *Session, proves bool, call func(context.Context, *db.Queries) (T, error), drop func(T)) (T, error) {
	var value, none T
	either, stop := backoff.Either(ctx, s.ctx)
	defer stop()
	waiting, cancel := s.Proof.While(either, s.errTimeout)
	defer cancel()
	if waiting.Err() == nil && s.ctx.Err() != nil { // which the context may not know yet
		return none, context.Cause(s.ctx)
	}
	var sent lease.Instant
	answered, err := s.pin.Call(waiting, func(ctx context.Context, q *db.Queries) (err error) {
		sent = s.Proof.Now()
		value, err = call(ctx, q)
		return err
	}, func(err error) error {
		switch {
		case err == nil:
			if proves {
				s.Proof.Renew(sent)
			}
		case s.pin.IsInLeftTx(err):
			err = pgerr.Wrap(pgerr.ErrOpenTransaction, err)
		case s.stays: // the server has released the locks
			s.cancel(pgerr.Wrap(pgerr.ErrSessionLost, err))
		}
		return pgerr.CauseOr(waiting, err)
	}, func() { drop(value) })
	if !answered { // the call may go on, and write the value
		return none, err
	}
	return value, err
}

// doFresh is Do on a connection that holds nothing: the call may take the whole validity,
// however long those before it took.
func doFresh[T any](ctx context.Context, s *Session, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	s.Proof.Renew(s.Proof.Now())
	return Do(ctx, s, call)
}

// begin has the next calls made within a transaction, until rollBack.
func (s *Session) begin(ctx context.Context) error {
	_, err := doFresh(ctx, s, func(ctx context.Context, _ *db.Queries) (any, error) {
		s.mark = ""
		err := s.pin.Begin(ctx)
		if err == nil && s.inside {
			s.identity.Store(nil) // a pooler may lead each transaction to another server
		}
		for _, level := range []string{db.RepeatableRead, db.ReadCommitted} {
			if err == nil && s.inside {
				err = s.pin.Exec(ctx, level)
			}
		}
		if state := pgerr.State(err); state == "25001" || state == "25P02" {
			err = pgerr.Wrap(pgerr.ErrOpenTransaction, err)
		}
		return nil, err
	})
	return err
}

// rollBack ends the transaction. It returns err, or why the rollback failed.
func (s *Session) rollBack(ctx context.Context, err error) error {
	_, failed := doFresh(ctx, s, func(context.Context, *db.Queries) (any, error) {
		s.stays = false
		return nil, s.pin.RollBack()
	})
	if err != nil {
		return err
	}
	return failed
}

// Prepare prepares the statements, of one row each. They then cost one round trip with any
// driver, and are not planned again. Inside a transaction it does nothing: a pooler would keep
// them.
func (s *Session) Prepare(ctx context.Context, statements ...string) error {
	if s.inside {
		return nil
	}
	_, err := do(ctx, s, false, func(ctx context.Context, _ *db.Queries) (any, error) { return nil, s.pin.Prepare(ctx, statements...) }, func(any) {})
	return err
}

// GiveBack returns the connection to the pool. It rolls a transaction back, and closes the
// connection if that takes long.
func (s *Session) GiveBack() {
	s.StillNewest()
	ctx, cancel := context.WithTimeout(context.Background(), pin.CloseGrace)
	defer cancel()
	if s.pin.InTx() && s.rollBack(ctx, nil) != nil {
		s.Discard()
		return
	}
	s.pin.GiveBack()
	s.dropAside()
}

// dropAside gives back the connection beside the session, if there is one.
func (s *Session) dropAside() {
	if s.aside != nil {
		s.aside.GiveBack()
		s.aside = nil
	}
}

// Discard ends the session and closes its connection. If a driver call does not return,
// the connection is closed when it does.
func (s *Session) Discard() {
	s.StillNewest()
	s.cancel(errClosed)
	defer s.helpers.Wait()
	if s.aside != nil {
		defer s.aside.Discard()
	}
	if s.evict != nil && errors.Is(context.Cause(s.ctx), pgerr.ErrSessionPooled) {
		s.evict()
	}
	// In transaction scope nothing stays on the connection.
	if !s.pin.Discard(s.inside, !errors.Is(context.Cause(s.ctx), errClosed)) {
		s.abandoned(fmt.Errorf("elector: the driver does not return from a call on a connection that is given up (backend %d): "+
			"it is left alone and closed when the driver returns: %w", s.pid, context.Cause(s.ctx)))
	}
}

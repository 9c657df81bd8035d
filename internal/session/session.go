package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// A Session is one pinned connection and the server backend behind it. It ends in one of two ways.
// GiveBack returns the connection to the pool, and is only for one on which nothing was changed.
// Discard closes it: sql.Conn.Close would return it to the pool with its settings and locks.
//
// Until Start one goroutine owns the session, and it alone calls the methods, but for those of a
// context: HeartbeatNow, Lose. From Start on any goroutine may make calls (Do, Ask, with s, Simple,
// Trial, Aux or AuxThenVerify), try locks of two integers, and call Context, TermContext, Valid, Ended,
// PID, Number, ServerStart, InTransaction, IsStarted, Hold, Go, EndTerms and Close. Then keep owns the
// connection: nobody else calls GiveBack, Discard, BeginTransaction, RollBack, Anew, SetBackend, SetPID
// or SetTransaction. EndTransaction and LetGo are for within a call.
type Session struct {
	Proof *lease.Proof // that it lives

	pin   *pin.Conn
	life  *life
	on    backend
	owner Owner    // of the locks
	kept  sync.Map // by the parts; see PerSession

	onAbandonedCall func(error) // reports a driver call that does not return
	evict           func()      // terminates the backend if the session was moved from it; may be nil
}

// A backend is the server process behind a session.
type backend struct {
	number        int64                  // of the session, in this process
	pid           int32                  // of the backend that the first statement reached
	serverStarted atomic.Pointer[string] // when its server started; nil or "" until a check or a request asks
	mark          string                 // of the transaction that owns the locks; "" before a statement has told
}

func (b *backend) started() string {
	if started := b.serverStarted.Load(); started != nil {
		return *started
	}
	return ""
}

// A life is a session's, from the first call to its end: who ends it and why, who still needs its
// connection after that, and what runs beside it.
//
//	lent      ctx is not done, started is false, closed is open
//	started   ctx is not done, started is true: keep runs
//	ended     ctx is done, and its cause says why; closed is open while work holds the connection
//	closed    closed is closed: the connection is given up
//
// termCtx ends with ctx, or before it: then no term may go on, and the session waits for their work.
type life struct {
	ctx      context.Context         // done when the session has ended
	cancel   context.CancelCauseFunc // ends it
	termCtx  context.Context         // done when no term may go on
	endTerms context.CancelCauseFunc
	suspect  chan struct{} // asks keep for a heartbeat at once
	started  atomic.Bool   // by Start
	closed   chan struct{} // closed when keep has discarded the connection

	holds      *gate.Gate     // the work that relies on the locks
	companions []func()       // started with the session; they return soon after its end
	helpers    sync.WaitGroup // those that run, and what Go runs
	atEnd      []func()       // called before the connection is given up
}

func newLife(ctx context.Context) *life {
	l := &life{suspect: make(chan struct{}, 1), closed: make(chan struct{}), holds: gate.New()}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l.termCtx, l.endTerms = context.WithCancelCause(l.ctx)
	return l
}

// Prepare prepares the statements, of one row each. They then cost one round trip with any
// driver, and are not planned again. Inside a transaction it does nothing: they would
// outlive it.
func (s *Session) Prepare(ctx context.Context, statements ...string) error {
	if s.InTransaction() {
		return nil
	}
	_, err := s.call(ctx, false, func(ctx context.Context, _ *db.Queries) error { return s.pin.Prepare(ctx, statements...) }, nil)
	return err
}

// GiveBack returns the connection to the pool. It rolls a transaction back, and closes the
// connection if that takes long.
func (s *Session) GiveBack() {
	s.ends()
	ctx, cancel := context.WithTimeout(context.Background(), pin.CloseGrace)
	defer cancel()
	if s.owner.RollBack(ctx) != nil {
		s.Discard()
		return
	}
	s.pin.GiveBack()
	s.owner.Drop(false)
	s.life.cancel(errClosed)
}

// Discard ends the session and closes its connection. If a driver call does not return,
// the connection is closed when it does.
func (s *Session) Discard() {
	s.ends()
	s.life.cancel(errClosed)
	defer s.life.helpers.Wait()
	defer s.owner.Drop(true)
	if s.evict != nil && errors.Is(context.Cause(s.life.ctx), pgerr.ErrSessionPooled) {
		s.evict()
	}
	// In transaction scope nothing stays on the connection.
	if !s.pin.Discard(s.InTransaction(), !errors.Is(context.Cause(s.life.ctx), errClosed)) {
		s.onAbandonedCall(fmt.Errorf("elector: the driver does not return from a call on a connection that is given up (backend %d): "+
			"it is left alone and closed when the driver returns: %w", s.on.pid, context.Cause(s.life.ctx)))
	}
}

// AtEnd has end called before the connection is given back or closed.
func (s *Session) AtEnd(end func()) { s.life.atEnd = append(s.life.atEnd, end) }

func (s *Session) ends() {
	for _, end := range s.life.atEnd {
		end()
	}
	s.life.atEnd = nil
}

// Go runs beside the session what soon returns after its end. Discard waits for it.
func (s *Session) Go(run func()) { s.life.helpers.Go(run) }

// IsStarted reports whether the session is kept alive.
func (s *Session) IsStarted() bool { return s.life.started.Load() }

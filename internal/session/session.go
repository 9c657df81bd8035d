// Package session is one pinned connection: it holds what the server keeps for a
// session, and says whether that can still be relied on. It knows no policy, no hooks and
// no options, and of locks only those by which others know it.
//
// # The life of a session
//
//	          [Source.Retry]: check the server, before it is asked for a lock
//	             │
//	   ┌─────────┴─────────┐
//	[Source.Borrow]     queue.Open
//	as the pool has it  with the session settings
//	   └─────────┬─────────┘
//	             │ [Source.Start]
//	             ▼
//	          [Session], kept alive: heartbeats ‖ looks at the clocks ‖ the wait for its loss
//	             │ a statement failed │ validity ran out │ the backend ended │ Close
//	             ▼                    ▼                  ▼                   ▼
//	          ended: the cause is set → the connection is discarded → closed
//
// Session.keep is the life of a session and its teardown. Source is what was learned of
// the server. A session that has ended is never used again. A [Part] hooks into both.
//
// # Rules
//
//   - A driver call is never trusted to return. Each is made by [Do], which waits no longer
//     than the answer is of use.
//   - A connection on which something was changed never goes back to the pool. Only
//     package pin touches a *sql.Conn, and package fenced that of a user's transaction.
//   - An answer counts from before its question was sent (package lease): one that is read too
//     late elects nobody, and proves nothing.
//   - Whatever leaves in doubt what a session holds ends the session, with a cause that
//     wraps pgerr.ErrSessionLost or ErrLeaseExpired.
package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// A Session is one pinned connection and the server backend behind it. It ends by GiveBack or by
// Discard, as pin.Conn says.
//
// Until Start one goroutine owns the session, and it alone calls the methods, but for those of a
// context: HeartbeatNow, Lose, Broke. From Start on any goroutine may make calls (Do, Ask, with s,
// Simple, Trial, Aux or AuxThenVerify), Stay, and call Context, TermContext, Valid, EndIfExpired,
// PID, ServerStart, InTransaction, IsStarted, Owner, Timeout, Hold, Go, EndTerms and Close. Then keep
// owns the connection: nobody else calls GiveBack, Discard, SetOwner, or what sets the backend. Pin,
// and what it returns, is for within a call, but for its Listen and Raw.
type Session struct {
	Proof   *lease.Proof // that it lives
	Backend Backend

	pin   *pin.Conn
	life  *life
	owner Owner    // of the locks
	kept  sync.Map // by the parts; see PerSession

	onAbandonedCall func(error) // reports a driver call that does not return
	evict           func()      // terminates the backend if the session was moved from it; may be nil
}

// A Backend is the server process behind a session. Until Start the owner of the session calls the Set
// methods, and then only calls of the session. Number never changes.
type Backend struct {
	Number int64 // tells the session from others of this process

	pid           int32        // of the backend that the first statement reached
	serverStarted atomic.Value // a string: when its server started; nil or "" until a check or a request asks
	mark          string       // of the transaction that owns the locks; "" before a statement has told
}

// SetPID records the backend that answered the first statement.
func (b *Backend) SetPID(pid int32) { b.pid = pid }

func (b *Backend) started() string {
	started, _ := b.serverStarted.Load().(string)
	return started
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

func newLife() *life {
	l := &life{suspect: make(chan struct{}, 1), closed: make(chan struct{}), holds: gate.New()}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.termCtx, l.endTerms = context.WithCancelCause(l.ctx)
	return l
}

// GiveBack ends the session and returns its connection to the pool. It rolls a transaction back. It closes
// the connection if that takes long, or a call on it has not returned.
func (s *Session) GiveBack() {
	s.life.ends()
	ctx, cancel := context.WithTimeout(context.Background(), pin.CloseGrace)
	defer cancel()
	if s.pin.IsBusy() || s.owner.RollBack(ctx) != nil {
		s.Discard()
		return
	}
	s.life.cancel(errClosed)
	s.pin.GiveBack()
	s.owner.Drop(false)
}

// Discard ends the session and closes its connection. If a driver call does not return,
// the connection is closed when it does.
func (s *Session) Discard() {
	s.life.ends()
	s.life.cancel(errClosed)
	defer s.life.helpers.Wait()
	defer s.owner.Drop(true)
	if s.evict != nil && errors.Is(context.Cause(s.life.ctx), pgerr.ErrSessionPooled) {
		s.evict()
	}
	// In transaction scope nothing stays on the connection.
	if !s.pin.Discard(s.InTransaction(), !errors.Is(context.Cause(s.life.ctx), errClosed)) {
		s.onAbandonedCall(fmt.Errorf("elector: the driver does not return from a call on a connection that is given up (backend %d): "+
			"it is left alone and closed when the driver returns: %w", s.Backend.pid, context.Cause(s.life.ctx)))
	}
}

func (l *life) ends() {
	for _, end := range l.atEnd {
		end()
	}
	l.atEnd = nil
}

// IsStarted reports whether the session is kept alive.
func (s *Session) IsStarted() bool { return s.life.started.Load() }

// errClosed ends a session that its owner has closed.
var errClosed = errors.New("elector: the session was closed")

// CheckOutside returns an error if a statement has found the connection inside a transaction of other code.
func (s *Session) CheckOutside(inTransaction bool) error {
	if !inTransaction || s.InTransaction() {
		return nil
	}
	s.pin.Taint()
	return pgerr.ErrOpenTransaction
}

// A timeout is returned for a call that takes longer than the validity.
type timeout struct{ validity time.Duration }

func (t timeout) Error() string { return fmt.Sprintf("%v within %v", pgerr.ErrNoAnswer, t.validity) }
func (timeout) Unwrap() error   { return pgerr.ErrNoAnswer }

// TimedOut reports whether err says that a call of a session that is not started took longer than its validity.
func TimedOut(err error) bool {
	_, late := errors.AsType[timeout](err)
	return late
}

// Timeout is the cause of a context that ends a call which takes longer than the validity.
func (s *Session) Timeout() error {
	if s.IsStarted() { // there is a lease
		return pgerr.ErrLeaseExpired
	}
	return timeout{s.Proof.Lease.Validity()}
}

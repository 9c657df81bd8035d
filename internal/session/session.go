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

	number int64  // of this session, in this process
	pid    int32  // of the backend that the first statement reached
	server string // when its server started; in session scope "" until a check or a request asks
	mark   string // of its transaction, which only PingTransaction inside that shows; "" before a statement has told

	termCtx  context.Context // done when no term may go on
	endTerms context.CancelCauseFunc

	holds   *gate.Gate    // the work that relies on the session's locks
	evict   func()        // terminates the backend if a pooler has moved the session from it; may be nil
	suspect chan struct{} // asks keep for a heartbeat at once

	beside  []func()       // started with the session; they return soon after its end
	helpers sync.WaitGroup // those that run, and what Go runs
	started atomic.Bool    // by Start
	atEnd   []func()       // called before the connection is given up
}

// Prepare prepares the statements, of one row each. They then cost one round trip with any
// driver, and are not planned again. Inside a transaction it does nothing: a pooler would keep
// them.
func (s *Session) Prepare(ctx context.Context, statements ...string) error {
	if s.inside {
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
	if s.pin.InTx() && s.RollBack(ctx, nil) != nil {
		s.Discard()
		return
	}
	s.pin.GiveBack()
	s.dropAside()
	s.cancel(errClosed)
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
	s.ends()
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

// AtEnd has end called before the connection is given back or closed.
func (s *Session) AtEnd(end func()) { s.atEnd = append(s.atEnd, end) }

func (s *Session) ends() {
	for _, end := range s.atEnd {
		end()
	}
	s.atEnd = nil
}

// Go runs beside the session what soon returns after its end. Discard waits for it.
func (s *Session) Go(run func()) { s.helpers.Go(run) }

// IsStarted reports whether the session is kept alive.
func (s *Session) IsStarted() bool { return s.started.Load() }

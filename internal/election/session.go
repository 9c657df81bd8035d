package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// A Session is one connection and the server backend behind it. It holds one lock or many. A Source lends a session, which is
// then either given back unchanged, or started, kept alive until it ends, and closed. A session is never used again.
//
// Until start one goroutine owns the session. From start on any goroutine may call its methods.
type Session struct {
	from       *Source
	conn       *pin.Conn
	statements Statements
	proof      *lease.Proof            // that the session lives; only ask renews the proof
	bounds     atomic.Pointer[[]Bound] // of parts
	backend    atomic.Pointer[Answer]  // the first answer that named a backend; nil before
	started    atomic.Bool             // kept alive
	held       keys                    // of the locks that the session holds, or is trying

	ctx        context.Context // done when the session has ended; the cause says why
	cancel     context.CancelCauseFunc
	termCtx    context.Context // done when no term may go on: with ctx, or before it
	endTerms   context.CancelCauseFunc
	suspect    chan struct{} // asks keep for a heartbeat at once
	holds      *gate.Gate    // the terms that rely on the locks
	departures departures    // the locks that wait to be released
	kept       sync.Map      // by parts; see PerSession
	gone       gone
}

// gone is what goes on until the session's connection is given up.
type gone struct {
	beside *gate.Gate    // what parts run
	begun  atomic.Bool   // the connection is being given back or closed: once
	closed chan struct{} // closed when the connection is given up
}

func newSession(from *Source, conn *pin.Conn) *Session {
	s := &Session{from: from, conn: conn, proof: lease.NewProof(from.Lease, lease.ClockOf(from.pool.Driver())),
		suspect: make(chan struct{}, 1), holds: gate.New(), gone: gone{beside: gate.New(), closed: make(chan struct{})}}
	s.statements = from.Statements(from)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.termCtx, s.endTerms = context.WithCancelCause(s.ctx)
	return s
}

// errClosed ends a session that its owner has closed.
var errClosed = errors.New("elector: the session was closed")

// Source is where the session comes from.
func (s *Session) Source() *Source { return s.from }

// Answerer is what asks the server for the session.
func (s *Session) Answerer() Statements { return s.statements }

// Lease is the lease of the session.
func (s *Session) Lease() lease.Lease { return s.proof.Lease }

// IsStarted reports whether the session is kept alive.
func (s *Session) IsStarted() bool { return s.started.Load() }

// Context is done when the session has ended. Its cause says why.
func (s *Session) Context() context.Context { return s.ctx }

// PID is the process id of the backend; 0 before the backend has answered.
func (s *Session) PID() int32 { return s.answered().PID }

// answered returns the first answer that named a backend; the zero Answer before it came.
func (s *Session) answered() Answer {
	if a := s.backend.Load(); a != nil {
		return *a
	}
	return Answer{}
}

// TermContext is done when no term of the session may go on. Its cause says why.
func (s *Session) TermContext() context.Context { return s.termCtx }

// Left is how much of the session's validity is left, by the clocks at the time of the call.
func (s *Session) Left() time.Duration { return s.proof.Left() }

// Overdue is for how long the validity has been over; 0 if it is not.
func (s *Session) Overdue() time.Duration { return max(s.proof.Overdue(), time.Since(s.Deadline())) }

// DrainLeft is for how long work may go on once the session has ended.
func (s *Session) DrainLeft() time.Duration { return s.proof.DrainLeft() }

// Now reads the clocks of the session's process.
func (s *Session) Now() lease.Instant { return s.proof.Now() }

// CheckInTime returns an error if the validity ran out before an answer was read.
func (s *Session) CheckInTime() error { return s.proof.CheckInTime() }

// Deadline is when the terms of the session end unless a heartbeat prolongs them.
func (s *Session) Deadline() time.Time {
	deadline := s.proof.Deadline()
	for _, b := range s.allBounds() {
		if at := time.Now().Add(b.Left()); at.Before(deadline) {
			deadline = at
		}
	}
	return deadline
}

// RenewedAt is when the last statement that the server answered was sent, or the last proof of a bound if that is older.
func (s *Session) RenewedAt() time.Time { return s.Deadline().Add(-s.proof.Lease.Validity()) }

// EndIfExpired ends the session if its validity has run out, and ends its terms if a bound has run out: perhaps no timer has
// noticed yet. It returns why the session has ended; nil if it goes on.
func (s *Session) EndIfExpired() error {
	if first := s.proof.Left(); first <= 0 && s.proof.Left() <= 0 { // the clock may have been wrong for one look
		s.cancel(s.proof.Expiry())
	}
	for _, b := range s.allBounds() {
		if b.Left() <= 0 {
			s.endTerms(b.Expiry())
		}
	}
	return context.Cause(s.ctx)
}

// EndTerms ends the terms of the session. The session goes on, and keeps its locks, until the work of the terms has returned.
// The terms end with the cause why; Because gives it a reason. A part that only suspects something calls HeartbeatNow.
func (s *Session) EndTerms(why error) { s.endTerms(why) }

// AddBound adds a bound to the validity. When nothing is left of the bound, the terms end.
func (s *Session) AddBound(b Bound) {
	for {
		old := s.bounds.Load()
		all := append(s.allBounds()[:len(s.allBounds()):len(s.allBounds())], b)
		if s.bounds.CompareAndSwap(old, &all) {
			break
		}
	}
	s.Go(func() {
		for s.EndIfExpired() == nil && s.termCtx.Err() == nil {
			backoff.Sleep(s.termCtx, min(b.Left(), lease.ClockCheckEvery))
		}
	})
}

func (s *Session) allBounds() []Bound {
	if all := s.bounds.Load(); all != nil {
		return *all
	}
	return nil
}

// Lose is for a part that knows that another server has replaced the session's server. It ends the session, and returns the
// cause.
func (s *Session) Lose(err error) error {
	if !s.started.Load() { // its owner discards it
		return pgerr.Wrap(pgerr.ErrSessionLost, err)
	}
	return s.lose(err)
}

// lose ends the session because of err, which leaves in doubt what the session holds, and returns the cause.
func (s *Session) lose(err error) error {
	err = s.causeOf(err)
	s.cancel(err)
	return err
}

// Go calls run beside the session. run must return soon after the session's end. If the session has ended, Go does nothing.
func (s *Session) Go(run func()) {
	if s.gone.beside.Begin(gate.Always) {
		go backoff.Apart(func() {
			defer s.gone.beside.Finish()
			run()
		})()
	}
}

// HeartbeatNow asks for a heartbeat at once, as when another session of the pool was lost. Its answer alone decides.
func (s *Session) HeartbeatNow() {
	select {
	case s.suspect <- struct{}{}:
	default:
	}
}

// hold keeps the connection open after the session's end until release is called, but no longer than the drain. If only the
// clock of this process jumped, the server still keeps the locks, and closing the connection would free them early.
func (s *Session) hold() (release func()) {
	if !s.holds.Begin(gate.Always) {
		return func() {}
	}
	return sync.OnceFunc(s.holds.Finish)
}

// GiveBack ends a session that was not started. The connection goes back to the pool if the answerer says that it is unchanged, and
// the session was never granted a lock, which it may still hold. Otherwise GiveBack closes the connection.
func (s *Session) GiveBack() {
	if s.started.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pin.CloseGrace)
	defer cancel()
	unchanged := false
	if !s.conn.IsBusy() {
		_, err := s.call(ctx, func(ctx context.Context, c *pin.Conn) error { return s.statements.Close(ctx, c, true) })
		unchanged = err == nil && !s.held.wereGranted()
	}
	s.end(unchanged)
}

// end ends the session, and gives up its connection: to the pool if the connection is unchanged. It waits for what parts run
// beside the session.
func (s *Session) end(unchanged bool) {
	if s.gone.begun.CompareAndSwap(false, true) {
		s.cancel(errClosed)
		for _, part := range s.from.Parts {
			part.Ended(s, context.Cause(s.ctx))
		}
		if unchanged {
			s.conn.GiveBack()
		} else {
			s.discard()
		}
		close(s.gone.closed)
	}
	<-s.gone.closed // another call may be closing it
	s.awaitBeside()
}

// awaitBeside waits for what parts run beside the session, but only for pin.CloseGrace: a part may forget to end.
func (s *Session) awaitBeside() {
	s.gone.beside.Close()
	select {
	case <-s.gone.beside.Idle():
	case <-time.After(pin.CloseGrace):
	}
}

// discard closes the connection, when the driver returns.
func (s *Session) discard() {
	if !s.conn.Discard(false, !errors.Is(context.Cause(s.ctx), errClosed)) {
		s.from.Report("call", fmt.Errorf("elector: the driver does not return from a call on a connection that is given up (backend %d): "+
			"the connection is left alone, and closed when the driver returns: %w", s.PID(), context.Cause(s.ctx)))
	}
	_ = s.statements.Close(context.Background(), s.conn, false)
}

// Fail discards a session that was not started, because of err. It does nothing to a session that was started.
func (s *Session) Fail(err error) {
	if !s.started.Load() {
		s.cancel(err)
		s.end(false)
	}
}

// Close ends the terms of a session that is kept alive, waits for their work unless the session has ended, and waits until the
// connection is closed.
func (s *Session) Close() {
	s.endTerms(errClosed)
	s.holds.Close()
	select {
	case <-s.holds.Idle():
	case <-s.ctx.Done():
	}
	s.cancel(errClosed)
	<-s.gone.closed
	s.awaitBeside()
}

// A PerSession has a value of a part for each session, for as long as anybody has the session. The zero value is ready. It must
// not be copied.
type PerSession[T any] struct{ _ byte } // not empty: its address is the key in Session.kept

// Of returns the part's value for the session. Any goroutine may call it.
func (p *PerSession[T]) Of(s *Session) *T {
	of, ok := s.kept.Load(p)
	if !ok {
		of, _ = s.kept.LoadOrStore(p, new(T))
	}
	return of.(*T)
}

// keys is a set of keys.
type keys struct {
	mu      sync.Mutex
	all     map[int64]bool
	granted bool // a lock was granted, at any time
}

// add adds a key, and reports whether it was missing.
func (k *keys) add(key int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all[key] {
		return false
	}
	if k.all == nil {
		k.all = map[int64]bool{}
	}
	k.all[key] = true
	return true
}

// grant records that a lock was granted.
func (k *keys) grant() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.granted = true
}

func (k *keys) wereGranted() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.granted
}

func (k *keys) remove(key int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.all, key)
}

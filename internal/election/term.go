package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// A Reason is why a term has ended. A part may use others.
type Reason string

const (
	Resigned     Reason = "resigned"
	Shutdown     Reason = "shutdown"
	SessionLost  Reason = "session_lost"
	LeaseExpired Reason = "lease_expired"
	LeadFailed   Reason = "lead_failed"
)

// An ending is the cause of a term's context that somebody has ended.
type ending struct {
	Reason
	err error
}

func (e *ending) Error() string { return e.err.Error() }
func (e *ending) Unwrap() error { return e.err }

// Because adds a reason to cause. A part calls it before it ends terms.
func Because(reason Reason, cause error) error { return &ending{reason, cause} }

// ReasonOf finds the reason in a term's cause. A session that ends names no reason: either its lease has expired, or the session
// was lost.
func ReasonOf(cause error) Reason {
	switch e, ended := errors.AsType[*ending](cause); {
	case ended:
		return e.Reason
	case errors.Is(cause, pgerr.ErrLeaseExpired):
		return LeaseExpired
	}
	return SessionLost
}

// isLost reports whether a term with that cause was taken away, and not given up.
func isLost(cause error) bool {
	reason := ReasonOf(cause)
	return reason == SessionLost || reason == LeaseExpired
}

// A Term is one unbroken leadership. Any goroutine may call its methods.
type Term struct {
	lock     *Lock
	began    time.Time
	ctx      context.Context // a child of the session's term context: whatever ends the session ends the term, at once
	cancel   context.CancelCauseFunc
	work     *gate.Gate
	byHand   bool          // Campaign's caller does the work, and nobody sees the work return
	returned func()        // records that the caller's work has returned, as far as anybody can know
	leave    func()        // the room
	hold     func()        // releases the hold on the session
	done     chan struct{} // closed when the lock is given up
	ended    time.Time     // once done: when the term ended
	released error         // once done: nil if the lock is known to be free
}

// newTerm begins a term. Its context has the values of ctx alone.
func newTerm(ctx context.Context, l *Lock, room *Terms, byHand bool) *Term {
	t := &Term{lock: l, began: time.Now(), work: gate.New(), byHand: byHand, returned: func() {}, hold: l.s.hold(), done: make(chan struct{})}
	if byHand {
		t.work.Begin(gate.Always)
		t.returned = sync.OnceFunc(t.work.Finish)
	}
	t.ctx, t.cancel = context.WithCancelCause(with{l.s.termCtx, ctx})
	t.leave = room.enter(t)
	return t
}

// Context is done when the term ends. context.Cause then says why.
func (t *Term) Context() context.Context { return t.ctx }

// cause is why the term has ended.
func (t *Term) cause() error { return context.Cause(t.ctx) }

// Lock is the lock that the term holds. Only the term's end releases it.
func (t *Term) Lock() *Lock { return t.lock }

// End ends the term, unless it has ended, and reports whether it did. The lock is released once the work has returned.
func (t *Term) End(reason Reason, cause error) bool { return t.end(reason, cause) }

// Done is closed when the lock is given up.
func (t *Term) Done() <-chan struct{} { return t.done }

// Released is nil if the lock is known to be free. Call it when the term is done.
func (t *Term) Released() error { return t.released }

// Token is the term's fencing token: larger than that of every earlier term of the election.
func (t *Term) Token() int64 { return t.lock.token }

// Began is when the term began.
func (t *Term) Began() time.Time { return t.began }

// Deadline is when the term ends unless a heartbeat prolongs it.
func (t *Term) Deadline() time.Time { return t.lock.s.Deadline() }

// Valid reports whether the term goes on, by the clocks at the time of the call. It is false from the deadline on, even in a
// process that was frozen and has just been resumed.
func (t *Term) Valid() bool {
	_ = t.lock.s.EndIfExpired()
	return t.ctx.Err() == nil
}

// Verify asks the server whether the session still holds the lock. If not, the term ends.
func (t *Term) Verify(ctx context.Context) error {
	if t.Valid() {
		if err := t.lock.Verify(ctx); err != nil && t.Valid() {
			return err
		}
	}
	if !t.Valid() {
		return fmt.Errorf("%w: the term has ended: %w", pgerr.ErrNotLeader, t.cause())
	}
	return nil
}

// end ends the term, unless it has ended, and reports whether it did.
func (t *Term) end(reason Reason, cause error) bool {
	if !t.Valid() {
		return false
	}
	why := &ending{reason, cause}
	t.cancel(why)
	return t.cause() == error(why)
}

// lasted is how long the term was, once it is done.
func (t *Term) lasted() time.Duration { return t.ended.Sub(t.began) }

// stepDown gives the term up when it ends. The order is the promise: the work returns, then the observer hears, then the lock
// is released, then a session of its own is closed. The lock is released earlier only if the session is lost.
func (t *Term) stepDown(o Observer) {
	<-t.ctx.Done()
	t.ended = time.Now()
	t.leave()
	o.Ended(t, t.cause())
	t.awaitWork(o)
	o.Demoted(t, t.cause())
	s := t.lock.s
	if s.EndIfExpired() == nil {
		if t.released = t.lock.release(); t.released != nil {
			o.Failed("release", t.released)
		}
	} else {
		t.released = fmt.Errorf("%w: the session ended before the lock could be released: %w", pgerr.ErrNotLeader, context.Cause(s.ctx))
	}
	t.hold()
	if t.lock.own {
		backoff.Sleep(s.ctx, s.from.Linger)
		s.Close()
	}
	o.Released(t)
	close(t.done)
}

// handOut reports whether Campaign may return the term. If the term has ended, because the process stood still, handOut waits
// until the lock is given up.
func (t *Term) handOut() bool {
	if t.Valid() {
		return true
	}
	t.returned()
	<-t.done
	return false
}

// Resign gives the term up, and waits until its work has returned and the lock is released, or ctx ends. Only a caller of
// Campaign or TryCampaign calls Resign from its work, and asserts thereby that the work has returned. It returns nil only if
// the lock is known to be free.
func (t *Term) Resign(ctx context.Context) error {
	t.end(Resigned, ErrResigned)
	t.returned()
	if !gate.Await(ctx, t.done) {
		return fmt.Errorf("elector: resign: the work of the term has not returned; the lock is released when it does: %w", context.Cause(ctx))
	}
	return t.released
}

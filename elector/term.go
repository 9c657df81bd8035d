package elector

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/lock"
)

// A Term is one unbroken leadership, from election to its end. Its methods may
// be called from any goroutine, also after the term has ended.
type Term struct {
	elector   *Elector
	lock      *lock.Lock
	electedAt time.Time
	ctx       context.Context
	work      *work
	byCaller  bool   // it is for the caller of Campaign or TryCampaign
	returned  func() // that caller's work has returned, as far as can be known

	mu          sync.Mutex              // makes the first ending the only one
	cancel      context.CancelCauseFunc // called by end alone
	offer       *lock.Transfer          // to the successor; nil if there is none
	successorID string                  // its candidate id

	announced bool // OnElected was called; used by the hooks' queue alone

	done         chan struct{} // closed when all is over: work returned, hooks told, lock given up
	released     error         // once done: nil if the lock is known to be free
	successorHas bool          // once done: the successor has the lock
}

// newTerm begins a term with its lock.
func newTerm(ctx context.Context, e *Elector, l *lock.Lock, byCaller bool) *Term {
	t := &Term{elector: e, lock: l, electedAt: time.Now(), work: newWork(),
		byCaller: byCaller, returned: func() {}, done: make(chan struct{})}
	if byCaller {
		t.work.begin(always)
		t.returned = sync.OnceFunc(t.work.finish)
	}
	t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	unlost := context.AfterFunc(l.TermContext(), func() {
		cause := context.Cause(l.TermContext())
		t.end(reasonOf(cause), cause)
	})
	unclosed := context.AfterFunc(e.closing, func() { t.end(hooks.Shutdown, context.Cause(e.closing)) })
	healthy := e.monitor.healthy()
	stopUnhealthy := context.AfterFunc(healthy, func() { t.end(hooks.Unhealthy, context.Cause(healthy)) })
	context.AfterFunc(t.ctx, func() { // a shared session outlives the term
		unlost()
		unclosed()
		stopUnhealthy()
	})
	e.term.Store(t)
	go t.keep()
	return t
}

// Context is done when the term ends; context.Cause then says why, wrapping
// ErrResigned, ErrSessionLost, ErrLeaseExpired, ErrUnhealthy, ErrLeadFailed or
// the cause of the context that was given to Run or Start. It carries the
// values of the context that the campaign was given. Everything that must not
// outlive the term belongs under it.
func (t *Term) Context() context.Context { return t.ctx }

// Token is the term's fencing token: larger than that of every earlier term of
// the election, also after a crash of the server and across the promotion of a
// standby. Pass it along with every write to a store that can refuse an older
// one. What can lower it, and how to raise it again, is in the package comment.
func (t *Term) Token() int64 { return t.lock.Token() }

// ElectedAt is when the term began, on this process's clock.
func (t *Term) ElectedAt() time.Time { return t.electedAt }

// RenewedAt is when the last proof that the session lived was sent: the last
// heartbeat that was answered, or another statement on the session.
func (t *Term) RenewedAt() time.Time { return t.lock.RenewedAt() }

// Deadline is when the term ends unless a heartbeat extends it.
func (t *Term) Deadline() time.Time { return t.lock.Deadline() }

// Valid reports whether the term goes on, by the clocks at the time of the
// call: it is false from the deadline on, even in a process that was frozen
// and has just been resumed. A true answer can be old by the time it is used;
// for writes that must not be late there are the token and Verify.
func (t *Term) Valid() bool { return t.ctx.Err() == nil && t.lock.Valid() }

// Verify asks the server whether the session still holds the lock, in one
// round trip. It returns nil if so, and then the lease was renewed at that
// moment. If the server says no, the term ends, and the error wraps
// ErrNotLeader and its cause. If ctx ends first, the error wraps its cause,
// and the term goes on.
func (t *Term) Verify(ctx context.Context) error {
	if !t.Valid() {
		return fmt.Errorf("%w: the term has ended: %w", ErrNotLeader, t.whyEnded())
	}
	err := t.lock.Verify(ctx)
	switch {
	case t.lock.Context().Err() != nil: // by this answer, or meanwhile
		<-t.ctx.Done()
		return fmt.Errorf("%w: %w", ErrNotLeader, t.whyEnded())
	case !t.Valid(): // resigned, say: the work still needs the session to wind down
		return fmt.Errorf("%w: the term has ended: %w", ErrNotLeader, t.whyEnded())
	case err != nil:
		return ended(ctx, "verify the term")
	}
	return nil
}

// Resign gives the term up: it cancels the term's context, waits until the
// term's work (lead, functions of RunIfLeader, hooks) has returned, and only
// then unlocks. It is idempotent, and returns nil only if the lock is known to
// be free. Of the work of Campaign's or TryCampaign's caller it is the caller's word
// that it has returned.
//
// It returns an error that wraps ErrOverrun if the work has not returned within
// one lease, and the cause of ctx if that ends first; the term has ended all the
// same, and the lock is released as soon as the work returns. If the term had
// ended otherwise, the error wraps ErrNotLeader and the reason. A lead that
// wants to resign simply returns: with its term's context, Resign returns at
// once with ErrResigned.
func (t *Term) Resign(ctx context.Context) error {
	t.end(hooks.Resigned, ErrResigned)
	t.returned()
	select {
	case <-t.done: // whatever ctx says
		return t.released
	default:
	}
	select {
	case <-t.done:
		return t.released
	case <-ctx.Done():
		return ended(ctx, "resign: the work of the term has not returned; the lock is released when it does")
	case <-time.After(t.elector.lease.Length):
		return fmt.Errorf("%w: resign waited %v, one lease, for it; the lock is released when it returns", ErrOverrun, t.elector.lease.Length)
	}
}

// end ends the term, unless it has ended, and reports whether it did.
func (t *Term) end(reason hooks.Reason, cause error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return false
	}
	t.cancel(&ending{reason: reason, err: cause})
	return true
}

// whyEnded is the cause of the term's end, or its expiry if it was not yet told.
func (t *Term) whyEnded() error {
	if cause := context.Cause(t.ctx); cause != nil {
		return cause
	}
	return t.lock.Expiry()
}

// keep steps down when the term ends. The order is the promise: the work
// returns, then the hooks are told, then the lock is given up.
func (t *Term) keep() {
	t.notify(t.ctx, eventLed)
	<-t.ctx.Done()
	at := time.Now()
	cause := context.Cause(t.ctx)
	a := t.elector.announcer
	if lost(cause) {
		a.post(a.failure(t.ctx, hooks.Failure{Op: hooks.OpHeartbeat, Err: cause})) // not awaited: a hook may be the work
	}
	t.awaitWork()
	onDemoted := a.demoted(t.ctx, hooks.Demoted{Token: t.Token(), Reason: reasonOf(cause), Err: cause, At: at, Held: at.Sub(t.electedAt)})
	a.announce(func() {
		if t.announced {
			onDemoted()
		}
	})
	t.lock.WorkReturned()
	t.released = t.release(reasonOf(cause))
	t.elector.saw(t.ctx, nobody)
	if t.byCaller {
		t.elector.unclaim()
	}
	t.elector.terms.end()
	close(t.done)
}

// release gives the lock up.
func (t *Term) release(reason hooks.Reason) (err error) {
	defer t.lock.Discard()
	if cause := context.Cause(t.lock.Context()); cause != nil {
		return fmt.Errorf("%w: the session ended before the lock could be released: %w", ErrNotLeader, cause)
	}
	if reason == hooks.Shutdown && !t.elector.gracefulRelease {
		return fmt.Errorf("%w: the session was closed without an unlock, as WithGracefulRelease(false) says", ErrNotLeader)
	}
	if t.offer != nil {
		defer t.offer.Withdraw()
		var released bool
		if released, t.successorHas = t.offer.Release(t.elector.lease.Heartbeat); released {
			return nil
		}
	}
	var n *lock.Notification
	if t.elector.notifier != nil {
		n = &lock.Notification{Channel: NotifyChannel, Payload: payload(eventFree, t.elector.key)}
	}
	if err = t.lock.Release(n); err != nil {
		a := t.elector.announcer
		a.announce(a.failure(t.ctx, hooks.Failure{Op: hooks.OpRelease, Err: err}))
	}
	return err
}

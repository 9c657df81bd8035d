package elector

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/lock"
)

// A Term is one unbroken leadership, from election to its end. Its methods may
// be called from any goroutine, also after the term has ended.
type Term struct {
	*candidate
	lock             *lock.Lock
	electedAt        time.Time
	ctx              context.Context
	healthy          context.Context // done when the candidate is not
	work             *gate.Gate
	onElectedPending atomic.Bool // OnElected waits for the hooks before it, which is work
	unclaim          func()      // for a term of Campaign's or TryCampaign's caller; nil for one of Run
	returned         func()      // that caller's work has returned, as far as can be known

	mu     sync.Mutex              // makes the first ending the only one
	cancel context.CancelCauseFunc // called by endFor alone
	offer  offer                   // of the lock to one candidate; nil if there is none

	requested sync.Mutex  // held while a request is answered
	releasing atomic.Bool // all work and hooks have returned

	done  chan struct{} // closed when the work and the hooks have returned and the lock is given up
	after struct {      // once done
		released error  // nil if the lock is known to be free
		heir     string // the candidate that got the lock by the offer
	}
}

// newTerm begins a term with its lock. unclaim is nil unless the term is for the caller of
// Campaign or TryCampaign, whose work is not seen to return.
func newTerm(ctx context.Context, n *candidate, l *lock.Lock, unclaim func()) *Term {
	t := &Term{candidate: n, lock: l, electedAt: time.Now(), healthy: n.monitor.toLead(), work: gate.New(), unclaim: unclaim, returned: func() {}, done: make(chan struct{})}
	if unclaim != nil {
		t.work.Begin(gate.Always)
		t.returned = sync.OnceFunc(t.work.Finish)
	}
	t.ctx, t.cancel = context.WithCancelCause(t.within(context.WithoutCancel(ctx)))
	endWith := func(other context.Context, reason func(cause error) hooks.Reason) (stop func() bool) {
		return context.AfterFunc(other, func() {
			cause := context.Cause(other)
			t.end(reason(cause), cause)
		})
	}
	stopSession := endWith(l.Session.TermContext(), reasonOf)
	stopClosing := endWith(n.closing, func(error) hooks.Reason { return hooks.Shutdown })
	stopHealth := endWith(t.healthy, func(error) hooks.Reason { return hooks.Unhealthy })
	stopRequests := n.subscribe(l.Session.HeartbeatNow, func(what event, _ string) bool { return what == eventRequest })
	context.AfterFunc(t.ctx, func() { // a shared session outlives the term
		n.sees(n.candidateID, l.Session.Proof.RenewedAt())
		stopSession()
		stopClosing()
		stopHealth()
		stopRequests()
	})
	return t
}

// leads is the key of a context's value that is the term under which the context's owner works.
type leads struct{ key int64 }

func (t *Term) within(ctx context.Context) context.Context {
	return hooks.WithDeadline(context.WithValue(ctx, leads{t.key}, t), t.Deadline)
}

// Context is done when the term ends; context.Cause then says why, wrapping
// ErrResigned, ErrSessionLost, ErrLeaseExpired, ErrNotSynchronous, ErrUnhealthy,
// ErrLeadFailed, ErrPoolClosed, ErrStopped or the cause of the context that was given to Run, TryRun or Start. It carries the
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

// RenewedAt is when the last proof that the session lived was sent: the last heartbeat or other statement
// on it that was answered, or, with WithSynchronousStandby, the last acknowledged commit if that is older.
func (t *Term) RenewedAt() time.Time { return t.lock.Session.Proof.RenewedAt() }

// Deadline is when the term ends unless a heartbeat prolongs it.
func (t *Term) Deadline() time.Time { return t.lock.Session.Proof.Deadline() }

// Valid reports whether the term goes on, by the clocks at the time of the
// call: it is false from the deadline on, even in a process that was frozen
// and has just been resumed. A true answer can be old by the time it is used;
// for writes that must not be late there are the token and Verify.
func (t *Term) Valid() bool {
	return t.ctx.Err() == nil && t.closing.Err() == nil && t.healthy.Err() == nil && t.lock.Session.Valid() && t.lock.Session.TermContext().Err() == nil
}

// Verify asks the server whether the session still holds the lock, in one round trip. It
// returns nil if so; the lease is then renewed. If not, the term ends, and the error wraps
// ErrNotLeader and its cause. If ctx ends first, the error wraps its cause, and the term goes on
// unless the answer comes later and is no. If the server cancels the question (SQLSTATE 57014), it goes on.
func (t *Term) Verify(ctx context.Context) error {
	var err error
	if t.endIfOver() == nil {
		err = t.lock.Verify(ctx)
	}
	if err != nil || t.endIfOver() != nil { // resigned, say: the work still needs the session to wind down
		return t.because(ctx, "verify the term", err)
	}
	return nil
}

// endIfOver returns nil if the term goes on. If it is over, it ends by this call, unless it has
// ended: the process may have stood still, so that no timer or goroutine has noticed yet.
func (t *Term) endIfOver() error {
	for !t.Valid() {
		if t.ctx.Err() != nil {
			return fmt.Errorf("%w: the term has ended: %w", ErrNotLeader, context.Cause(t.ctx))
		}
		_ = t.lock.Session.EndIfExpired() // and with the session no term may go on
		if lost := context.Cause(t.lock.Session.TermContext()); lost != nil {
			t.end(reasonOf(lost), lost)
		} else if t.closing.Err() != nil {
			t.end(hooks.Shutdown, context.Cause(t.closing))
		} else if t.healthy.Err() != nil {
			t.end(hooks.Unhealthy, context.Cause(t.healthy))
		}
	} // again: a late answer may have renewed the session meanwhile
	return nil
}

// end ends the term, unless it has ended, and reports whether it did.
func (t *Term) end(reason hooks.Reason, cause error) bool { return t.endFor(nil, reason, cause) }

// endFor is end with an offer, which may be nil: then the lock goes to whoever gets it. A session that has ended has ended
// the term, also if that was not noticed yet.
func (t *Term) endFor(to offer, reason hooks.Reason, cause error) bool {
	ended := t.lock.Session.EndIfExpired()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ctx.Err() != nil:
		return false
	case ended != nil && reason != hooks.SessionLost && reason != hooks.LeaseExpired:
		t.cancel(&ending{reason: reasonOf(ended), err: ended})
		return false
	}
	t.offer = to
	t.cancel(&ending{reason: reason, err: cause})
	return true
}

// stepDown gives the term up when it ends. The order is the promise: the work returns, then
// OnDemoted, then the lock is released. Only a session that is lost has released it before.
func (t *Term) stepDown() {
	t.notify(t.ctx, 0, eventLed)
	<-t.ctx.Done()
	at, late := time.Now(), t.lock.Session.Proof.Overdue()
	if late > 0 { // this process stood still, say, and another may have led since
		at = t.Deadline()
	}
	cause := context.Cause(t.ctx)
	a := t.announcer
	if lost(cause) {
		a.post(a.failure(t.ctx, hooks.Failure{Op: hooks.OpHeartbeat, Err: cause})) // not awaited: a hook may be the work
	}
	t.awaitWork()
	a.announce(a.demoted(t.ctx, t.past.ends(t.Token(), t.electedAt, at, late, cause)))
	t.lock.WorkReturned()
	if t.after.released = t.release(reasonOf(cause)); t.after.released == nil && t.after.heir == "" {
		t.notify(context.Background(), notifyPatience, eventFree) // before the process may end
	}
	t.saw(t.ctx, nobody)
	if t.unclaim != nil {
		t.unclaim()
	}
	t.terms.Finish()
	close(t.done)
}

// release gives the lock up.
func (t *Term) release(reason hooks.Reason) (err error) {
	t.releasing.Store(true)
	defer t.lock.Discard()
	if cause := context.Cause(t.lock.Session.Context()); cause != nil {
		return fmt.Errorf("%w: the session ended before the lock could be released: %w", ErrNotLeader, cause)
	}
	if reason == hooks.Shutdown && !t.gracefulRelease {
		return fmt.Errorf("%w: the session was closed without an unlock, as WithGracefulRelease(false) says", ErrNotLeader)
	}
	if t.offer != nil {
		defer t.offer.Withdraw()
		var released bool
		if released, t.after.heir = t.offer.Release(t.lease.Heartbeat); released {
			return nil
		}
	}
	if err = t.lock.Release(); err != nil {
		t.releasing.Store(false) // a hook may not return
		a := t.announcer
		a.announce(a.failure(t.ctx, hooks.Failure{Op: hooks.OpRelease, Err: err}))
		t.releasing.Store(true)
	}
	return err
}

// notify sends an event to the others of the election, if there is a notifier.
func (t *Term) notify(ctx context.Context, patience time.Duration, what event, more ...string) {
	if t.notifier != nil {
		t.sender.Send(ctx, patience, payload(what, t.key, more...))
	}
}

package elector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/transaction"
)

// A Term is one unbroken leadership, from election to its end. Its methods may
// be called from any goroutine, also after the term has ended.
type Term struct {
	*candidate
	term             *election.Term
	lock             *election.Lock
	ctx              context.Context
	onElectedPending atomic.Bool // OnElected waits for the hooks before it, which is work
	stopWatching     func()      // for requests, and for the loss of the session
	ended            struct {    // once the term has ended
		at   time.Time
		late time.Duration
	}

	mu      sync.Mutex
	offer   offer  // of the lock to one candidate; nil if there is none
	byHand  bool   // its work is done by the caller of Campaign or TryCampaign
	unclaim func() // once the caller has the term, and nil before
	gone    bool   // wasReleased

	requested sync.Mutex    // held while a request is answered
	releasing atomic.Bool   // all work and hooks have returned
	done      chan struct{} // closed when the work and the hooks have returned and the lock is given up
	after     struct {      // once done
		released error  // nil if the lock is known to be free
		heir     string // the candidate that got the lock by the offer
	}
}

// newTerm begins to tell of a term.
func newTerm(n *candidate, byHand bool, k *election.Term) *Term {
	t := &Term{candidate: n, term: k, lock: k.Lock(), byHand: byHand, done: make(chan struct{})}
	t.ctx = t.within(k.Context())
	t.lock.ReleaseBy(t.release)
	s := t.lock.Session()
	t.stopWatching = n.subscribe(s.HeartbeatNow, func(what event, _ string) bool { return what == eventRequest })
	return t
}

// announceElected posts OnElected, which is work.
func (t *Term) announceElected(elected hooks.Elected) {
	onElected := t.announcer.elected(t.ctx, elected, func(err error) { t.end(hooks.LeadFailed, pgerr.Wrap(ErrLeadFailed, err)) })
	t.onElectedPending.Store(t.term.BeginAny())
	stopRequests := t.stopWatching
	stopLoss := context.AfterFunc(t.lock.Session().Context(), func() {
		if t.onElectedPending.Swap(false) { // it is not called any more
			t.term.Finish()
		}
	})
	t.stopWatching = func() {
		stopRequests()
		stopLoss()
	}
	t.announcer.post(func() {
		if t.lock.Session().EndIfExpired() == nil && t.onElectedPending.Swap(false) { // else the process, or an earlier hook, took longer than the session lived
			defer t.term.Finish()
			onElected()
		}
	})
}

// leads is the key of a value in a context: the term under which the context's owner works.
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
func (t *Term) Token() int64 { return t.term.Token() }

// ElectedAt is when the term began, on this process's clock.
func (t *Term) ElectedAt() time.Time { return t.term.Began() }

// RenewedAt is when the last proof that the session lived was sent: the last heartbeat or other statement
// on it that was answered, or, with WithSynchronousStandby, the last acknowledged commit if that is older.
func (t *Term) RenewedAt() time.Time { return t.lock.Session().RenewedAt() }

// Deadline is when the term ends unless a heartbeat prolongs it.
func (t *Term) Deadline() time.Time { return t.term.Deadline() }

// Valid reports whether the term goes on, by the clocks at the time of the
// call: it is false from the deadline on, even in a process that was frozen
// and has just been resumed. A true answer can be old by the time it is used;
// for writes that must not be late there are the token and Verify.
func (t *Term) Valid() bool { return t.term.Valid() }

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

// endIfOver returns nil if the term goes on.
func (t *Term) endIfOver() error {
	if t.term.Valid() {
		return nil
	}
	return fmt.Errorf("%w: the term has ended: %w", ErrNotLeader, context.Cause(t.ctx))
}

// end ends the term, unless it has ended, and reports whether it did.
func (t *Term) end(reason hooks.Reason, cause error) bool {
	return t.term.End(election.Reason(reason), cause)
}

// endFor ends the term, as end does, with an offer of the lock.
func (t *Term) endFor(to offer, reason hooks.Reason, cause error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.term.Valid() {
		return false
	}
	if t.offer = to; !t.end(reason, cause) {
		t.offer = nil
		return false
	}
	return true
}

// offers returns the offer with which the term has ended; nil if there is none.
func (t *Term) offers() offer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.offer
}

// hasEnded is called when the term has ended: the work may go on.
func (t *Term) hasEnded(cause error) {
	s := t.lock.Session()
	t.sees(t.candidateID, s.RenewedAt())
	t.ended.at, t.ended.late = time.Now(), s.Overdue()
	if t.ended.late > 0 { // this process stood still, say, and another may have led since
		t.ended.at = t.Deadline()
	}
	if lost(cause) {
		t.announcer.post(t.announcer.failure(t.ctx, hooks.Failure{Op: hooks.OpHeartbeat, Err: cause})) // not awaited: a hook may be the work
	}
}

// workReturned is called when the work has returned, before the lock is released.
func (t *Term) workReturned(cause error) {
	a := t.announcer
	a.announce(a.demoted(t.ctx, t.past.ends(t.Token(), t.ElectedAt(), t.ended.at, t.ended.late, cause)))
	t.releasing.Store(true)
}

var errUngraceful = fmt.Errorf("%w: the session was closed without an unlock, as WithGracefulRelease(false) says", ErrNotLeader)

// release releases the lock by the offer, if there is one. If it returns false and no error, the kernel releases the lock.
func (t *Term) release(ctx context.Context, s *election.Session) (released bool, err error) {
	if t.lock.IsOwn() && !t.gracefulRelease && reasonOf(context.Cause(t.ctx)) == hooks.Shutdown {
		return false, errUngraceful
	}
	if to := t.offers(); to != nil {
		if released, err = to.Release(ctx, s); released || !t.inTransaction() {
			to.Withdraw()
		}
		return released, err
	}
	return false, nil
}

// wasReleased is called when the lock is given up.
func (t *Term) wasReleased() {
	t.stopWatching()
	if t.after.released = t.term.Released(); errors.Is(t.after.released, errUngraceful) {
		t.after.released = errUngraceful
	}
	if to := t.offers(); to != nil {
		if t.after.released == nil {
			t.after.heir = to.Heir()
		}
		if !t.lock.IsOwn() {
			to.Withdraw()
		}
	}
	if t.after.released == nil && t.after.heir == "" {
		t.notify(context.Background(), notifyPatience, eventFree) // before the process may end
	}
	t.saw(t.ctx, election.Holder{})
	t.mu.Lock()
	t.gone = true
	unclaim := t.unclaim
	t.mu.Unlock()
	if unclaim != nil {
		unclaim()
	}
	t.terms.Finish()
	close(t.done)
}

// handOut gives the term to the caller of Campaign or TryCampaign.
func (t *Term) handOut(unclaim func()) {
	t.mu.Lock()
	gone := t.gone
	t.unclaim = unclaim
	t.mu.Unlock()
	if gone {
		unclaim()
	}
}

// inTransaction reports whether the term is led in transaction scope.
func (t *Term) inTransaction() bool { return transaction.IsOf(t.lock.Session()) }

// notify sends an event to the others of the election, if there is a notifier.
func (t *Term) notify(ctx context.Context, patience time.Duration, what event, more ...string) {
	if t.notifier != nil {
		t.sender.Send(ctx, patience, payload(what, t.key, more...))
	}
}

// overrun is the report of work that runs on.
func (t *Term) overrun(o *election.Overrun) hooks.Failure {
	return hooks.Failure{Op: hooks.OpWork, Since: o.Since, Returned: o.Returned, Err: fmt.Errorf(
		"%w: it has not returned %v after its context was cancelled%s: %s: make it return when its context is done (does it wait for a RequestResign of its own?), or choose a longer drain",
		ErrOverrun, time.Since(o.Since).Round(time.Millisecond), t.announcer.busy(), o.Meanwhile)}
}

// because returns the error of a failed call on the term. It is the one place that decides the error's cause. The end of the
// term comes first, because the caller's ctx may have ended with the term. The error wraps ErrNotLeader and the term's
// cause if the term has ended; ctx.Err() and the cause of ctx if ctx has ended by itself; and err, which may be nil.
func (t *Term) because(ctx context.Context, doing string, err error) error {
	over := t.endIfOver()
	if ctx.Err() != nil && !errors.Is(over, context.Cause(ctx)) {
		err = wrap(election.Stopped(ctx, doing), err)
	}
	if over != nil {
		err = wrap(over, err)
	}
	return err
}

// wrap wraps err with why, unless why says it all.
func wrap(why, err error) error {
	if err == nil || errors.Is(why, err) {
		return why
	}
	return fmt.Errorf("%w: %w", why, err)
}

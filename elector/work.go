package elector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// instant is what work gets to return before it is reported, if nothing is left of the drain: in a
// process that stood still it could not return before.
const instant = 100 * time.Millisecond

// awaitWork waits until the term's work has returned, however long that takes. It reports
// work that overruns once while the session lives, because the lock is held and nobody else
// can lead, and once after the session has ended. The caller of Campaign has the drain,
// unless it resigns before.
func (t *Term) awaitWork() {
	t.work.Close()
	began, lease, lost := time.Now(), t.lease, t.lock.Session.Context().Done()
	var reports sync.WaitGroup
	defer reports.Wait()
	defer time.AfterFunc(lease.Drain, t.returned).Stop()
	select {
	case <-t.work.Idle():
		return
	case <-lost:
	case <-time.After(max(lease.Drain, lease.Heartbeat)): // a drain of 0 leaves work no time to return
		if t.returned(); t.work.IsIdle() {
			return
		}
		reports.Go(t.overrun(began, "the lock stays held, so nobody else can lead until it returns, unless the session ends before"))
		select {
		case <-t.work.Idle():
			return
		case <-lost:
		}
	}
	if t.onElectedPending.Swap(false) { // OnElected is not called any more
		t.work.Finish()
	}
	left := max(t.lock.Session.Proof.DrainLeft(), instant)
	if t.unclaim != nil { // its work is not seen to return, and the lock may be held still
		left = max(left, lease.Drain-time.Since(began))
	}
	select {
	case <-t.work.Idle():
		return
	case <-time.After(left):
	}
	if t.returned(); t.work.IsIdle() {
		return
	}
	reports.Go(t.overrun(began, "its session has ended, so another may lead now"))
	<-t.work.Idle()
}

// overrun makes a report of work that runs on.
func (t *Term) overrun(since time.Time, meanwhile string) func() {
	return t.announcer.beside(t.ctx, hooks.Failure{Op: hooks.OpWork, Since: since, Returned: t.work.Idle(), Err: fmt.Errorf(
		"%w: it has not returned %v after its context was cancelled%s: %s: make it return when its context is done (does it wait for a RequestResign of its own?), or choose a longer drain",
		ErrOverrun, time.Since(since).Round(time.Millisecond), t.announcer.busy(), meanwhile)})
}

// begin reports whether work may begin: only while the term is valid. If so, t.work.Finish
// must follow; else the term has ended.
func (t *Term) begin() bool {
	for !t.work.Begin(t.Valid) {
		if t.endIfOver() != nil { // now that the work does not count
			return false
		}
	}
	return true
}

// doWork calls lead, unless the term has ended before it could begin.
func (t *Term) doWork(lead func(ctx context.Context, term *Term) error) error {
	if !t.begin() {
		return nil
	}
	defer t.work.Finish()
	return lead(t.ctx, t)
}

// because is the error of a call on the term that has failed, and the one place that decides its cause. The end of the
// term comes first, because the caller's ctx may have ended with the term. The error wraps ErrNotLeader and the term's
// cause if the term has ended; ctx.Err() and the cause of ctx if ctx has ended by itself; and err, which may be nil.
func (t *Term) because(ctx context.Context, doing string, err error) error {
	over := t.endIfOver()
	if ctx.Err() != nil && !errors.Is(over, context.Cause(ctx)) {
		err = wrap(ended(ctx, doing), err)
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

package elector

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// work counts what goes on under a term (lead, the functions of RunIfLeader,
// OnElected), so that the lock is released only after all of it has returned.
type work struct {
	mu    sync.Mutex
	n     int
	ended bool
	idle  chan struct{} // closed once ended and nothing goes on
}

func newWork() *work { return &work{idle: make(chan struct{})} }

// begin reports whether more work may begin; if so, finish must follow. It asks valid while
// no count can be taken, so that what does not begin is never seen as work that runs on.
func (w *work) begin(valid func() bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || !valid() {
		return false
	}
	w.n++
	return true
}

func always() bool { return true }

func (w *work) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n--
	w.settle()
}

// end lets no more work begin.
func (w *work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.settle()
}

func (w *work) settle() {
	if !w.ended || w.n > 0 {
		return
	}
	select {
	case <-w.idle:
	default:
		close(w.idle)
	}
}

// isIdle reports whether all work has returned and no more may begin.
func (w *work) isIdle() bool {
	select {
	case <-w.idle:
		return true
	default:
		return false
	}
}

// awaitWork waits until the term's work has returned, however long that takes, and
// reports work that overruns: once while the session lives, for then the lock is held
// and nobody else can lead, and once after the session has ended. What the caller of
// Campaign does is not known: it has the drain, unless it resigns before.
func (t *Term) awaitWork() {
	t.work.end()
	began, lease, lost := time.Now(), t.elector.lease, t.lock.Context().Done()
	var reports sync.WaitGroup
	defer reports.Wait()
	defer time.AfterFunc(lease.Drain, t.returned).Stop()
	select {
	case <-t.work.idle:
		return
	case <-lost:
	case <-time.After(max(lease.Drain, lease.Heartbeat)): // a drain of 0 leaves work no time to return
		if t.returned(); t.work.isIdle() {
			return
		}
		reports.Go(t.overrun(began, "the lock stays held, so nobody else can lead until it returns"))
		select {
		case <-t.work.idle:
			return
		case <-lost:
		}
	}
	select {
	case <-t.work.idle:
		return
	case <-time.After(t.lock.DrainLeft()):
	}
	if t.returned(); t.work.isIdle() {
		return
	}
	reports.Go(t.overrun(began, "its session has ended, so another may lead now"))
	<-t.work.idle
}

// overrun makes a report of work that runs on. It does not go through the queue of the
// hooks, which an OnElected that overruns keeps busy.
func (t *Term) overrun(since time.Time, meanwhile string) func() {
	return t.elector.announcer.failure(t.ctx, hooks.Failure{Op: hooks.OpWork, Err: fmt.Errorf(
		"%w: it has not returned %v after its context was cancelled: %s: make it return when its context is done, or choose a longer drain",
		ErrOverrun, time.Since(since).Round(time.Millisecond), meanwhile)})
}

// begin reports whether work may begin: only while the term is valid. If so, t.work.finish
// must follow. The process may have stood still since the grant, so the clocks are asked
// here, and not only where the term was last looked at.
func (t *Term) begin() bool {
	expired := false
	begun := t.work.begin(func() bool {
		expired = !t.Valid()
		return !expired
	})
	if expired {
		if cause := t.lock.Ended(); cause != nil {
			t.end(reasonOf(cause), cause)
		}
	}
	return begun
}

// handOut reports whether a term for the caller of Campaign or TryCampaign may be given to
// it. If not, because the process has stood still since the grant, it sees the term to its end.
func (t *Term) handOut() bool {
	if t.lock.Ended() == nil {
		return true
	}
	t.returned()
	<-t.done
	return false
}

// doWork calls lead, unless the term has ended before it could begin.
func (t *Term) doWork(lead Lead) error {
	if !t.begin() {
		return nil
	}
	defer t.work.finish()
	return lead(t.ctx, t)
}

// RunIfLeader calls fn if this elector leads, and reports whether it did; err
// is what fn returned, or wraps the cause of a ctx that had ended before. fn's
// context ends with ctx and with the term, and the lock is not released before fn
// returns.
func (e *Elector) RunIfLeader(ctx context.Context, fn func(context.Context) error) (ran bool, err error) {
	if ctx.Err() != nil {
		return false, ended(ctx, "run if leader")
	}
	term := e.term.Load()
	if term == nil || !term.begin() {
		return false, nil
	}
	defer term.work.finish()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(term.ctx, func() { cancel(context.Cause(term.ctx)) })
	defer stop()
	return true, fn(ctx)
}

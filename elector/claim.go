package elector

import (
	"context"
	"sync"
)

// claim begins what unclaim ends: no two campaigns or terms at a time. The context that
// it returns ends with ctx, and when the elector is closed; release is called when the
// campaign is over, which may be before the term is.
func (e *Elector) claim(ctx context.Context) (claimed context.Context, release func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closing.Err() != nil:
		return nil, nil, ended(e.closing, "campaign")
	case e.claimed != nil:
		return nil, nil, ErrAlreadyRunning
	}
	e.claimed = make(chan struct{})
	e.monitor.start(ctx)
	claimed, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.closing, func() { cancel(context.Cause(e.closing)) })
	return claimed, func() {
		stop()
		cancel(nil)
	}, nil
}

func (e *Elector) unclaim() {
	e.monitor.stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.claimed)
	e.claimed = nil
}

// quit is unclaim for a campaign that does not end with a term: no hook is called
// after it.
func (e *Elector) quit() {
	e.monitor.stop()
	e.announcer.flush()
	e.unclaim()
}

// Close ends what the elector does, in order. A campaign ends at once. A term ends with
// the reason hooks.Shutdown and a cause that wraps ErrStopped: its work returns, OnDemoted
// is called, and the lock is released, as at the end of Run's context. The work of
// Campaign's or TryCampaign's caller has returned when that calls Resign, or when the
// drain is over. When all of that is done, no hook is called any more, and an elector of
// a [Session] is removed from it: nothing of it is kept, and [Session.Elector] can make
// the same election again. The session and its other elections go on.
//
// From the call on, Run, Start, Campaign and TryCampaign return an error that wraps
// ErrStopped, at once or when they have ended in order; RunIfLeader calls nothing;
// Stop returns what it would have. Leader, Candidates and Observe can still be used.
//
// Close waits until all is done, and returns nil. If ctx ends first, it returns an error
// that wraps its cause, and the closing goes on. It may be called from any goroutine, and
// again, but lead, a function of RunIfLeader or a hook that waits for it waits for itself.
func (e *Elector) Close(ctx context.Context) error {
	e.close(ErrStopped)
	e.closeOnce.Do(func() { go e.awaitClosed() })
	select {
	case <-e.closed:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-e.closed: // whatever ctx says
		return nil
	default:
		return ended(ctx, "close the elector: the work of its term has not returned; the lock is released when it does")
	}
}

// awaitClosed waits for the end of what a closed elector does, and removes it from its session.
func (e *Elector) awaitClosed() {
	defer close(e.closed)
	e.mu.Lock()
	claimed := e.claimed
	e.mu.Unlock()
	if claimed != nil {
		<-claimed
	}
	e.announcer.flush()
	if e.shared != nil {
		e.shared.remove(e)
	}
}

// terms counts the attempts and terms of the electors of one session, which Session.Close
// waits for. A nil one counts nothing.
type terms struct {
	mu     sync.Mutex
	closed context.Context // no more begin once it is done
	all    sync.WaitGroup
}

// begin counts an attempt, and the term that it may lead to. It returns the cause if the
// session is closed.
func (t *terms) begin() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed.Err() != nil {
		return context.Cause(t.closed)
	}
	t.all.Add(1)
	return nil
}

func (t *terms) end() {
	if t != nil {
		t.all.Done()
	}
}

// close ends the counting and waits for all that was counted.
func (t *terms) close(cancel func()) {
	t.mu.Lock()
	cancel()
	t.mu.Unlock()
	t.all.Wait()
}

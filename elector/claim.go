package elector

import (
	"context"
	"sync"
)

// claim begins what unclaim ends: no two campaigns or terms at a time.
func (e *Elector) claim(ctx context.Context) error {
	if !e.claimed.CompareAndSwap(false, true) {
		return ErrAlreadyRunning
	}
	if e.monitor != nil {
		e.monitor.Start(ctx)
	}
	return nil
}

func (e *Elector) unclaim() {
	if e.monitor != nil {
		e.monitor.Stop()
	}
	e.claimed.Store(false)
}

// quit is unclaim for a campaign that does not end with a term: no hook is called
// after it.
func (e *Elector) quit() {
	if e.monitor != nil {
		e.monitor.Stop()
	}
	e.announcer.flush()
	e.claimed.Store(false)
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

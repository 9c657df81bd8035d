package elector

import (
	"context"
	"sync"
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

// begin reports whether more work may begin; if so, finish must follow.
func (w *work) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return false
	}
	w.n++
	return true
}

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

// doWork calls lead, unless the term has ended before it could begin.
func (t *Term) doWork(lead Lead) error {
	if !t.work.begin() {
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
	term, leading := e.Term()
	if !leading || !term.work.begin() {
		return false, nil
	}
	defer term.work.finish()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(term.ctx, func() { cancel(context.Cause(term.ctx)) })
	defer stop()
	return true, fn(ctx)
}

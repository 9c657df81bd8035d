package elector

import "sync"

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

// Package gate counts work that others do, so that whoever closes the gate can wait until all of it
// has returned.
package gate

import (
	"context"
	"sync"
)

// A Gate counts work that goes on. Once it is closed, no more may begin. Any goroutine may call its
// methods.
type Gate struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{}  // closed once the gate is closed and nothing goes on
	trials sync.WaitGroup // of work that counts, and may not begin
}

// New makes an open gate.
func New() *Gate { return &Gate{idle: make(chan struct{})} }

// Idle is closed once the gate is closed and nothing goes on.
func (g *Gate) Idle() <-chan struct{} { return g.idle }

// Begin reports whether more work may begin; if so, Finish must follow. It calls valid once the work
// counts, and without the mutex: a process that stands still there blocks nobody.
func (g *Gate) Begin(valid func() bool) bool {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return false
	}
	g.n++
	g.trials.Add(1)
	defer g.trials.Done()
	g.mu.Unlock()
	if !valid() {
		g.Finish()
		return false
	}
	return true
}

// Always is for work that may begin in any case.
func Always() bool { return true }

// Finish ends work that has begun.
func (g *Gate) Finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	g.settle()
}

// Close lets no more work begin.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.settle()
}

func (g *Gate) settle() {
	if !g.closed || g.n > 0 {
		return
	}
	if !IsClosed(g.idle) {
		close(g.idle)
	}
}

// IsIdle reports, after Close, whether all work has returned. It first waits for calls of Begin that
// have not decided yet.
func (g *Gate) IsIdle() bool {
	g.trials.Wait()
	return IsClosed(g.idle)
}

// Await waits for done until ctx ends. It reports whether done is closed, whatever ctx says.
func Await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
	case <-ctx.Done():
	}
	return IsClosed(done)
}

// IsClosed reports whether done is closed.
func IsClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

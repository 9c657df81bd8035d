package session

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// users are the reasons not to hang up on a session that has ended: work that
// relies on its locks and has not returned. The server may know nothing of the end
// (it hears us, and we do not hear it), and would give the locks to others.
type users struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when the last is let go; nil while nobody waits for that
}

// Hold has the session keep its connection after its end until release is called,
// but no longer than work may go on (DrainLeft). It may be called more than once.
func (s *Session) Hold() (release func()) {
	h := &s.users
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n++
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.n--; h.n == 0 && h.none != nil {
			close(h.none)
			h.none = nil
		}
	})
}

// awaitUsers waits until it does no harm to close the connection. One that is broken
// has nothing to keep.
func (s *Session) awaitUsers() {
	if pgerr.Broken(context.Cause(s.ctx)) {
		return
	}
	h := &s.users
	h.mu.Lock()
	if h.n == 0 {
		h.mu.Unlock()
		return
	}
	none := make(chan struct{})
	h.none = none
	h.mu.Unlock()
	select {
	case <-none:
	case <-time.After(s.DrainLeft()):
	}
}

// answerTime is a context for work to wait in for an answer that its session has no
// part in: for one lease, but once the session has ended only for half of what is
// left of the drain, so that the work can still return in time.
func (s *Session) answerTime() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ctx, stop := context.WithTimeoutCause(ctx, s.lease.Length, fmt.Errorf("%w within one lease", ErrNoAnswer))
	unlost := context.AfterFunc(s.ctx, func() {
		backoff.Sleep(ctx, s.DrainLeft()/2)
		cancel(context.Cause(s.ctx))
	})
	return ctx, func() {
		unlost()
		stop()
		cancel(nil)
	}
}

package elector

import (
	"context"
	"errors"
	"fmt"
)

// background is a Run on a goroutine of its own.
type background struct {
	stop context.CancelCauseFunc
	done chan struct{}
	err  error // once done: why it ended by itself

	unread []error // of the Starts before, which no Stop has returned
}

// maxUnread is how many errors are kept for Stop: whoever starts an elector again and
// again, and never stops it, does not read them.
const maxUnread = 10

// errors are those that the next Stop returns, once done.
func (b *background) errors() []error {
	all := b.unread
	if b.err != nil {
		all = append(all, b.err)
	}
	return all[max(0, len(all)-maxUnread):]
}

// Start runs the election in the background, as Run with a nil lead does, until
// Stop is called or ctx ends. The work is done by hooks, or guarded by IsLeader,
// RunIfLeader or Term. ErrAlreadyRunning is returned while this elector
// campaigns or leads already.
//
// A run that ends by itself, because the server is refused or attempts are used up,
// reports that to OnError, and Stop returns the error. Start may be called again
// without a Stop: the error is kept.
func (e *Elector) Start(ctx context.Context) error {
	if ctx.Err() != nil {
		return ended(ctx, "start")
	}
	ctx, release, err := e.claim(ctx)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	b := &background{stop: stop, done: make(chan struct{})}
	e.mu.Lock()
	if before := e.background; before != nil {
		<-before.done // at once: its claim has ended
		b.unread = before.errors()
	}
	e.background = b
	e.mu.Unlock()
	go func() {
		defer close(b.done)
		defer release()
		if err := e.run(ctx, nil); !errors.Is(err, context.Cause(ctx)) && !errors.Is(err, ErrStopped) {
			b.err = err
		}
	}()
	return nil
}

// Stop ends what Start began, waits for it, and returns nil, or the error for
// which it had ended by itself: a refused server, or ErrGaveUp. If Start was called
// more than once, the error wraps all that no Stop has returned, the last ten at most.
// If ctx ends first, Stop returns an error that wraps its cause, and the stopping goes on.
// Without a Start, and when called again, it does nothing and returns nil; the
// elector can be used again.
func (e *Elector) Stop(ctx context.Context) error {
	e.mu.Lock()
	b := e.background
	e.mu.Unlock()
	if b == nil {
		return nil
	}
	b.stop(ErrStopped)
	select {
	case <-b.done:
	case <-ctx.Done():
		select {
		case <-b.done: // whatever ctx says
		default:
			return fmt.Errorf("elector: stop: the work has not returned; the lock is released when it does: %w", context.Cause(ctx))
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.background != b {
		return nil // stopped by another call
	}
	e.background = nil
	return errors.Join(b.errors()...)
}

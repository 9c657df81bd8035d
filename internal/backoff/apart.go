package backoff

import (
	"context"
	"runtime/pprof"
)

// What the library does by itself, for months perhaps, is no part of the call that began it: not of its trace,
// and not of its profile.

// Detach returns a context that ends with ctx, with the same cause, and carries none of its values.
func Detach(ctx context.Context) (detached context.Context, stop func()) {
	detached, cancel := context.WithCancelCause(context.Background())
	if ctx.Err() != nil { // at once
		cancel(context.Cause(ctx))
	}
	undo := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return detached, func() {
		undo()
		cancel(nil)
	}
}

// Apart returns run without the pprof labels of the goroutine that starts it.
func Apart(run func()) func() {
	return func() {
		label(context.Background())
		run()
	}
}

// label gives the goroutine the pprof labels of ctx.
func label(ctx context.Context) { pprof.SetGoroutineLabels(ctx) }

// Guard makes a call of the user's, on a goroutine that the call may end (runtime.Goexit). A panic
// ends the call alone.
func Guard(call func()) {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		defer func() { _ = recover() }()
		call()
	}()
	<-returned
}

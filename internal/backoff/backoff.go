// Package backoff is how long to wait: before the next try, and for an answer. It guards the
// caller from what it waits for.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is how long to wait after failed attempts: Min after the first,
// doubling up to Max.
type Backoff struct{ Min, Max time.Duration }

// After is the wait after so many failures in a row (from 1), before jitter.
func (b Backoff) After(failures int) time.Duration {
	d := b.Min
	for range failures - 1 {
		if d > b.Max/2 {
			return b.Max
		}
		d *= 2
	}
	return min(d, b.Max)
}

// Jitter spreads candidates that would otherwise ask in step: a random
// duration between three quarters of d and d, so that d stays an upper bound.
func Jitter(d time.Duration) time.Duration {
	return d - draw(d/4+1)
}

// Spread is the first wait of candidates that began, or failed, at the same
// moment: a random duration between an eighth of d and d.
func Spread(d time.Duration) time.Duration {
	return d - draw(d/8*7+1)
}

// draw draws a duration from 0 up to d, without d.
var draw = func(d time.Duration) time.Duration { return rand.N(d) }

// DrawFrom replaces the random source, so that simulations repeat exactly. Call it while
// nobody waits.
func DrawFrom(source func(d time.Duration) time.Duration) { draw = source }

// AtOnce is the duration of a timer that fires at once. Under the race detector, Go 1.26 crashes if two goroutines of one bubble of
// testing/synctest receive from timers that are due already, as timers of 0 are.
const AtOnce = time.Nanosecond

// Sleep waits for d and reports whether it did; false means ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Either returns a copy of ctx that also ends with other. Its cause is the cause of the context that ends first.
func Either(ctx, other context.Context) (either context.Context, stop func()) {
	either, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return either, func() {
		detach()
		cancel(nil)
	}
}

// Await makes a driver call, which may not return when its context ends, as on a dead
// link. It waits for the answer until ctx ends; then it returns the cause, and leaves the
// call to its own goroutine, which has the pprof labels of ctx. It is the one way to abandon a driver call.
func Await[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	return AwaitOr(ctx, call, func(T) {})
}

// AwaitOr is Await for an answer that must not be lost: drop receives an answer that comes
// after AwaitOr has returned.
func AwaitOr[T any](ctx context.Context, call func(context.Context) (T, error), drop func(T)) (T, error) {
	var value, none T
	answered, err := Answer(ctx, func() (err error) { value, err = call(ctx); return err }, func() { drop(value) })
	if !answered { // the call may go on, and write the value
		return none, err
	}
	return value, err
}

// Answer is Await for a call that keeps its value. answered reports whether the call has
// returned; if it has not, late, which may be nil, is called when it succeeds after all.
func Answer(ctx context.Context, call func() error, late func()) (answered bool, err error) {
	answers := make(chan error) // unbuffered: once sent, it was received
	go func() {
		label(ctx)
		err := call()
		select {
		case answers <- err:
		case <-ctx.Done():
			if err == nil && late != nil {
				late()
			}
		}
	}()
	select {
	case err := <-answers:
		return true, err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

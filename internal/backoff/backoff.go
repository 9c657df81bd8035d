// Package backoff is how long to wait: before the next try, and for an answer.
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

// DrawFrom has another source drawn from, for simulations that must do the same
// again. It is not for use while anybody waits.
func DrawFrom(source func(d time.Duration) time.Duration) { draw = source }

// Sleep waits for d and reports whether it did; false means ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Await makes a call that may not return when its context ends, as a driver's does
// not on a dead link, and waits for its answer no longer than that: then it returns
// the cause, and the call is left to a goroutine of its own.
func Await[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	return AwaitOr(ctx, call, func(T) {})
}

// AwaitOr is Await for what must not be lost: what a call returns that was left to
// itself is given to drop.
func AwaitOr[T any](ctx context.Context, call func(context.Context) (T, error), drop func(T)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer) // without a buffer: to send is to know that somebody still waits
	go func() {
		value, err := call(ctx)
		select {
		case answered <- answer{value, err}:
		case <-ctx.Done():
			if err == nil {
				drop(value)
			}
		}
	}()
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

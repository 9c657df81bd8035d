package elector

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is how long to wait after failed attempts: min after the first,
// doubling up to max.
type backoff struct{ min, max time.Duration }

// after is the wait after so many failures in a row (from 1), before jitter.
func (b backoff) after(failures int) time.Duration {
	d := b.min
	for range failures - 1 {
		if d >= b.max/2 {
			return b.max
		}
		d *= 2
	}
	return min(d, b.max)
}

// jitter spreads candidates that would otherwise ask in step: a random
// duration between three quarters of d and d, so that d stays an upper bound.
func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/4+1)
}

// spread is the first wait of candidates that began, or failed, at the same
// moment: a random duration between an eighth of d and d.
func spread(d time.Duration) time.Duration {
	return d - rand.N(d/8*7+1)
}

// sleep waits for d and reports whether it did; false means ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

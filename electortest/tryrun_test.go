package electortest_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

func TestTryRunLeadsIfNobodyElseDoes(t *testing.T) {
	bubble(t, func(b *bench) {
		c, other := b.candidate("a"), b.candidate("b")
		elected, err := c.TryRun(always, func(ctx context.Context, term *elector.Term) error {
			ran, err := other.TryRun(always, nil)
			if ran || err != nil {
				b.Errorf("elected %v under another's term, %v", ran, err)
			}
			return errOops
		})
		if !elected {
			b.Error("not elected")
		}
		b.wraps(err, errOops)
		if len(b.Locks()) != 0 {
			b.Errorf("locks are left: %+v", b.Locks())
		}
	})
}

func TestTryRunReturnsWhyTheTermWasLost(t *testing.T) {
	bubble(t, func(b *bench) {
		c := b.candidate("a")
		began := time.Now()
		elected, err := c.TryRun(always, func(ctx context.Context, _ *elector.Term) error {
			b.Terminate(b.pid(c))
			<-ctx.Done()
			return nil
		})
		if !elected || time.Since(began) > heartbeat+time.Second {
			b.Errorf("elected %v, returned after %v", elected, time.Since(began))
		}
		b.wraps(err, elector.ErrSessionLost)
		ctx, stop := context.WithCancel(always)
		stop()
		_, err = c.TryRun(ctx, nil)
		b.wraps(err, context.Canceled)
	})
}

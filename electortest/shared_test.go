package electortest_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// The connection that many terms share is kept until the work of the last of them has
// returned, and not of the first.
func TestTheLocksOfASharedSessionAreKeptForTheSlowest(t *testing.T) {
	bubble(t, func(b *bench) {
		process := b.NewProcess()
		pool := process.Open()
		session, err := elector.NewSession(pool)
		b.wraps(err)
		work := map[string]time.Duration{"quick": 0, "slow": lease / 10} // of a drain of two tenths
		returned, done := make(chan string, len(work)), make(chan error, len(work))
		ctx, stop := context.WithCancel(context.Background())
		for name, windsDown := range work {
			e, err := session.Elector(name)
			b.wraps(err)
			go func() {
				done <- e.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
					<-ctx.Done()
					time.Sleep(windsDown)
					returned <- name
					return nil
				})
			}()
		}
		time.Sleep(5 * time.Second)
		process.Cut(electortest.Answers) // the server hears of us, and does not know
		<-returned
		time.Sleep(lease/10 - time.Millisecond)
		if n := len(b.Locks()); n != len(work) {
			b.Errorf("%d locks are held while the work of one of %d winds down", n, len(work))
		}
		<-returned
		process.Mend()
		stop()
		for range work {
			b.wraps(<-done, context.Canceled)
		}
		b.wraps(session.Close(context.Background()))
		_ = pool.Close()
	})
}

package electortest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

func TestAClockThatIsSetForwardEndsATermAndOneSetBackDoesNot(t *testing.T) {
	for shift, survives := range map[time.Duration]bool{time.Hour: false, -time.Hour: true, time.Second: true} {
		bubble(t, func(b *bench) {
			one := b.run("one")
			b.leads(one)
			term, _ := one.Term()
			one.process.ShiftClock(shift)
			if err := term.Verify(context.Background()); !survives {
				b.wraps(err, elector.ErrNotLeader, elector.ErrLeaseExpired)
				if strings.Contains(err.Error(), "%!") {
					b.Errorf("got %v", err)
				}
			}
			if one.IsLeader() != survives {
				b.Errorf("after a shift of %v: leads %v", shift, one.IsLeader())
			}
			time.Sleep(2 * lease)
			if term.Valid() != survives {
				b.Errorf("a while after a shift of %v: leads %v", shift, term.Valid())
			}
			b.leads(one)
		})
	}
}

// The server receives the leader's messages, but its answers are lost: the leader holds the
// lock while its connection is open, so the connection must outlast the work.
func TestALeaderThatHearsNothingKeepsItsLockUntilItsWorkHasReturned(t *testing.T) {
	for _, driver := range []electortest.Driver{electortest.PGX, electortest.PQ} {
		bubble(t, func(b *bench) {
			one := b.candidate("one")
			one.process.SetDriver(driver)
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			held, done := make(chan int, 2), make(chan error)
			go func() {
				done <- one.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
					one.process.Cut(electortest.Answers)
					<-ctx.Done()
					held <- len(b.Locks())
					time.Sleep(lease / 6) // the drain is a fifth
					held <- len(b.Locks())
					stop()
					return nil
				})
			}()
			if n := <-held; n != 2 { // with its seat
				b.Errorf("driver %v: as the term ends, %d locks are held", driver, n)
			}
			if n := <-held; n != 2 { // with its seat
				b.Errorf("driver %v: as the work returns, %d locks are held", driver, n)
			}
			b.wraps(<-done, context.Canceled)
			one.process.Mend()
			time.Sleep(lease)
			if n := len(b.Locks()); n != 0 {
				b.Errorf("driver %v: %d locks are left", driver, n)
			}
		})
	}
}

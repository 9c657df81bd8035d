package memory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
)

const hold = time.Minute

var work = func(context.Context, *elector.Term) error { time.Sleep(time.Second); return nil }

func TestAHoldKeepsTheLockAndTheTermAfterWorkThatSucceeded(t *testing.T) {
	bubble(t, func(b *bench) {
		one, other := b.candidate("a", elector.WithHold(hold)), b.candidate("b", elector.WithHold(hold))
		began := time.Now()
		var electedAt time.Time
		var term *elector.Term
		time.AfterFunc(hold-time.Second, func() {
			if ran, err := other.TryRun(always, work); ran || err != nil {
				b.Errorf("in the hold another ran: %v, %v", ran, err)
			}
			if term.Context().Err() != nil || !term.Valid() || !one.IsLeader() {
				b.Errorf("in the hold the term has ended: %v", context.Cause(term.Context()))
			}
		})
		elected, err := one.TryRun(always, func(ctx context.Context, t *elector.Term) error {
			term, electedAt = t, t.ElectedAt()
			return work(ctx, t)
		})
		if held := time.Since(electedAt); !elected || err != nil || held < hold || time.Since(began) > hold+time.Second {
			b.Errorf("elected %v, %v, held for %v", elected, err, held)
		}
		if term.Context().Err() == nil || len(b.Locks()) != 0 {
			b.Errorf("after the hold: term %v, locks %+v", term.Context().Err(), b.Locks())
		}
	})
}

// Long work is its own hold.
func TestAHoldAddsNothingToWorkThatTakesLonger(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("a", elector.WithHold(time.Second))
		var returned time.Time
		elected, err := one.TryRun(always, func(context.Context, *elector.Term) error {
			time.Sleep(time.Minute)
			returned = time.Now()
			return nil
		})
		if more := time.Since(returned); !elected || err != nil || more > time.Second/2 {
			b.Errorf("elected %v, %v, held %v longer", elected, err, more)
		}
	})
}

func TestWorkThatFailsIsNotHeld(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("a", elector.WithHold(hold))
		began := time.Now()
		elected, err := one.TryRun(always, func(context.Context, *elector.Term) error { return errOops })
		if b.wraps(err, errOops); !elected || time.Since(began) > time.Second {
			b.Errorf("elected %v, after %v", elected, time.Since(began))
		}
	})
}

// The work is done: what ends the hold is no error of it.
func TestAHoldEndsAtOnceAndTheWorkIsDoneAllTheSame(t *testing.T) {
	for name, end := range map[string]func(b *bench, one *candidate, stop context.CancelFunc){
		"ctx":     func(_ *bench, _ *candidate, stop context.CancelFunc) { stop() },
		"Close":   func(b *bench, one *candidate, _ context.CancelFunc) { b.wraps(one.Close(always)) },
		"session": func(b *bench, one *candidate, _ context.CancelFunc) { b.Terminate(b.pid(one)) },
		"Resign": func(b *bench, one *candidate, _ context.CancelFunc) {
			term, _ := one.Term()
			b.wraps(term.Resign(always))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				one := b.candidate("a", elector.WithHold(hold))
				ctx, stop := context.WithCancel(always)
				defer stop()
				ended := 10 * time.Second
				time.AfterFunc(ended, func() { end(b, one, stop) })
				began := time.Now()
				elected, err := one.TryRun(ctx, work)
				if took := time.Since(began); !elected || err != nil || took < ended || took > ended+2*heartbeat {
					b.Errorf("elected %v, %v, after %v", elected, err, took)
				}
				synctest.Wait()
				if len(b.Locks()) != 0 {
					b.Errorf("locks are left: %+v", b.Locks())
				}
			})
		})
	}
}

// Work that was stopped is not done, also if it returns nil.
func TestAStopOfTheWorkIsAnErrorWithAHoldToo(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("a", elector.WithHold(hold))
		ctx, stop := context.WithCancelCause(always)
		time.AfterFunc(time.Second, func() { stop(errOops) })
		_, err := one.TryRun(ctx, nil)
		b.wraps(err, context.Canceled, errOops)
		_, err = one.TryRun(always, func(ctx context.Context, _ *elector.Term) error {
			b.Terminate(b.pid(one))
			<-ctx.Done()
			return nil
		})
		b.wraps(err, elector.ErrSessionLost)
	})
}

// Three hosts whose clocks differ by 40 ms run each tick.
func TestHostsWhoseClocksDifferRunATickOnceWithAHoldAndMoreOftenWithout(t *testing.T) {
	const skew, ticks = 40 * time.Millisecond, 20
	for hold, want := range map[time.Duration]bool{0: false, time.Second / 2: true} {
		bubble(t, func(b *bench) {
			runs := make([]int, ticks)
			hosts := []*candidate{b.candidate("a", elector.WithHold(hold)), b.candidate("b", elector.WithHold(hold)), b.candidate("c", elector.WithHold(hold))}
			began := time.Now()
			ended := make(chan struct{})
			for i, host := range hosts {
				go func() {
					defer func() { ended <- struct{}{} }()
					for tick := range ticks {
						time.Sleep(time.Until(began.Add(time.Duration(tick)*time.Second + time.Duration(i)*skew)))
						if _, err := host.TryRun(always, func(context.Context, *elector.Term) error { runs[tick]++; return nil }); err != nil {
							b.Error(err)
						}
					}
				}()
			}
			for range hosts {
				<-ended
			}
			once := true
			for _, n := range runs {
				once = once && n == 1
			}
			if once != want {
				b.Errorf("with a hold of %v the ticks ran %v times", hold, runs)
			}
		})
	}
}

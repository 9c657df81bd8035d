package electortest_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

const drain = lease / 5

// overruns returns the reports of work that has not returned.
func (s *candidate) overruns() (all []hooks.Failure) {
	for _, f := range s.rec.Failures() {
		if f.Op == hooks.OpWork && errors.Is(f.Err, elector.ErrOverrun) {
			all = append(all, f)
		}
	}
	return all
}

// If the lock is not held any more, the report says that another may lead.
func TestWorkThatOverrunsIsReportedWhenTheDrainIsOver(t *testing.T) {
	for reason, end := range map[hooks.Reason]func(b *bench, s *candidate, term *elector.Term, sick *atomic.Bool){
		hooks.Resigned:     func(_ *bench, _ *candidate, term *elector.Term, _ *atomic.Bool) { go term.Resign(always) },
		hooks.Shutdown:     func(_ *bench, s *candidate, _ *elector.Term, _ *atomic.Bool) { s.stop() },
		hooks.Unhealthy:    func(_ *bench, _ *candidate, _ *elector.Term, sick *atomic.Bool) { sick.Store(true) },
		hooks.SessionLost:  func(b *bench, s *candidate, _ *elector.Term, _ *atomic.Bool) { b.Terminate(b.pid(s)) },
		hooks.LeaseExpired: func(_ *bench, s *candidate, _ *elector.Term, _ *atomic.Bool) { s.process.Cut(0) },
	} {
		for late, want := range map[time.Duration]int{drain - 1: 0, drain + 1: 1, lease: 1} {
			for _, inHook := range []bool{false, true} {
				scene(t, string(reason), func(b *bench) {
					var one *candidate
					var sick atomic.Bool
					work := func(ctx context.Context) {
						<-ctx.Done()
						time.Sleep(late)
						synctest.Wait()
						if len(one.rec.Demoted()) > 0 {
							b.Error("demoted before the work has returned")
						}
						if n := len(one.overruns()); n != want {
							b.Errorf("%d reports before work returns %v late", n, late)
						}
						one.stop()
					}
					opts := []elector.Option{elector.WithHealth(func(context.Context) float64 {
						if sick.Load() {
							return 0
						}
						return 1
					}, elector.HealthPolicy{})}
					reported := make(chan struct{}, 10)
					opts = append(opts, elector.WithHooks(hooks.Funcs{
						Elected: func(ctx context.Context, _ hooks.Elected) {
							if inHook {
								work(ctx)
							}
						},
						Error: func(_ context.Context, f hooks.Failure) {
							if f.Op == hooks.OpWork {
								reported <- struct{}{}
							}
						},
					}))
					one = b.candidate("one", opts...)
					ctx, stop := context.WithCancel(always)
					one.stop = stop
					b.wraps(one.Run(ctx, func(ctx context.Context, term *elector.Term) error {
						time.Sleep(time.Second)
						end(b, one, term, &sick)
						if inHook {
							<-ctx.Done()
						} else {
							work(ctx)
						}
						return nil
					}), context.Canceled)
					one.process.Mend()
					b.ended(one, reason)
					all := one.overruns()
					if len(all) != want || len(reported) != want {
						b.Fatalf("%d reports, %d calls of OnError", len(all), len(reported))
					}
					lost := reason == hooks.SessionLost || reason == hooks.LeaseExpired
					for _, f := range all {
						if strings.Contains(f.Err.Error(), "another may lead") != lost {
							b.Errorf("reported %v", f.Err)
						}
						b.within("reported", drain, f.At.Sub(one.rec.Demoted()[0].At), drain)
					}
				})
			}
		}
	}
}

// While the lock is held nobody else leads; once the session has ended, somebody may.
func TestASessionThatEndsWhileWorkHangsIsReportedOnceMore(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		ctx, stop := context.WithCancel(always)
		b.wraps(one.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
			stop()
			time.Sleep(lease)
			b.Terminate(b.pid(one))
			time.Sleep(lease)
			return nil
		}), context.Canceled)
		all := one.overruns()
		if len(all) != 2 || strings.Contains(all[0].Err.Error(), "another may lead") || !strings.Contains(all[1].Err.Error(), "another may lead") {
			b.Errorf("reported %+v", all)
		}
	})
}

// Even with a drain of 0 work has a moment to return while the lock is held.
func TestWorkThatReturnsSoonIsNoOverrunWhileTheLockIsHeld(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one", elector.WithDrain(0))
		ctx, stop := context.WithTimeout(always, 3*time.Second)
		defer stop()
		b.wraps(one.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
			<-ctx.Done()
			time.Sleep(2*time.Second - 1)
			return nil
		}), context.DeadlineExceeded)
		b.failed(one)
	})
}

package memory_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

type lead = func(context.Context, *elector.Term) error

func TestRunReturnsWhatLeadReturned(t *testing.T) {
	for name, want := range map[string]error{"nil": nil, "an error": errOops, "a context's error": context.DeadlineExceeded} {
		scene(t, name, func(b *bench) {
			one := b.candidate("one")
			if err := one.Run(always, func(context.Context, *elector.Term) error { return want }); err != want {
				b.Errorf("got %v", err)
			}
			if want == nil {
				b.ended(one, hooks.Resigned)
			} else {
				b.ended(one, hooks.LeadFailed)
				b.wraps(one.rec.Demoted()[0].Err, elector.ErrLeadFailed, want)
			}
			b.failed(one)
		})
	}
}

func TestUnlockNeverPrecedesLeadReturn(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		ctx, stop := context.WithTimeout(always, time.Second)
		defer stop()
		start := time.Now()
		b.wraps(one.Run(ctx, func(ctx context.Context, term *elector.Term) error {
			<-ctx.Done()
			time.Sleep(100 * time.Second)
			if one.IsLeader() || term.Valid() || !b.holds(one.Elector) || len(one.rec.Demoted()) != 0 || len(one.rec.Heartbeats()) != 0 {
				b.Error("the term goes on, or its lock or its hooks did not wait for the work")
			}
			return nil
		}), context.DeadlineExceeded)
		b.within("Run", 101*time.Second, time.Since(start), 101*time.Second)
		b.failed(one, hooks.OpWork)
		b.ended(one, hooks.Shutdown)
		if d := one.rec.Demoted()[0]; d.Held != time.Second || !errors.Is(d.Err, context.DeadlineExceeded) || b.holds(one.Elector) {
			b.Errorf("reported %+v", d)
		}
	})
}

func TestWorkThatIsRefusedAfterTheTermDoesNotFreeItsLock(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		ctx, stop := context.WithTimeout(always, time.Second)
		defer stop()
		b.wraps(one.Run(ctx, func(ctx context.Context, term *elector.Term) error {
			<-ctx.Done()
			err := term.InTx(always, one.pool, nil, func(*sql.Tx) error { b.Error("the function was called"); return nil })
			b.wraps(err, elector.ErrRolledBack, elector.ErrNotLeader, context.DeadlineExceeded)
			if ran, err := one.RunIfLeader(always, nil); ran || err != nil {
				b.Errorf("ran %t, %v", ran, err)
			}
			time.Sleep(time.Second)
			if !b.holds(one.Elector) || len(one.rec.Demoted()) > 0 {
				b.Error("the lock or the hooks did not wait for the work")
			}
			return nil
		}), context.DeadlineExceeded)
		b.ended(one, hooks.Shutdown)
	})
}

// OnElected is called although the term has ended, because its OnDemoted follows.
func TestUnlockDoesNotPrecedeLeadReturnIfOnElectedIsLate(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one", elector.WithHooks(hooks.Funcs{Campaign: func(context.Context, hooks.Campaign) { time.Sleep(3 * time.Second) }}))
		ctx, stop := context.WithTimeout(always, time.Second)
		defer stop()
		b.wraps(one.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
			<-ctx.Done()
			time.Sleep(lease)
			if len(one.rec.Elected()) != 1 || len(one.rec.Demoted()) != 0 || !b.holds(one.Elector) {
				b.Errorf("the lock or the hooks did not wait for the work: %+v", one.rec.Events())
			}
			return nil
		}), context.DeadlineExceeded)
		b.ended(one, hooks.Shutdown)
	})
}

// errors.Is(err, context.Canceled) tells whether it was clean.
func TestAShutdownEndsLeadWithItsCauseAndReturnsLeadsError(t *testing.T) {
	reason := errors.New("the pod is evicted")
	type leads = func(ctx, outer context.Context, stop func()) error
	for name, c := range map[string]struct {
		lead  leads
		fails bool
		early bool // before the shutdown
	}{
		"lead returns nil":                   {lead: func(ctx, _ context.Context, _ func()) error { <-ctx.Done(); return nil }},
		"lead returns its context's error":   {lead: func(ctx, _ context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() }},
		"lead returns its context's cause":   {lead: func(ctx, _ context.Context, _ func()) error { <-ctx.Done(); return context.Cause(ctx) }},
		"lead returns the outer one's error": {lead: func(_, ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() }},
		"lead causes the shutdown":           {lead: func(_, _ context.Context, stop func()) error { stop(); return nil }},
		"lead returns an error":              {lead: func(ctx, _ context.Context, _ func()) error { <-ctx.Done(); return errOops }, fails: true},
		"lead fails by another context": {lead: func(_, _ context.Context, _ func()) error {
			return fmt.Errorf("%w: %w", errOops, context.Canceled)
		}, fails: true, early: true},
		"lead causes the shutdown and fails": {lead: func(_, _ context.Context, stop func()) error { stop(); return errOops }, fails: true},
	} {
		scene(t, name, func(b *bench) {
			one := b.candidate("one")
			ctx, stop := context.WithCancelCause(always)
			time.AfterFunc(time.Second, func() { stop(reason) })
			err := one.Run(ctx, func(inner context.Context, _ *elector.Term) error {
				return c.lead(inner, ctx, func() { stop(reason) })
			})
			switch {
			case c.early:
				b.wraps(err, elector.ErrLeadFailed)
			case c.fails:
				b.wraps(err, elector.ErrLeadFailed, errOops)
			default:
				b.wraps(err, reason, context.Canceled)
			}
			if errors.Is(err, context.Canceled) == c.fails {
				b.Errorf("got %v", err)
			}
			b.failed(one)
			if c.early {
				b.ended(one, hooks.LeadFailed)
				return
			}
			b.ended(one, hooks.Shutdown)
			b.wraps(one.rec.Demoted()[0].Err, reason)
		})
	}
}

// The error is not reported if it only wraps that of its context.
func TestAnErrorOfLeadAfterItsTermWasLostIsReportedAndTheCampaignGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		err    func(context.Context) error
		failed []hooks.Op
	}{
		"the context's error": {context.Context.Err, []hooks.Op{hooks.OpHeartbeat}},
		"the context's cause": {context.Cause, []hooks.Op{hooks.OpHeartbeat}},
		"another error":       {func(context.Context) error { return errOops }, []hooks.Op{hooks.OpHeartbeat, hooks.OpLead}},
	} {
		scene(t, name, func(b *bench) {
			one := b.candidate("one")
			ctx, stop := context.WithCancelCause(always)
			shutdown, terms := errors.New("shutdown"), 0
			err := one.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
				if terms++; terms == 2 {
					time.AfterFunc(time.Second, func() { stop(shutdown) })
					<-ctx.Done()
					return ctx.Err()
				}
				b.Terminate(b.pid(one))
				<-ctx.Done()
				return c.err(ctx)
			})
			if b.wraps(err, shutdown, context.Canceled); errors.Is(err, elector.ErrSessionLost) {
				b.Errorf("got %v", err)
			}
			b.failed(one, c.failed...)
			if len(c.failed) > 1 {
				b.wraps(one.rec.Failures()[1].Err, elector.ErrLeadFailed, errOops)
			}
		})
	}
}

// So does runtime.Goexit.
func TestAPanicOfLeadReachesTheCallerAfterTheRelease(t *testing.T) {
	for name, c := range map[string]struct {
		lead lead
		want any
	}{
		"panic":  {func(context.Context, *elector.Term) error { panic("boom") }, "boom"},
		"Goexit": {func(context.Context, *elector.Term) error { runtime.Goexit(); return nil }, nil},
	} {
		scene(t, name, func(b *bench) {
			one := b.candidate("one", elector.WithHooks(hooks.Funcs{Demoted: func(context.Context, hooks.Demoted) { time.Sleep(time.Second) }}))
			gone := make(chan any)
			go func() {
				defer func() {
					p := recover()
					if b.holds(one.Elector) {
						b.Error("the lock is held")
					}
					gone <- p
				}()
				_ = one.Run(always, c.lead)
				b.Error("Run returned")
			}()
			if p := <-gone; p != c.want {
				b.Errorf("recovered %v", p)
			}
			b.ended(one, hooks.LeadFailed)
			b.wraps(one.rec.Demoted()[0].Err, elector.ErrLeadFailed)
			b.wraps(b.campaign(one.Elector).Resign(always)) // the elector can be used again
		})
	}
}

func TestResignReturnsWhenTheLockIsFree(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		term := b.campaign(one.Elector)
		if got, leading := one.Term(); got != term || !leading {
			b.Errorf("got %v, %v", got, leading)
		}
		both := make(chan error)
		for range 2 {
			go func() { both <- term.Resign(always) }()
		}
		b.wraps(<-both)
		if b.holds(one.Elector) {
			b.Error("the lock is held")
		}
		b.wraps(<-both)
		b.ended(one, hooks.Resigned)
		if got, leading := one.Term(); got != nil || leading || one.IsLeader() || term.Valid() {
			b.Errorf("got %v, %v", got, leading)
		}
		next := b.campaign(one.Elector)
		for range 20 {
			b.wraps(term.Resign(term.Context())) // which has ended, as the term has
		}
		b.wraps(term.Verify(always), elector.ErrNotLeader, elector.ErrResigned)
		if term.Valid() || !next.Valid() || next.Token() <= term.Token() {
			b.Error("the old term came back, or resigned for the new one")
		}
		b.wraps(next.Resign(always))
	})
}

func TestResignWaitsForLeadNoLongerThanItsContextAndALease(t *testing.T) {
	for name, c := range map[string]struct {
		ctx  func(ctx context.Context) (context.Context, context.CancelFunc)
		took time.Duration
		want error
	}{
		"the term's context": {context.WithCancel, 0, elector.ErrResigned},
		"a timeout": {func(context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(always, time.Second)
		}, time.Second, context.DeadlineExceeded},
		"no limit": {func(context.Context) (context.Context, context.CancelFunc) { return context.WithCancel(always) }, lease, elector.ErrOverrun},
	} {
		scene(t, name, func(b *bench) {
			one := b.candidate("one")
			running, stop := context.WithCancel(always)
			b.wraps(one.Run(running, func(ctx context.Context, term *elector.Term) error {
				ctx, cancel := c.ctx(ctx)
				defer cancel()
				start := time.Now()
				b.wraps(term.Resign(ctx), c.want) // inside lead it waits for itself
				b.within("Resign", c.took, time.Since(start), c.took)
				if one.IsLeader() || len(one.rec.Demoted()) != 0 || !b.holds(one.Elector) {
					b.Error("the term goes on, or its lock or its hooks did not wait for the work")
				}
				time.Sleep(3 * time.Second)
				stop()
				return nil
			}), context.Canceled)
			b.ended(one, hooks.Resigned)
		})
	}
}

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
		elected, err = c.TryRun(always, func(context.Context, *elector.Term) error { return nil })
		if b.wraps(err); !elected {
			b.Error("not elected")
		}
		synctest.Wait()
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
		evicted, evict := context.WithCancelCause(always)
		time.AfterFunc(time.Second, func() { evict(errOops) })
		_, err = c.TryRun(evicted, nil)
		b.wraps(err, context.Canceled, errOops)
	})
}

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
					opts := []elector.Option{elector.WithHealth(func(context.Context) elector.HealthReport {
						if sick.Load() {
							return elector.HealthReport{Score: 0}
						}
						return elector.HealthReport{Score: 1}
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

// The report bypasses the queue of the hooks.
func TestRunWaitsForTheReportThatItsWorkOverran(t *testing.T) {
	bubble(t, func(b *bench) {
		told := false
		one := b.candidate("one", elector.WithHooks(hooks.Funcs{Error: func(context.Context, hooks.Failure) {
			time.Sleep(lease)
			told = true
		}}))
		ctx, stop := context.WithTimeout(always, time.Second)
		defer stop()
		b.wraps(one.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
			<-ctx.Done()
			time.Sleep(drain + time.Second)
			return nil
		}), context.DeadlineExceeded)
		if !told {
			b.Error("a hook runs on after Run has returned")
		}
		b.failed(one, hooks.OpWork)
	})
}

// It has had no time to return.
func TestWorkOfAFrozenLeaderThatReturnsAtOnceWhenItThawsIsNoOverrun(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		ctx, stop := context.WithCancel(always)
		b.wraps(one.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
			one.process.Freeze()
			time.Sleep(2 * lease)
			one.process.Thaw()
			<-ctx.Done()
			time.Sleep(10 * time.Millisecond)
			stop()
			return nil
		}), context.Canceled)
		if n := len(one.overruns()); n != 0 {
			b.Errorf("%d reports", n)
		}
	})
}

// Another may lead by then, and nothing is left of the drain.
func TestWorkOfAFrozenLeaderIsReportedToOverrunAsSoonAsItThaws(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		ctx, stop := context.WithCancel(always)
		b.wraps(one.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
			one.process.Freeze()
			time.Sleep(2 * lease)
			one.process.Thaw()
			<-ctx.Done()
			time.Sleep(drain / 10)
			stop()
			if n := len(one.overruns()); n != 1 {
				b.Errorf("%d reports", n)
			}
			return nil
		}), context.Canceled)
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

// The work of Campaign's caller has the drain, however rare the heartbeats are.
func TestTheLockOfACallerWhoDoesNotResignIsFreeAfterTheDrain(t *testing.T) {
	bubble(t, func(b *bench) {
		const drain = heartbeat / 4
		one := b.candidate("one", elector.WithDrain(drain))
		term := b.campaign(one.Elector)
		pool := b.Open()
		defer pool.Close()
		asked := make(chan error, 1)
		go func() {
			_, err := elector.RequestResign(always, pool, "orders")
			asked <- err
		}()
		<-term.Context().Done()
		for _, free := range []bool{false, true} {
			time.Sleep(drain * 9 / 10)
			synctest.Wait()
			if b.holds(one.Elector) == free {
				b.Errorf("the lock is free: %t", !free)
			}
		}
		b.wraps(<-asked)
	})
}

// A lateContext tells the contexts made of it later that it has ended.
type lateContext struct{ context.Context }

func (lateContext) Value(any) any { return nil } // hides that it is one of package context

func (c lateContext) AfterFunc(call func()) (stop func() bool) {
	return context.AfterFunc(c.Context, func() {
		time.Sleep(time.Second)
		call()
	})
}

func TestALeadThatIsTheFirstToSeeTheEndOfTheCallersContextIsACleanStop(t *testing.T) {
	for name, returned := range map[string]error{"without an error": nil, "with the context's": context.Canceled} {
		scene(t, name, func(b *bench) {
			ctx, stop := context.WithCancel(always)
			time.AfterFunc(time.Second, stop)
			one := b.candidate("one")
			b.wraps(one.Run(lateContext{ctx}, func(context.Context, *elector.Term) error {
				<-ctx.Done()
				return returned
			}), context.Canceled)
		})
	}
}

// lead is the first to see that its elector is closed, and fails.
func TestALeadThatFailsAsItsElectorIsClosedIsAFailure(t *testing.T) {
	for range 50 {
		bubble(t, func(b *bench) {
			one := b.candidate("one")
			err := one.Run(always, func(_ context.Context, term *elector.Term) error {
				ended, stop := context.WithCancel(always)
				stop()
				_ = one.Close(ended)
				return errOops
			})
			b.wraps(err, elector.ErrLeadFailed, errOops)
			_ = one.Close(always)
		})
	}
}

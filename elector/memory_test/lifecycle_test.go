package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

// The release on a dead link may take longer than the shortest lease; the work has returned.
func TestAResignationOnADeadLinkIsNoOverrun(t *testing.T) {
	bubble(t, func(b *bench) {
		s := b.candidate("one", elector.WithLease(time.Second))
		term := b.campaign(s.Elector)
		s.process.SetDriver(electortest.PQ)
		s.process.Cut(electortest.Both)
		err := term.Resign(always)
		b.wraps(err, elector.ErrSessionLost)
		if errors.Is(err, elector.ErrOverrun) {
			b.Errorf("got %v", err)
		}
		s.process.Mend()
	})
}

// The lease for which Resign waits is over during the release, which is no overrun. A hook that is
// told that the release has failed, and does not return within the next one, is.
func TestAResignationWaitsForAHookAfterTheReleaseNoLongerThanALease(t *testing.T) {
	bubble(t, func(b *bench) {
		const lease = time.Second
		one := b.candidate("one", elector.WithLease(lease), elector.WithHooks(hooks.Funcs{Error: func(_ context.Context, f hooks.Failure) {
			if f.Op == hooks.OpRelease {
				time.Sleep(time.Minute)
			}
		}}))
		term := b.campaign(one.Elector)
		working := make(chan bool)
		go func() {
			_, _ = one.RunIfLeader(always, func(context.Context) error {
				close(working)
				time.Sleep(lease / 2)
				one.process.Cut(electortest.Both)
				return nil
			})
		}()
		<-working
		start := time.Now()
		ctx, cancel := context.WithTimeout(always, 10*lease)
		defer cancel()
		b.wraps(term.Resign(ctx), elector.ErrOverrun)
		b.within("Resign", 2*lease, time.Since(start), 2*lease)
		one.process.Mend()
		time.Sleep(time.Minute)
		b.wraps(term.Resign(always), elector.ErrSessionLost)
		b.failed(one, hooks.OpWork, hooks.OpRelease, hooks.OpHook)
	})
}

func TestStartLeadsUntilStop(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		b.wraps(one.Stop(always)) // nothing to stop
		for round := range 3 {
			b.wraps(one.Start(always))
			b.leads(one)
			b.wraps(one.Stop(always))
			if one.IsLeader() || b.holds(one.Elector) {
				b.Error("leading after Stop")
			}
			b.wraps(one.Stop(always))
			b.wraps(one.rec.Demoted()[round].Err, elector.ErrStopped)
		}
		b.ended(one, hooks.Shutdown, hooks.Shutdown, hooks.Shutdown)
		b.failed(one)
		b.wraps(b.campaign(one.Elector).Resign(always)) // the elector can be used again
	})
}

func TestTheContextOfStartEndsItAsStopDoes(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		ctx, cancel := context.WithTimeout(always, time.Second)
		defer cancel()
		b.wraps(one.Start(ctx))
		time.Sleep(time.Second)
		b.ended(one, hooks.Shutdown)
		b.wraps(one.rec.Demoted()[0].Err, context.DeadlineExceeded)
		b.wraps(one.Stop(always))
	})
}

func TestStopWaitsOnlyAsLongAsItsContext(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one", elector.WithHooks(hooks.Funcs{Demoted: func(context.Context, hooks.Demoted) { time.Sleep(9 * time.Second) }}))
		b.wraps(one.Start(always))
		b.leads(one)
		impatient, cancel := context.WithTimeout(always, time.Second)
		defer cancel()
		b.wraps(one.Stop(impatient), context.DeadlineExceeded)
		b.wraps(one.Start(always), elector.ErrAlreadyRunning) // it still stops
		b.wraps(one.Stop(always))
		for range 20 {
			b.wraps(one.Stop(impatient)) // nothing to wait for
		}
	})
}

// refused returns a candidate on a standby, which refuses it at once.
func (b *bench) refused(opts ...elector.Option) *candidate {
	standby := b.NewStandby(0)
	b.Cleanup(standby.Close)
	s := b.candidate("one", append(opts, elector.WithReadOnlyTimeout(0))...)
	s.process.ConnectTo(standby)
	return s
}

func TestStopReturnsWhyTheElectorHadEnded(t *testing.T) {
	scene(t, "whatever its context says", func(b *bench) {
		cancelled, cancel := context.WithCancel(always)
		cancel()
		one := b.refused()
		for range 20 {
			b.wraps(one.Start(always))
			time.Sleep(time.Second)
			b.wraps(one.Stop(cancelled), elector.ErrServerReadOnly)
		}
	})
	scene(t, "and so does Err, once it is done", func(b *bench) {
		one := b.refused()
		b.wraps(one.Err())
		b.wraps(one.Start(always))
		<-one.Done()
		b.wraps(one.Err(), elector.ErrServerReadOnly)
		b.wraps(one.Stop(always), elector.ErrServerReadOnly)
		b.wraps(one.Err(), elector.ErrServerReadOnly)
		other := b.candidate("other")
		if other.Done() != nil {
			b.Error("done before Start")
		}
		b.wraps(other.Start(always))
		b.leads(other)
		b.wraps(other.Stop(always))
		<-other.Done()
		b.wraps(other.Err())
	})
	scene(t, "to one of two that stop it while the last hook runs", func(b *bench) {
		one := b.refused(elector.WithHooks(hooks.Funcs{Error: func(context.Context, hooks.Failure) { time.Sleep(time.Second) }}))
		b.wraps(one.Start(always))
		synctest.Wait()
		stopped := make(chan error)
		for range 2 {
			go func() { stopped <- one.Stop(always) }()
		}
		first, second := <-stopped, <-stopped
		if first == nil {
			first, second = second, first
		}
		b.wraps(first, elector.ErrServerReadOnly)
		b.wraps(second)
	})
	scene(t, "each time", func(b *bench) {
		one := b.refused(elector.WithMaxAttempts(1))
		for _, server := range []interface{ Stop() }{nil, b} {
			if server != nil {
				one.process.ConnectTo(b.Server)
				server.Stop()
			}
			b.wraps(one.Start(always))
			time.Sleep(time.Second)
		}
		b.wraps(one.Stop(always), elector.ErrServerReadOnly, elector.ErrGaveUp)
		b.wraps(one.Stop(always))
	})
	scene(t, "however often it ended without one", func(b *bench) {
		one := b.refused()
		b.wraps(one.Start(always))
		time.Sleep(time.Second)
		one.process.ConnectTo(b.Server)
		for range 20 {
			ctx, stop := context.WithCancel(always)
			b.wraps(one.Start(ctx))
			b.leads(one)
			stop()
			<-one.Done()
		}
		b.wraps(one.Stop(always), elector.ErrServerReadOnly)
	})
	scene(t, "but no more than the last ten times", func(b *bench) {
		one := b.refused()
		for range 100 {
			b.wraps(one.Start(always))
			time.Sleep(time.Second)
		}
		err := one.Stop(always)
		if all, ok := err.(interface{ Unwrap() []error }); !ok || len(all.Unwrap()) != 10 {
			b.Errorf("got %v", err)
		}
	})
}

// Each way to campaign, with a context and without a result.
var ways = map[string]func(context.Context, *elector.Elector) error{
	"Run":         func(ctx context.Context, e *elector.Elector) error { return e.Run(ctx, nil) },
	"Campaign":    func(ctx context.Context, e *elector.Elector) error { _, err := e.Campaign(ctx); return err },
	"TryCampaign": func(ctx context.Context, e *elector.Elector) error { _, _, err := e.TryCampaign(ctx); return err },
	"TryRun":      func(ctx context.Context, e *elector.Elector) error { _, err := e.TryRun(ctx, nil); return err },
	"Start":       func(ctx context.Context, e *elector.Elector) error { return e.Start(ctx) },
}

func TestOneElectorDoesOneThingAtATime(t *testing.T) {
	bubble(t, func(b *bench) {
		other := b.run("other")
		b.leads(other)
		one := b.run("one")
		for _, leading := range []bool{false, true} {
			if leading {
				other.stop()
				b.leads(one)
			}
			synctest.Wait()
			for name, way := range ways {
				if err := way(always, one.Elector); !errors.Is(err, elector.ErrAlreadyRunning) || one.IsLeader() != leading {
					b.Errorf("%s: %v", name, err)
				}
			}
			b.wraps(one.Stop(always)) // is for Start only
		}
		one.stop()
		<-one.done
		one.done <- nil
		term, _, err := one.TryCampaign(always)
		b.wraps(err)
		b.wraps(ways["Campaign"](always, one.Elector), elector.ErrAlreadyRunning)
		b.wraps(term.Resign(always))
	})
}

// With a context that has ended, a call returns its cause, sends nothing and calls no hook.
func TestACancelledContextIsReturnedByEveryCall(t *testing.T) {
	calls := map[string]func(context.Context, *elector.Elector) error{
		"Leader":     func(ctx context.Context, e *elector.Elector) error { _, err := e.Leader(ctx); return err },
		"Candidates": func(ctx context.Context, e *elector.Elector) error { _, err := e.Candidates(ctx); return err },
		"Observe": func(ctx context.Context, e *elector.Elector) error {
			for range e.Observe(ctx) {
				return errors.New("yielded")
			}
			return context.Cause(ctx)
		},
	}
	for name, way := range ways {
		calls[name] = way
	}
	for name, call := range calls {
		scene(t, name, func(b *bench) {
			one := b.candidate("one")
			ctx, cancel := context.WithCancelCause(always)
			cancel(errOops)
			for range 10 {
				b.wraps(call(ctx, one.Elector), errOops)
			}
			b.wraps(one.Stop(ctx))
			if synctest.Wait(); len(one.rec.Events()) != 0 || b.Connections() != 0 {
				b.Errorf("%d connections; events: %+v", b.Connections(), one.rec.Events())
			}
			b.wraps(b.campaign(one.Elector).Resign(always))
		})
	}
}

// The error of a cancelled campaign names the step and the cause.
func TestACancelledCampaignSaysWhereAndWhy(t *testing.T) {
	for _, name := range []string{"Campaign", "TryCampaign", "TryRun"} {
		scene(t, name, func(b *bench) {
			one := b.candidate("one")
			other, err := elector.New(one.pool, "other") // it waits for the other's check of the server
			b.wraps(err)
			b.Stall()
			ctx, cancel := context.WithCancelCause(always)
			time.AfterFunc(time.Second, func() { cancel(errOops) })
			ended := make(chan error)
			for _, e := range []*elector.Elector{one.Elector, other} {
				go func() { ended <- ways[name](ctx, e) }()
			}
			for range 2 {
				if err := <-ended; fmt.Sprint(err) != "elector: campaign: oops" {
					b.Errorf("got %v", err)
				}
			}
			b.Resume()
		})
	}
}

func TestAPoolThatHasBecomeTooSmallIsRefused(t *testing.T) {
	for _, takeover := range []elector.Takeover{elector.Poll, elector.Wait} {
		bubble(t, func(b *bench) {
			one := b.candidate("one", elector.WithTakeover(takeover))
			b.wraps(b.campaign(one.Elector).Resign(always)) // the server passed the check
			one.pool.SetMaxOpenConns(1)
			b.wraps(one.Run(always, nil), elector.ErrConfig)
			b.failed(one, hooks.OpCampaign)
		})
	}
}

func TestRunIfLeaderRunsOnlyInsideATerm(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		calls := 0
		try := func(want bool) {
			b.Helper()
			before := calls
			ran, err := one.RunIfLeader(always, func(context.Context) error { calls++; return errOops })
			if ran != want || want && err != errOops || !want && err != nil || calls > before != want {
				b.Errorf("ran %v, %v, %d calls", ran, err, calls-before)
			}
		}
		try(false)
		term := b.campaign(one.Elector)
		try(true)
		b.Stall()
		time.Sleep(validity - time.Nanosecond)
		try(true)
		time.Sleep(time.Nanosecond) // exactly the deadline, whether or not a goroutine has noticed
		try(false)
		b.Resume()
		b.wraps(term.Resign(always), elector.ErrNotLeader)
		try(false)
	})
}

func TestTheFunctionOfRunIfLeaderDelaysTheReleaseAndItsContextEnds(t *testing.T) {
	scene(t, "with the term", func(b *bench) {
		one := b.candidate("one")
		term := b.campaign(one.Elector)
		time.AfterFunc(time.Second, func() { _ = term.Resign(always) })
		ran, err := one.RunIfLeader(always, func(ctx context.Context) error {
			<-ctx.Done()
			b.wraps(context.Cause(ctx), elector.ErrResigned)
			b.within("the context ends", time.Second, time.Since(term.ElectedAt()), time.Second)
			if again, _ := one.RunIfLeader(always, nil); again {
				b.Error("new work began after the term")
			}
			time.Sleep(4 * time.Second)
			if len(one.rec.Demoted()) != 0 || !b.holds(one.Elector) {
				b.Error("the release did not wait")
			}
			return nil
		})
		b.wraps(err)
		b.wraps(term.Resign(always))
		if !ran {
			b.Error("not called")
		}
		b.ended(one, hooks.Resigned)
		b.failed(one, hooks.OpWork)
	})
	scene(t, "with the caller's", func(b *bench) {
		one := b.candidate("one")
		term := b.campaign(one.Elector)
		ctx, stop := context.WithTimeoutCause(always, time.Second, errOops)
		defer stop()
		ran, err := one.RunIfLeader(ctx, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		if !ran || err != errOops || !term.Valid() {
			b.Errorf("ran %v, %v, term valid %v", ran, err, term.Valid())
		}
		if ran, err := one.RunIfLeader(ctx, nil); ran || !errors.Is(err, errOops) {
			b.Errorf("with a context that has ended: %v, %v", ran, err)
		}
		b.wraps(term.Resign(always))
	})
	scene(t, "unless it panics", func(b *bench) {
		one := b.candidate("one")
		term := b.campaign(one.Elector)
		func() {
			defer func() {
				if p := recover(); p != "boom" || !term.Valid() {
					b.Errorf("recovered %v, valid: %v", p, term.Valid())
				}
			}()
			_, _ = one.RunIfLeader(always, func(context.Context) error { panic("boom") })
		}()
		b.wraps(term.Resign(always))
	})
}

// The context of Close has ended, so it does not wait for the end of the term.
func TestRunIfLeaderCallsNothingOnceCloseWasCalled(t *testing.T) {
	cancelled, cancel := context.WithCancel(always)
	cancel()
	for range 20 {
		bubble(t, func(b *bench) {
			one := b.candidate("one")
			term := b.campaign(one.Elector)
			b.wraps(one.Close(cancelled), context.Canceled)
			if one.IsLeader() {
				b.Error("leading")
			}
			b.wraps(term.Verify(always), elector.ErrNotLeader, elector.ErrStopped)
			ran, err := one.RunIfLeader(always, func(context.Context) error { return nil })
			if b.wraps(err); ran {
				b.Error("called")
			}
			b.wraps(context.Cause(term.Context()), elector.ErrStopped)
			b.wraps(term.Resign(always))
		})
	}
}

// incomparable is an error that panics when it is compared with another of its kind.
type incomparable struct{ all []error }

func (i incomparable) Error() string { return fmt.Sprint(i.all) }

func TestACauseThatCannotBeComparedEndsStartLikeAnyOther(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		ctx, cancel := context.WithCancelCause(always)
		b.wraps(one.Start(ctx))
		b.leads(one)
		cancel(incomparable{})
		<-one.Done()
		b.wraps(one.Err())
		b.wraps(one.Stop(always))
	})
}

func TestANilContextCostsTheElectorNothing(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		func() {
			defer func() { _ = recover() }()
			var none context.Context
			_ = one.Run(none, nil)
		}()
		term, elected, err := one.TryCampaign(always)
		if b.wraps(err); !elected {
			b.Fatal("not elected")
		}
		b.wraps(term.Resign(always))
	})
}

func TestOneAttemptDoesNotGiveUp(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one", elector.WithMaxAttempts(1))
		b.Stop()
		_, _, err := one.TryCampaign(always)
		if f := one.rec.Failures(); err == nil || errors.Is(err, elector.ErrGaveUp) || len(f) != 1 || f[0].Permanent {
			b.Errorf("error %v, failures %+v", err, f)
		}
		b.Start()
	})
}

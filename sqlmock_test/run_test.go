package sqlmock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func TestRunReturnsWhatLeadReturned(t *testing.T) {
	for name, want := range map[string]error{"nil": nil, "an error": errPlain, "a context's error of its own": context.DeadlineExceeded} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			expectResign(mock)
			e, rec := newElector(t, pool)
			if err := e.Run(patience(t), func(context.Context, *elector.Term) error { return want }); err != want {
				t.Errorf("got %v", err)
			}
			reason := hooks.Resigned
			if want != nil {
				reason = hooks.LeadFailed
				wantError(t, rec.Demoted()[0].Err, elector.ErrLeadFailed, want)
			}
			wantDemoted(t, rec, reason)
			wantFailures(t, rec)
		})
	}
}

// The mock's order is the proof: the unlock is expected last, and lead looks
// whether it has come.
func TestUnlockNeverPrecedesLeadReturn(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 50) // while lead winds down, for as long as it takes
		expectResign(mock)
		e, rec := newElector(t, pool)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		start := time.Now()
		err := e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
			<-ctx.Done()
			time.Sleep(100 * time.Second)
			if e.IsLeader() || term.Valid() || pool.Stats().InUse != 2 || len(rec.Demoted()) != 0 {
				t.Error("the term did not end, or more than the term has")
			}
			if until := time.Until(term.Deadline()); until != 6*time.Second {
				t.Errorf("the session lives for another %v", until)
			}
			return nil
		})
		wantError(t, err, context.DeadlineExceeded)
		if took := time.Since(start); took != 101*time.Second {
			t.Errorf("took %v", took)
		}
		wantFailures(t, rec, hooks.OpWork)
		wantDemoted(t, rec, hooks.Shutdown)
		if d := rec.Demoted()[0]; d.Held != time.Second || !errors.Is(d.Err, context.DeadlineExceeded) || d.Token != 1 {
			t.Errorf("reported %+v", d)
		}
	})
}

func TestAShutdownTellsLeadWhyAndReturnsItsErrorToo(t *testing.T) {
	reason := errors.New("the pod is evicted")
	leads := map[string]func(ctx, outer context.Context, stop func()) error{
		"lead returns nil":                   func(ctx, _ context.Context, _ func()) error { <-ctx.Done(); return nil },
		"lead returns its context's error":   func(ctx, _ context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() },
		"lead returns its context's cause":   func(ctx, _ context.Context, _ func()) error { <-ctx.Done(); return context.Cause(ctx) },
		"lead returns an error":              func(ctx, _ context.Context, _ func()) error { <-ctx.Done(); return errPlain },
		"lead heeds the outer context":       func(_, ctx context.Context, _ func()) error { <-ctx.Done(); return nil },
		"lead returns the outer one's error": func(_, ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() },
		"lead itself asks for the shutdown":  func(_, _ context.Context, stop func()) error { stop(); return nil },
		"lead does so and fails":             func(_, _ context.Context, stop func()) error { stop(); return errPlain },
	}
	for name, lead := range leads {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			expectResign(mock)
			e, rec := newElector(t, pool)
			ctx, stop := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { stop(reason) })
			var failed error
			err := e.Run(ctx, func(inner context.Context, _ *elector.Term) error {
				failed = lead(inner, ctx, func() { stop(reason) })
				return failed
			})
			wantError(t, err, reason)
			if failed == errPlain {
				wantError(t, err, errPlain)
			} else if errors.Is(err, errPlain) {
				t.Errorf("got %v", err)
			}
			wantDemoted(t, rec, hooks.Shutdown)
			wantError(t, rec.Demoted()[0].Err, reason)
			wantFailures(t, rec)
		})
	}
}

func TestAnErrorOfLeadAfterItsTermWasLostIsReportedAndTheCampaignGoesOn(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		heartbeat.expect(mock, anyError[0])
		expectTerm(mock, 2)
		expectResign(mock)
		e, rec := newElector(t, pool)
		cleanup := errors.New("could not clean up")
		wantError(t, e.Run(patience(t), func(ctx context.Context, term *elector.Term) error {
			if term.Token() == 2 {
				return nil
			}
			<-ctx.Done()
			return cleanup
		}))
		wantFailures(t, rec, hooks.OpHeartbeat, hooks.OpWork)
		wantError(t, rec.Failures()[1].Err, elector.ErrLeadFailed, cleanup)
	})
}

// What says only that the term's context has ended is no news.
func TestTheEndOfItsContextIsNoErrorOfLead(t *testing.T) {
	for name, lead := range map[string]func(context.Context) error{"Err": context.Context.Err, "Cause": context.Cause} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			heartbeat.expect(mock, anyError[0])
			expectTerm(mock, 2)
			expectResign(mock)
			e, rec := newElector(t, pool)
			ctx, stop := context.WithCancelCause(t.Context())
			err := e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
				if term.Token() == 2 {
					time.AfterFunc(time.Second, func() { stop(errPlain) })
				}
				<-ctx.Done()
				return lead(ctx)
			})
			wantError(t, err, errPlain)
			if errors.Is(err, context.Canceled) || errors.Is(err, elector.ErrSessionLost) {
				t.Errorf("got %v", err)
			}
			wantFailures(t, rec, hooks.OpHeartbeat)
		})
	}
}

func TestAPanicOfLeadReachesTheCallerAndTheLockIsReleased(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		e, rec := newElector(t, pool)
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			_ = e.Run(patience(t), func(context.Context, *elector.Term) error { panic("boom") })
		}()
		wantDemoted(t, rec, hooks.LeadFailed)
		wantError(t, rec.Demoted()[0].Err, elector.ErrLeadFailed)
		expectElection(mock, 2) // and the elector can be used again
		expectResign(mock)
		resign(t, campaign(t, e))
	})
}

func TestAGoexitOfLeadReleasesTheLock(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		e, rec := newElector(t, pool)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_ = e.Run(patience(t), func(context.Context, *elector.Term) error { runtime.Goexit(); return nil })
			t.Error("Run returned")
		}()
		<-gone
		wantDemoted(t, rec, hooks.LeadFailed)
		expectElection(mock, 2)
		expectResign(mock)
		resign(t, campaign(t, e))
	})
}

func TestANilLeadHoldsTheTermUntilItEnds(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 150)
		expectResign(mock)
		e, rec := newElector(t, pool)
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute+time.Second)
		defer stop()
		wantError(t, e.Run(ctx, nil), context.DeadlineExceeded)
		wantDemoted(t, rec, hooks.Shutdown)
	})
}

func TestTheTermsContextCarriesTheValuesOfRunsContext(t *testing.T) {
	type key struct{}
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		e, _ := newElector(t, pool)
		err := e.Run(context.WithValue(t.Context(), key{}, "v"), func(ctx context.Context, term *elector.Term) error {
			if ctx.Value(key{}) != "v" || term.Context() != ctx {
				t.Errorf("got %v, %v", ctx, term.Context())
			}
			return nil
		})
		wantError(t, err)
	})
}

// The panic goes on when the lock is free, and not sooner.
func TestAPanicOfLeadGoesOnAfterTheRelease(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		e, _ := newElector(t, pool, elector.WithHooks(hooks.Funcs{
			Demoted: func(context.Context, hooks.Demoted) { time.Sleep(time.Second) }}))
		defer func() {
			_ = recover()
			wantError(t, mock.ExpectationsWereMet())
			if n := pool.Stats().InUse; n != 1 { // the mock's own
				t.Errorf("%d connections are in use", n)
			}
		}()
		_ = e.Run(patience(t), func(context.Context, *elector.Term) error { panic("boom") })
	})
}

// While one leads, by whichever call, there is no second campaign.
func TestAnElectorThatLeadsCampaignsNoMore(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		e, _ := newElector(t, pool)
		term, elected, err := e.TryCampaign(t.Context())
		if wantError(t, err); !elected {
			t.Fatal("not elected")
		}
		_, err = e.Campaign(t.Context())
		wantError(t, err, elector.ErrAlreadyRunning)
		_, _, err = e.TryCampaign(t.Context())
		wantError(t, err, elector.ErrAlreadyRunning)
		resign(t, term)
	})
}

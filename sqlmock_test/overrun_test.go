package sqlmock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// hangs is for how long the work of these tests goes on after its term has ended. The terms
// end after 3 s, so that there are four heartbeats until the work returns.
const hangs = 6500 * time.Millisecond

// The heartbeats that are expected before the unlock show that the lock is held meanwhile.
func TestWorkThatHangsWhileTheLockIsHeldIsReportedAfterTheDrain(t *testing.T) {
	for reason, end := range map[hooks.Reason]func(term *elector.Term, stop context.CancelFunc, v *vitals){
		hooks.Resigned: func(term *elector.Term, _ context.CancelFunc, _ *vitals) {
			time.AfterFunc(3*time.Second, func() { _ = term.Resign(context.Background()) })
		},
		hooks.Shutdown:  func(_ *elector.Term, stop context.CancelFunc, _ *vitals) { time.AfterFunc(3*time.Second, stop) },
		hooks.Unhealthy: func(_ *elector.Term, _ context.CancelFunc, v *vitals) { v.turn(500 * time.Millisecond) },
	} {
		bubble(t, string(reason), func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			expectHeartbeats(mock, 4)
			expectResign(mock)
			v := &vitals{}
			e, rec := newElector(t, pool, v.gated())
			ctx, stop := context.WithCancel(t.Context())
			wantError(t, e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
				end(term, stop, v)
				<-ctx.Done()
				time.Sleep(2 * time.Second)
				settle()
				if n := overruns(rec.Failures()); n != 1 {
					t.Errorf("%d reports when the drain is over", n)
				}
				time.Sleep(hangs - 2*time.Second)
				stop()
				return nil
			}), context.Canceled)
			wantDemoted(t, rec, reason)
			if n := overruns(rec.Failures()); n != 1 {
				t.Errorf("%d reports in all: %+v", n, rec.Failures())
			}
		})
	}
}

// overruns counts the reports of work that overran its term.
func overruns(all []hooks.Failure) (n int) {
	for _, f := range all {
		if f.Op == hooks.OpWork && errors.Is(f.Err, elector.ErrOverrun) {
			n++
		}
	}
	return n
}

func TestAnOnElectedThatOverrunsIsReportedWhileItRuns(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 4)
		expectResign(mock)
		var reports atomic.Int32 // OnError runs beside OnElected here
		e, rec := newElector(t, pool, elector.WithHooks(hooks.Funcs{
			Elected: func(ctx context.Context, _ hooks.Elected) {
				<-ctx.Done()
				time.Sleep(hangs)
				if n := reports.Load(); n != 1 {
					t.Errorf("OnError was called %d times before OnElected returned", n)
				}
			},
			Error: func(_ context.Context, f hooks.Failure) {
				wantError(t, f.Err, elector.ErrOverrun)
				reports.Add(1)
			},
		}))
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
		defer stop()
		wantError(t, e.Run(ctx, nil), context.DeadlineExceeded)
		wantFailures(t, rec, hooks.OpWork)
		if late := rec.Failures()[0].At.Sub(rec.Demoted()[0].At); late != 2*time.Second {
			t.Errorf("reported %v after the end", late)
		}
	})
}

// While the lock is held nobody else leads; once the session has ended, somebody may.
func TestASessionThatEndsWhileWorkHangsIsReportedOnceMore(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 4)
		heartbeat.expect(mock, fault{err: errTerminated})
		e, rec := newElector(t, pool)
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
		defer stop()
		wantError(t, e.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
			<-ctx.Done()
			time.Sleep(time.Hour)
			return nil
		}), context.DeadlineExceeded)
		wantFailures(t, rec, hooks.OpWork, hooks.OpWork)
		for i, at := range []time.Duration{5 * time.Second, 12 * time.Second} { // each after a drain
			f := rec.Failures()[i]
			wantError(t, f.Err, elector.ErrOverrun)
			if contains(f.Err, "another may lead") != (i == 1) || f.At.Sub(rec.Elected()[0].At) != at {
				t.Errorf("after %v: %v", f.At.Sub(rec.Elected()[0].At), f.Err)
			}
		}
	})
}

// With a drain of nothing the work still needs a moment to return.
func TestWorkThatReturnsSoonIsNoOverrunWhileTheLockIsHeld(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 2)
		expectResign(mock)
		e, rec := newElector(t, pool, elector.WithDrain(0))
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
		defer stop()
		wantError(t, e.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
			<-ctx.Done()
			time.Sleep(2*time.Second - 1)
			return nil
		}), context.DeadlineExceeded)
		wantFailures(t, rec)
	})
}

package sqlmock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// With a context that has ended, a call returns the context's cause, sends
// nothing (the mock expects nothing), tells no hook, and claims nothing.
func TestACancelledContextIsReturnedByEveryCall(t *testing.T) {
	reason := errors.New("the deployment is over")
	calls := map[string]func(context.Context, *elector.Elector) error{
		"Run":         func(ctx context.Context, e *elector.Elector) error { return e.Run(ctx, nil) },
		"Campaign":    func(ctx context.Context, e *elector.Elector) error { _, err := e.Campaign(ctx); return err },
		"TryCampaign": func(ctx context.Context, e *elector.Elector) error { _, _, err := e.TryCampaign(ctx); return err },
		"Start":       func(ctx context.Context, e *elector.Elector) error { return e.Start(ctx) },
		"Leader":      func(ctx context.Context, e *elector.Elector) error { _, err := e.Leader(ctx); return err },
		"Candidates":  func(ctx context.Context, e *elector.Elector) error { _, err := e.Candidates(ctx); return err },
	}
	for name, call := range calls {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			e, rec := newElector(t, pool)
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(reason)
			for range 10 {
				wantError(t, call(ctx, e), reason)
			}
			settle()
			if len(rec.Events()) != 0 {
				t.Errorf("events: %+v", rec.Events())
			}
			expectTerm(mock, 1)
			expectResign(mock)
			resign(t, campaign(t, e))
		})
	}
}

func TestACancelledContextOfATermsCall(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		reason := errors.New("the deployment is over")
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		e, rec := newElector(t, pool, elector.WithHooks(hooks.Funcs{ // so that the release takes its time
			Demoted: func(context.Context, hooks.Demoted) { time.Sleep(time.Second) }}))
		term := campaign(t, e)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(reason)
		wantError(t, e.Stop(ctx)) // there is nothing to stop
		for range e.Observe(ctx) {
			t.Error("Observe yielded")
		}
		ran, err := e.RunIfLeader(ctx, func(ctx context.Context) error { return context.Cause(ctx) })
		if ran || !errors.Is(err, reason) {
			t.Errorf("RunIfLeader: %v, %v", ran, err)
		}
		wantError(t, term.Resign(ctx), reason) // the term ends all the same
		settle()
		resign(t, term)
		wantDemoted(t, rec, hooks.Resigned)
	})
}

func TestAVerifyWithACancelledContextSendsNothingAndDoesNotEndTheTerm(t *testing.T) {
	for range 10 {
		bubble(t, "", func(t *testing.T) {
			pool, mock, link := newLinkedMock(t)
			expectTerm(mock, 1)
			expectResign(mock)
			e, _ := newElector(t, pool)
			term := campaign(t, e)
			link.dieAfter(0)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			wantError(t, term.Verify(ctx), context.Canceled)
			settle()
			if !term.Valid() || link.dead() { // as any call would make it
				t.Error("the term has ended, or something was sent")
			}
			link.restore()
			resign(t, term)
		})
	}
}

// It says what ended, and by what, whatever was under way.
func TestACampaignThatIsCancelledSaysSo(t *testing.T) {
	for name, campaign := range map[string]func(context.Context, *elector.Elector) error{
		"Campaign":    func(ctx context.Context, e *elector.Elector) error { _, err := e.Campaign(ctx); return err },
		"TryCampaign": func(ctx context.Context, e *elector.Elector) error { _, _, err := e.TryCampaign(ctx); return err },
	} {
		bubble(t, name, func(t *testing.T) {
			reason := errors.New("the deployment is over")
			pool, mock := newMock(t)
			expectServerCheck(mock)
			query(mock, "TryLockOrSee").WillDelayFor(never).WillReturnRows(row("busy", sessionPID, 300, "web-2"))
			e, _ := newElector(t, pool)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(reason) })
			err := campaign(ctx, e)
			if wantError(t, err, reason); err.Error() != "elector: campaign: the deployment is over" {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The server is checked anew after a failure, and a campaign that ends is none.
func TestACampaignThatEndsBetweenTwoAttemptsCostsNoCheck(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		e, rec := newElector(t, pool)
		expectServerCheck(mock)
		for range 3 {
			expectBusy(mock, 300, "web-2")
			ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := e.Campaign(ctx)
			wantError(t, err, context.DeadlineExceeded)
			stop()
		}
		wantFailures(t, rec)
	})
}

// Of an answer and the end of the context in the same instant either may be seen, and
// nothing else.
func TestALeaderIsAskedForUntilTheContextEndsByItsCause(t *testing.T) {
	for range 100 {
		bubble(t, "", func(t *testing.T) {
			reason := errors.New("the deployment is over")
			pool, mock := newMock(t)
			holder.expect(mock, noAnswer)
			e, _ := newElector(t, pool)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(reason) })
			_, err := e.Leader(ctx)
			wantError(t, err, reason)
		})
	}
}

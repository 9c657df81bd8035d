package sqlmock_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func TestRunIfLeaderRunsOnlyInsideATerm(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		heartbeat.expect(mock, noAnswer)
		e, _ := newElector(t, pool)
		calls := 0
		call := func(context.Context) error { calls++; return errPlain }
		try := func(want bool) {
			t.Helper()
			before := calls
			ran, err := e.RunIfLeader(t.Context(), call)
			if ran != want || want && err != errPlain || !want && err != nil || calls > before != want {
				t.Errorf("ran %v, %v, %d calls", ran, err, calls-before)
			}
		}
		try(false)
		term := campaign(t, e)
		try(true)
		time.Sleep(7*time.Second - time.Nanosecond)
		try(true)
		time.Sleep(time.Nanosecond) // it is exactly the deadline, whether or not anybody has noticed
		try(false)
		settle()
		wantError(t, term.Resign(t.Context()), elector.ErrNotLeader)
		try(false)
	})
}

func TestRunIfLeaderHoldsTheReleaseBackAndItsContextEndsWithTheTerm(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 2)
		expectResign(mock)
		e, rec := newElector(t, pool)
		term := campaign(t, e)
		time.AfterFunc(time.Second, func() { _ = term.Resign(context.Background()) })
		ran, err := e.RunIfLeader(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			if since := time.Since(term.ElectedAt()); since != time.Second {
				t.Errorf("after %v", since)
			}
			wantError(t, context.Cause(ctx), elector.ErrResigned)
			if again, _ := e.RunIfLeader(t.Context(), nil); again {
				t.Error("new work began after the term")
			}
			time.Sleep(4 * time.Second)
			if len(rec.Demoted()) != 0 || pool.Stats().InUse != 2 {
				t.Error("the release did not wait")
			}
			return nil
		})
		if !ran || err != nil {
			t.Errorf("ran %v, %v", ran, err)
		}
		resign(t, term)
		wantDemoted(t, rec, hooks.Resigned)
		wantFailures(t, rec, hooks.OpWork)
	})
}

func TestTheContextOfRunIfLeaderEndsWithItsCallers(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		e, _ := newElector(t, pool)
		term := campaign(t, e)
		ctx, stop := context.WithTimeoutCause(t.Context(), time.Second, errPlain)
		defer stop()
		ran, err := e.RunIfLeader(ctx, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		if !ran || err != errPlain || !term.Valid() {
			t.Errorf("ran %v, %v, term valid %v", ran, err, term.Valid())
		}
		resign(t, term)
	})
}

func TestAPanicInRunIfLeaderGoesOnAndHoldsNothingBack(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		e, _ := newElector(t, pool)
		term := campaign(t, e)
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			_, _ = e.RunIfLeader(t.Context(), func(context.Context) error { panic("boom") })
		}()
		if !term.Valid() {
			t.Error("the term has ended")
		}
		resign(t, term)
	})
}

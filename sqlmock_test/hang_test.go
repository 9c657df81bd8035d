package sqlmock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// grace is for how long a driver is waited for when its connection is given up.
const grace = time.Second

// A statement that hangs in a transaction makes database/sql wait on a mutex,
// which stops virtual time: those are left to the last test here.
func inTransaction(i int) bool { return i >= 6 && i <= 9 }

func TestACampaignOnADeadLinkEndsWithItsContext(t *testing.T) {
	for i, s := range attempt {
		if inTransaction(i) {
			continue
		}
		bubble(t, fmt.Sprint(i, s.name), func(t *testing.T) {
			pool, mock, link := newLinkedMock(t)
			for _, s := range attempt[:i] {
				s.expect(mock, fault{})
			}
			e, rec := newElector(t, pool)
			link.dieAfter(i)
			ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer stop()
			start := time.Now()
			_, err := e.Campaign(ctx)
			wantError(t, err, context.DeadlineExceeded)
			if took := time.Since(start); took > 300*time.Millisecond+2*grace {
				t.Errorf("took %v", took)
			}
			settle()
			if f := rec.Failures(); len(f) == 0 || len(f) > 2 || f[0].Op != hooks.OpCall || f[len(f)-1].Op != hooks.OpCall {
				t.Errorf("reported %+v", f)
			}
			wantWhole(t, rec)
			link.restore()
			settle()
			if n := pool.Stats().InUse; n != 0 {
				t.Errorf("%d connections are in use after the link was restored", n)
			}
		})
	}
}

func TestACampaignOnADeadLinkGoesOnWithoutADeadline(t *testing.T) {
	for i, s := range attempt {
		if inTransaction(i) {
			continue
		}
		bubble(t, fmt.Sprint(i, s.name), func(t *testing.T) {
			pool, mock, link := newLinkedMock(t)
			for _, s := range attempt[:i] {
				s.expect(mock, fault{})
			}
			e, rec := newElector(t, pool)
			link.dieAfter(i)
			start := time.Now()
			_, _, err := e.TryCampaign(t.Context())
			wantError(t, err, elector.ErrNoAnswer)
			if took := time.Since(start); took > 7*time.Second+2*grace {
				t.Errorf("took %v", took)
			}
			if c := rec.Campaigns(); len(c) != 1 || c[0].Outcome != hooks.Failed {
				t.Errorf("campaigns %+v", c)
			}
			link.restore()
			settle()
			expectTerm(mock, 2)
			expectResign(mock)
			resign(t, campaign(t, e))
		})
	}
}

func TestAConnectThatHangsEndsTheAttempt(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, _, link := newLinkedMock(t)
		link.dieAfter(0)
		go func() { _ = pool.PingContext(t.Context()); _, _ = pool.Query("") }() // finds out that it is dead
		settle()
		e, _ := newElector(t, pool)
		start := time.Now()
		_, _, err := e.TryCampaign(t.Context())
		if took := time.Since(start); !contains(err, "no connection from the pool within 30s") || took != 31*time.Second {
			t.Errorf("got %v after %v", err, took)
		}
	})
}

func TestALeaderOnADeadLinkStopsInTimeAndSaysWhatHangs(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock, link := newLinkedMock(t)
		expectTerm(mock, 1)
		expectHeartbeat(mock)
		e, rec := newElector(t, pool)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		err := e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
			time.Sleep(3 * time.Second)
			link.dieAfter(0)
			<-ctx.Done()
			if held := time.Since(term.ElectedAt()); held != 9*time.Second || term.Valid() || e.IsLeader() {
				t.Errorf("held for %v", held)
			}
			stop()
			return nil
		})
		wantError(t, err, context.Canceled)
		wantDemoted(t, rec, hooks.LeaseExpired)
		wantFailures(t, rec, hooks.OpHeartbeat, hooks.OpCall)
		wantError(t, rec.Failures()[1].Err, elector.ErrLeaseExpired)
		link.restore()
		settle()
		if n := pool.Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use after the link was restored", n)
		}
	})
}

func TestNothingElseHangsOnADeadLink(t *testing.T) {
	calls := map[string]func(context.Context, *elector.Elector, *elector.Term) error{
		"Verify": func(ctx context.Context, _ *elector.Elector, term *elector.Term) error { return term.Verify(ctx) },
		"Resign": func(ctx context.Context, _ *elector.Elector, term *elector.Term) error { return term.Resign(ctx) },
		"Leader": func(ctx context.Context, e *elector.Elector, _ *elector.Term) error {
			_, err := e.Leader(ctx)
			return err
		},
		"Candidates": func(ctx context.Context, e *elector.Elector, _ *elector.Term) error {
			_, err := e.Candidates(ctx)
			return err
		},
		"Observe": func(ctx context.Context, e *elector.Elector, _ *elector.Term) error {
			for leader, err := range e.Observe(ctx) {
				return fmt.Errorf("yielded %v, %w", leader, err)
			}
			return context.Cause(ctx)
		},
	}
	for name, call := range calls {
		bubble(t, name, func(t *testing.T) {
			pool, mock, link := newLinkedMock(t)
			expectTerm(mock, 1)
			e, _ := newElector(t, pool)
			term := campaign(t, e)
			link.dieAfter(0)
			ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer stop()
			start := time.Now()
			released := time.AfterFunc(time.Minute, link.restore)
			wantError(t, call(ctx, e, term), context.DeadlineExceeded)
			if took := time.Since(start); took != 500*time.Millisecond {
				t.Errorf("took %v", took)
			}
			released.Stop()
			link.restore()
			_ = term.Resign(t.Context())
		})
	}
}

func TestObserveReportsAServerThatDoesNotAnswer(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, _, link := newLinkedMock(t)
		e, _ := newElector(t, pool)
		link.dieAfter(0)
		defer time.AfterFunc(time.Hour, link.restore).Stop()
		start := time.Now()
		for _, err := range e.Observe(t.Context()) {
			if took := time.Since(start); err == nil || took > 10*time.Second {
				t.Errorf("got %v after %v", err, took)
			}
			break
		}
	})
}

func TestAReleaseOnADeadLinkEndsWithTheValidity(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock, link := newLinkedMock(t)
		expectTerm(mock, 1)
		e, rec := newElector(t, pool)
		term := campaign(t, e)
		time.Sleep(time.Second)
		link.dieAfter(0)
		start := time.Now()
		wantError(t, term.Resign(t.Context()), elector.ErrSessionLost, elector.ErrLeaseExpired)
		if took := time.Since(start); took > 6*time.Second+grace {
			t.Errorf("took %v", took)
		}
		settle()
		if f := rec.Failures(); len(f) != 2 { // in either order: both come at the end of the validity
			t.Errorf("reported %+v", f)
		}
	})
}

func TestATransactionOnADeadLinkIsAbandonedToo(t *testing.T) {
	for i, s := range attempt {
		if !inTransaction(i) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			pool, mock, link := newLinkedMock(t)
			for _, s := range attempt[:i] {
				s.expect(mock, fault{})
			}
			e, rec := newElector(t, pool)
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			link.died = stop
			link.dieAfter(i)
			_, err := e.Campaign(ctx)
			wantError(t, err, context.Canceled)
			if f := rec.Failures(); len(f) == 0 || f[0].Op != hooks.OpCall {
				t.Errorf("reported %+v", f)
			}
		})
	}
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

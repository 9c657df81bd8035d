package sqlmock_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func TestResignTwiceUnlocksOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		e, rec := newElector(t, pool)
		term := campaign(t, e)
		both := make(chan error)
		for range 2 {
			go func() { both <- term.Resign(t.Context()) }()
		}
		wantError(t, <-both)
		wantError(t, <-both)
		resign(t, term)
		wantDemoted(t, rec, hooks.Resigned)
	})
}

func TestTheOutcomeOfAResignDoesNotDependOnALaterContext(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		e, _ := newElector(t, pool)
		term := campaign(t, e)
		resign(t, term)
		for range 20 { // the term's context has ended by now
			wantError(t, term.Resign(term.Context()))
		}
	})
}

func TestResignInsideLeadWithTheTermsContextReturnsAtOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 1)
		expectResign(mock)
		e, rec := newElector(t, pool)
		ctx, stop := context.WithCancel(t.Context())
		err := e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
			start := time.Now()
			err := term.Resign(ctx)
			wantError(t, err, elector.ErrResigned)
			if time.Since(start) != 0 || e.IsLeader() || len(rec.Demoted()) != 0 {
				t.Errorf("took %v", time.Since(start))
			}
			time.Sleep(3 * time.Second) // and the lock is kept meanwhile
			stop()
			return err
		})
		wantError(t, err, context.Canceled)
		wantDemoted(t, rec, hooks.Resigned)
		wantFailures(t, rec, hooks.OpWork)
	})
}

func TestResignIsBoundedByOneLease(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 3)
		expectResign(mock)
		e, rec := newElector(t, pool, elector.WithHeartbeatInterval(3*time.Second))
		ctx, stop := context.WithCancel(t.Context())
		wantError(t, e.Run(ctx, func(_ context.Context, term *elector.Term) error {
			start := time.Now()
			wantError(t, term.Resign(context.Background()), elector.ErrOverrun) // waits for this very function
			if took := time.Since(start); took != 10*time.Second {
				t.Errorf("took %v", took)
			}
			stop()
			return nil
		}), context.Canceled)
		wantDemoted(t, rec, hooks.Resigned)
		wantFailures(t, rec, hooks.OpWork)
	})
}

func TestResignWaitsForLeadOnlyAsLongAsItsContext(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 2)
		expectResign(mock)
		e, _ := newElector(t, pool)
		ctx, stop := context.WithCancel(t.Context())
		wantError(t, e.Run(ctx, func(_ context.Context, term *elector.Term) error {
			time.AfterFunc(time.Second, func() {
				impatient, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				start := time.Now()
				wantError(t, term.Resign(impatient), context.DeadlineExceeded)
				if took := time.Since(start); took != time.Second {
					t.Errorf("took %v", took)
				}
			})
			time.Sleep(5 * time.Second)
			stop()
			return nil
		}), context.Canceled)
	})
}

func TestATermThatHasEndedSaysSo(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		expectElection(mock, 2)
		expectResign(mock)
		e, _ := newElector(t, pool)
		old := campaign(t, e)
		if got, leading := e.Term(); got != old || !leading || !e.IsLeader() || !old.Valid() {
			t.Errorf("got %v, %v", got, leading)
		}
		resign(t, old)
		if got, leading := e.Term(); got != nil || leading || e.IsLeader() || old.Valid() {
			t.Errorf("got %v, %v", got, leading)
		}
		next := campaign(t, e)
		if old.Valid() || !next.Valid() || old.Token() != 1 || next.Token() != 2 {
			t.Error("the old term came back")
		}
		wantError(t, old.Verify(t.Context()), elector.ErrNotLeader, elector.ErrResigned)
		wantError(t, context.Cause(old.Context()), elector.ErrResigned)
		resign(t, old) // does nothing to the new one
		if !next.Valid() {
			t.Error("the old term resigned for the new one")
		}
		resign(t, next)
	})
}

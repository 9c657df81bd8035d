package sqlmock_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// The recorder reports every hook that is called while another runs, and every
// Elected or Demoted out of turn.
func TestHooksAreNeverConcurrentAndTermsAlternateHoweverSlowTheyAre(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		const terms = 30
		pool, mock := newMock(t)
		for i := range int64(terms) {
			if i == 0 {
				expectServerCheck(mock)
			}
			expectElection(mock, i+1)
			expectResign(mock)
		}
		rec := hookstest.NewRecorder(everyHook(func(context.Context, string) { time.Sleep(rand.N(3 * time.Second)) }))
		e, err := elector.New(pool, "orders", elector.WithHooks(rec),
			elector.WithLease(time.Hour), elector.WithHeartbeatInterval(10*time.Minute)) // none falls into a term
		wantError(t, err)
		wantError(t, e.Run(patience(t), func(ctx context.Context, term *elector.Term) error {
			if term.Token() == terms {
				return nil
			}
			time.AfterFunc(rand.N(10*time.Second), func() { _ = term.Resign(ctx) })
			<-ctx.Done()
			return nil
		}))
		before := len(rec.Events())
		time.Sleep(time.Hour)
		if len(rec.Elected()) != terms || len(rec.Demoted()) != terms || len(rec.Events()) != before {
			t.Errorf("%d terms began, %d ended; %d events after Run returned", len(rec.Elected()), len(rec.Demoted()), len(rec.Events())-before)
		}
		for _, v := range rec.Violations() {
			t.Error(v)
		}
	})
}

func TestOnElectedMayDoTheWorkAndNothingElseIsToldMeanwhile(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 11)
		expectResign(mock)
		var rec *hookstest.Recorder
		worked := false
		e, rec := newElector(t, pool, elector.WithHooks(hooks.Funcs{Elected: func(ctx context.Context, _ hooks.Elected) {
			<-ctx.Done()
			time.Sleep(2 * time.Second)
			if len(rec.Heartbeats())+len(rec.Demoted()) != 0 {
				t.Errorf("told meanwhile: %+v", rec.Events())
			}
			worked = true
		}}))
		ctx, stop := context.WithTimeout(t.Context(), 21*time.Second)
		defer stop()
		wantError(t, e.Run(ctx, nil), context.DeadlineExceeded)
		if !worked {
			t.Error("Run did not wait for the hook")
		}
		if beats := rec.Heartbeats(); len(beats) != 1 { // the newest
			t.Errorf("%d heartbeats were told", len(beats))
		}
		wantDemoted(t, rec, hooks.Shutdown)
	})
}

func TestASlowOnHeartbeatDoesNotCostTheLease(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		const busy = 59500 * time.Millisecond
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 328) // until the eleventh call of the hook returns
		expectResign(mock)
		calls := 0
		e, rec := newElector(t, pool, elector.WithHooks(hooks.Funcs{Heartbeat: func(context.Context, hooks.Heartbeat) {
			if calls++; calls <= 11 {
				time.Sleep(busy)
			}
		}}))
		term := campaign(t, e)
		time.Sleep(10*time.Minute + time.Second)
		if !term.Valid() || time.Since(term.RenewedAt()) != time.Second {
			t.Errorf("valid %v, renewed %v ago", term.Valid(), time.Since(term.RenewedAt()))
		}
		beats := rec.Heartbeats()
		if len(beats) != 11 {
			t.Errorf("%d heartbeats were told", len(beats))
		}
		for i, b := range beats { // when a hook is free, it gets the newest
			if late := beats[0].At.Add(time.Duration(i) * busy).Sub(b.At); late < 0 || late > 2*time.Second {
				t.Errorf("heartbeat %d was %v old", i+1, late)
			}
		}
		wantError(t, term.Resign(t.Context()), elector.ErrOverrun) // of the hook
		time.Sleep(time.Minute)
		resign(t, term)
	})
}

func TestTheLockIsNotReleasedNorTheNextCampaignBegunBeforeOnDemotedReturns(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 15)
		expectResign(mock)
		e, _ := newElector(t, pool, elector.WithHooks(hooks.Funcs{Demoted: func(context.Context, hooks.Demoted) {
			time.Sleep(30*time.Second + 1)
			if n := pool.Stats().InUse; n != 2 {
				t.Errorf("%d connections are in use", n)
			}
		}}))
		start := time.Now()
		wantError(t, e.Run(patience(t), func(context.Context, *elector.Term) error { return nil }))
		if took := time.Since(start); took != 30*time.Second+1 {
			t.Errorf("took %v", took)
		}
	})
}

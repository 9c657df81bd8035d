package sqlmock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func TestAFollowerAsksOncePerRetryIntervalOrALittleSooner(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		const attempts = 200
		pool, mock := newMock(t)
		expectServerCheck(mock)
		for range attempts {
			expectBusy(mock, 300, "web-2")
		}
		expectElection(mock, 1)
		expectResign(mock)
		e, rec := newElector(t, pool, elector.WithRetryInterval(4*time.Second))
		resign(t, campaign(t, e))
		all := rec.Campaigns()
		if len(all) != attempts+1 {
			t.Fatalf("%d attempts", len(all))
		}
		shortest, longest := time.Hour, time.Duration(0)
		if first := all[0].Next; first < 375*time.Millisecond || first > 4*time.Second {
			t.Errorf("the first wait is %v", first)
		}
		for i, c := range all[:attempts] {
			if c.Outcome != hooks.Busy || c.Attempt != i+1 || all[i+1].At.Sub(c.At) != c.Next {
				t.Errorf("attempt %d: %+v, then %v", i+1, c, all[i+1].At)
			}
			if i > 0 {
				shortest, longest = min(shortest, c.Next), max(longest, c.Next)
			}
		}
		if shortest < 3*time.Second || longest > 4*time.Second || longest-shortest < 500*time.Millisecond {
			t.Errorf("waits from %v to %v", shortest, longest)
		}
		wantFailures(t, rec)
	})
}

func TestWaitsAfterFailuresDoubleUpToTheCap(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		want := []time.Duration{1, 2, 4, 8, 10, 10, 10}
		for range want {
			expectAttemptUpTo(mock, 0, anyError[0])
		}
		expectServerCheck(mock)
		expectBusy(mock, 300, "web-2") // a success begins anew
		expectFailedTry(mock, anyError[0])
		expectTerm(mock, 1)
		expectResign(mock)
		e, rec := newElector(t, pool, elector.WithBackoff(time.Second, 10*time.Second))
		resign(t, campaign(t, e))
		all := rec.Campaigns()
		for i, w := range want {
			least := w * time.Second * 3 / 4
			if i == 0 {
				least = w * time.Second / 8
			}
			if got, w := all[i].Next, w*time.Second; got > w || got < least || all[i].Outcome != hooks.Failed {
				t.Errorf("wait %d: %v, want %v", i+1, got, w)
			}
			if f := rec.Failures()[i]; f.Attempt != i+1 || f.Permanent {
				t.Errorf("failure %d: %+v", i+1, f)
			}
		}
		if again := rec.Failures()[len(want)]; again.Attempt != 1 {
			t.Errorf("after an answer: %+v", again)
		}
	})
}

func TestTooManyFailuresInARowAreGivenUp(t *testing.T) {
	ways := map[string]func(*testing.T, *elector.Elector) error{
		"Run":      func(t *testing.T, e *elector.Elector) error { return e.Run(patience(t), nil) },
		"Campaign": func(t *testing.T, e *elector.Elector) error { _, err := e.Campaign(patience(t)); return err },
		"Start": func(t *testing.T, e *elector.Elector) error {
			wantError(t, e.Start(patience(t)))
			time.Sleep(time.Minute)
			return e.Stop(t.Context())
		},
	}
	for name, way := range ways {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			for range 2 {
				expectAttemptUpTo(mock, 0, anyError[1])
			}
			expectServerCheck(mock)
			expectBusy(mock, 300, "web-2") // is no failure
			expectFailedTry(mock, anyError[1])
			for range 2 {
				expectAttemptUpTo(mock, 0, anyError[1])
			}
			e, rec := newElector(t, pool, elector.WithMaxAttempts(3), elector.WithBackoff(time.Second, time.Second))
			wantError(t, way(t, e), elector.ErrGaveUp, errPgx)
			wantFailures(t, rec, hooks.OpCampaign, hooks.OpCampaign, hooks.OpCampaign, hooks.OpCampaign, hooks.OpCampaign)
			for i, f := range rec.Failures() {
				if last := i == 4; f.Permanent != last {
					t.Errorf("failure %d: %+v", i+1, f)
				}
			}
		})
	}
}

// A refusal ends the campaign by itself, whatever is counted.
func TestARefusalIsNotGivenUp(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		refusals[0].server(mock)
		e, _ := newElector(t, pool, elector.WithMaxAttempts(1))
		err := e.Run(patience(t), nil)
		wantError(t, err, refusals[0].want)
		if errors.Is(err, elector.ErrGaveUp) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAResignedTermIsLeftToOthersForOneRetryInterval(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		expectElection(mock, 2)
		expectResign(mock)
		e, _ := newElector(t, pool)
		var resigned time.Time
		wantError(t, e.Run(patience(t), func(ctx context.Context, term *elector.Term) error {
			if term.Token() == 2 {
				if waited := time.Since(resigned); waited != time.Second {
					t.Errorf("waited %v", waited)
				}
				return nil
			}
			time.AfterFunc(time.Second, func() { _ = term.Resign(context.Background()) })
			<-ctx.Done()
			wantError(t, context.Cause(ctx), elector.ErrResigned)
			resigned = time.Now()
			return ctx.Err()
		}))
	})
}

// Candidates begin in the same instant, after a deployment, and fail in the same, when
// their server goes away: the first pause spreads them over more than those that
// follow, which are three quarters of the longest at least.
func TestTheFirstPauseSpreadsCandidates(t *testing.T) {
	for name, first := range map[string]func(sqlmock.Sqlmock){
		"busy": func(mock sqlmock.Sqlmock) { expectServerCheck(mock); expectBusy(mock, 300, "web-2") },
		"failed": func(mock sqlmock.Sqlmock) {
			expectAttemptUpTo(mock, 0, anyError[0])
			expectServerCheck(mock)
		},
	} {
		soonest := time.Hour
		for range 40 {
			bubble(t, name, func(t *testing.T) {
				pool, mock := newMock(t)
				first(mock)
				expectElection(mock, 1)
				expectResign(mock)
				e, rec := newElector(t, pool)
				resign(t, campaign(t, e))
				soonest = min(soonest, rec.Campaigns()[0].Next)
			})
		}
		if soonest > 500*time.Millisecond { // by chance, once in 10^9
			t.Errorf("%s: of 40 none asked again before %v", name, soonest)
		}
	}
}

// From when the lock was released, and not from when the term was resigned.
func TestTheOthersHaveTheirRetryIntervalAfterASlowHookToo(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 2)
		expectResign(mock)
		expectElection(mock, 2)
		expectResign(mock)
		var demoted time.Time
		e, _ := newElector(t, pool, elector.WithHooks(hooks.Funcs{Demoted: func(_ context.Context, d hooks.Demoted) {
			if d.Token == 1 {
				time.Sleep(5 * time.Second)
				demoted = time.Now()
			}
		}}))
		wantError(t, e.Run(patience(t), func(ctx context.Context, term *elector.Term) error {
			if term.Token() == 2 {
				if waited := time.Since(demoted); waited < time.Second {
					t.Errorf("waited %v", waited)
				}
				return nil
			}
			go func() { _ = term.Resign(context.WithoutCancel(ctx)) }()
			<-ctx.Done()
			return nil
		}))
	})
}

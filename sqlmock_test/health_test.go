package sqlmock_test

import (
	"context"
	"database/sql"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// vitals is a check that says what it is told to, and counts.
type vitals struct {
	ill   atomic.Bool
	asked atomic.Int64
}

func (v *vitals) check(context.Context) float64 {
	v.asked.Add(1)
	if v.ill.Load() {
		return 0.2
	}
	return 0.9
}

// gated is the option, with one check a second, and three in a row to turn the verdict.
func (v *vitals) gated() elector.CommonOption {
	return elector.WithHealth(v.check, elector.HealthPolicy{})
}

// turn makes the check say the other after so much time.
func (v *vitals) turn(after time.Duration) {
	time.AfterFunc(after, func() { v.ill.Store(!v.ill.Load()) })
}

// newPlain makes an elector whose hooks do not want to know who leads, so that a
// candidate that waits for its health asks the server nothing.
func newPlain(t *testing.T, pool *sql.DB, opts ...elector.Option) (*elector.Elector, *hookstest.Recorder) {
	t.Helper()
	rec := hookstest.NewRecorder()
	e, err := elector.New(pool, "orders", append(opts, elector.WithHooks(hooks.Funcs{Elected: rec.OnElected,
		Demoted: rec.OnDemoted, Error: rec.OnError, Campaign: rec.OnCampaign}))...)
	wantError(t, err)
	return e, rec
}

// expectPlainTerm expects an attempt that is granted.
func expectPlainTerm(mock sqlmock.Sqlmock) {
	query(mock, "TryLock").WillReturnRows(row("granted", sessionPID))
	query(mock, "Confirm").WillReturnRows(row(true, sessionPID, 745, noEpoch, false))
}

func TestAnUnhealthyCandidateCampaignsOnceItIsHealthy(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		v := &vitals{}
		v.ill.Store(true)
		v.turn(4500 * time.Millisecond) // so the checks of the seconds 5, 6 and 7 are good
		expectServerCheck(mock)
		expectPlainTerm(mock)
		expectHeartbeats(mock, 1)
		expectResign(mock)
		e, rec := newPlain(t, pool, v.gated())
		if h := e.Health(); h.Healthy || !h.At.IsZero() {
			t.Errorf("before the first check: %+v", h)
		}
		start := time.Now()
		time.AfterFunc(6999*time.Millisecond, func() {
			if h := e.Health(); h.Healthy || h.Score != 0.9 || h.Err != nil {
				t.Errorf("before the third good check: %+v", h)
			}
			if n := len(rec.Campaigns()); n > 0 {
				t.Errorf("%d attempts before", n)
			}
		})
		term := campaign(t, e)
		if took := time.Since(start); took != 7*time.Second {
			t.Errorf("elected after %v", took)
		}
		if h := e.Health(); !h.Healthy || !h.At.Equal(time.Now()) {
			t.Errorf("elected, and %+v", h)
		}
		time.Sleep(3 * time.Second)
		resign(t, term)
		wantFailures(t, rec, hooks.OpHealth)
		wantError(t, rec.Failures()[0].Err, elector.ErrUnhealthy)
		checks := v.asked.Load()
		time.Sleep(time.Minute)
		if v.asked.Load() != checks {
			t.Error("the check is called although nobody campaigns or leads")
		}
	})
}

func TestALeaderThatBecomesUnhealthyStepsDownInOrder(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		v := &vitals{}
		expectServerCheck(mock)
		expectPlainTerm(mock)
		expectHeartbeats(mock, 3)
		expectResign(mock)
		expectPlainTerm(mock)
		expectResign(mock)
		e, rec := newPlain(t, pool, v.gated())
		v.turn(4500 * time.Millisecond)
		start := time.Now()
		terms := 0
		err := e.Run(patience(t), func(ctx context.Context, term *elector.Term) error {
			if terms++; terms == 2 {
				if back := time.Since(start); back < 10*time.Minute {
					t.Errorf("elected again after %v", back)
				}
				return nil
			}
			<-ctx.Done()
			if after := time.Since(start); after != 7*time.Second { // of the checks of the seconds 5, 6 and 7
				t.Errorf("stepped down after %v", after)
			}
			wantError(t, context.Cause(ctx), elector.ErrUnhealthy)
			if len(rec.Demoted()) > 0 {
				t.Error("demoted before the work has returned")
			}
			v.turn(10 * time.Minute)
			return context.Cause(ctx)
		})
		wantError(t, err)
		wantDemoted(t, rec, hooks.Unhealthy, hooks.Resigned)
		wantError(t, rec.Demoted()[0].Err, elector.ErrUnhealthy)
		wantFailures(t, rec, hooks.OpHealth)
	})
}

func TestAFlappingCheckTurnsNothing(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 30)
		expectResign(mock)
		var n int
		e, rec := newElector(t, pool, elector.WithHealth(func(context.Context) float64 {
			if n++; n%3 == 1 { // of three one is good
				return 1
			}
			return math.NaN()
		}, elector.HealthPolicy{}))
		term := campaign(t, e)
		time.Sleep(61 * time.Second)
		if !term.Valid() {
			t.Error("the term has ended")
		}
		resign(t, term)
		wantFailures(t, rec)
	})
}

func TestAParkedCandidateThatBecomesUnhealthyLeavesTheQueue(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		v := &vitals{}
		expectParked(mock, parks)
		expectWait(mock, 2*time.Second, false)
		mock.ExpectExec("-- name: WaitLock ").WillDelayFor(never).WillReturnResult(sqlmock.NewResult(0, 0))
		expectParked(mock, len(parkedAttempt))
		expectHeartbeat(mock)
		expectResign(mock)
		v.turn(500 * time.Millisecond) // so the third bad check is that of the second 3
		time.AfterFunc(3001*time.Millisecond+sendGrace, func() {
			if n := pool.Stats().InUse; n != 1 { // the mock's own
				t.Errorf("%d connections are in use", n)
			}
			v.turn(time.Hour)
		})
		e, rec := newPlain(t, pool, elector.WithStandby(elector.Wait), v.gated())
		start := time.Now()
		term := campaign(t, e)
		if took := time.Since(start); took < time.Hour {
			t.Errorf("elected after %v", took)
		}
		time.Sleep(3 * time.Second)
		resign(t, term)
		wantFailures(t, rec, hooks.OpHealth)
	})
}

// It becomes unhealthy while a hook is told of a wait that was in vain.
func TestACandidateThatBecomesUnhealthyBetweenTwoWaitsKeepsNoSession(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		v := &vitals{}
		expectParked(mock, parks)
		expectWait(mock, 2*time.Second, false)
		v.turn(500 * time.Millisecond) // so the third bad check is that of the second 3
		e, err := elector.New(pool, "orders", elector.WithStandby(elector.Wait), v.gated(), elector.WithHooks(hooks.Funcs{
			Campaign: func(context.Context, hooks.Campaign) { time.Sleep(2 * time.Second) }}))
		wantError(t, err)
		time.AfterFunc(4001*time.Millisecond, func() {
			if n := pool.Stats().InUse; n != 1 { // the mock's own
				t.Errorf("%d connections are in use", n)
			}
		})
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		_, err = e.Campaign(ctx)
		wantError(t, err, context.DeadlineExceeded)
	})
}

func TestTryCampaignOfAnUnhealthyCandidateAsksNothingOfTheServer(t *testing.T) {
	for name, check := range map[string]func(context.Context) float64{
		"bad":    func(context.Context) float64 { return -1 },
		"panics": func(context.Context) float64 { panic("oops") },
		"hangs":  func(ctx context.Context) float64 { <-ctx.Done(); return 1 },
	} {
		bubble(t, name, func(t *testing.T) {
			pool, _ := newMock(t)
			e, rec := newElector(t, pool, elector.WithHealth(check, elector.HealthPolicy{}))
			for range 2 {
				_, elected, err := e.TryCampaign(t.Context())
				wantError(t, err, elector.ErrUnhealthy)
				if h := e.Health(); elected || h.Healthy || h.Score != 0 || (h.Err == nil) != (name == "bad") {
					t.Errorf("elected: %t; %+v", elected, h)
				}
			}
			wantFailures(t, rec, hooks.OpHealth, hooks.OpHealth)
		})
	}
}

func TestTheEndOfTheCampaignEndsTheWaitForHealth(t *testing.T) {
	hangs := func(ctx context.Context) float64 { <-ctx.Done(); return 1 }
	bubble(t, "its context", func(t *testing.T) {
		pool, _ := newMock(t)
		e, _ := newPlain(t, pool, elector.WithHealth(hangs, elector.HealthPolicy{Interval: time.Hour}))
		for _, wait := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := e.Campaign(ctx); return err },
			func(ctx context.Context) error { _, _, err := e.TryCampaign(ctx); return err },
			func(ctx context.Context) error { return e.Run(ctx, nil) },
		} {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			start := time.Now()
			wantError(t, wait(ctx), context.DeadlineExceeded)
			if took := time.Since(start); took != time.Second {
				t.Errorf("took %v", took)
			}
			stop()
		}
	})
	bubble(t, "the end of the session", func(t *testing.T) {
		pool, _ := newMock(t)
		s, err := elector.NewSession(pool, elector.WithHealth(hangs, elector.HealthPolicy{Interval: time.Hour}))
		wantError(t, err)
		e, err := s.Elector("orders")
		wantError(t, err)
		time.AfterFunc(time.Second, func() { wantError(t, s.Close(context.Background())) })
		_, err = e.Campaign(patience(t))
		wantError(t, err, elector.ErrStopped)
	})
}

// One of a session's elections is unhealthy: the other goes on, and a lock that it was
// granted meanwhile is given back.
func TestHealthIsOfEachElectionOfASession(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 1)
		v := &vitals{}
		frail, err := m.Elector("frail", elector.WithKey(2), v.gated())
		wantError(t, err)
		m.opened()
		m.elected(1, 1)
		sound := m.campaign(t, 0)
		v.turn(500 * time.Millisecond) // so the third bad check is that of the second 3
		query(m.mock, "TryLocksOrSeeOffers").WillDelayFor(3200 * time.Millisecond).WillReturnRows(rows(values(int64(2), "granted")))
		query(m.mock, "HeldLocks").WillReturnRows(rows(values(int64(1)), values(int64(2))))
		query(m.mock, "Tokens").WillReturnRows(rows(values(int64(2), true, int64(2), noEpoch)))
		expectResign(m.mock)
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		_, err = frail.Campaign(ctx)
		wantError(t, err, context.DeadlineExceeded)
		if !sound.Valid() {
			t.Error("the other term has ended")
		}
		expectResign(m.mock)
		resign(t, sound)
		wantFailures(t, m.rec, hooks.OpHealth)
	})
}

// The candidate campaigns the moment that it is healthy, also if its first check was bad.
func TestACandidateWhoseFirstCheckWasBadWaitsForNoRetryInterval(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		expectPlainTerm(mock)
		expectResign(mock)
		first := true
		e, rec := newPlain(t, pool, elector.WithRetryInterval(time.Hour), elector.WithHealth(func(context.Context) float64 {
			defer func() { first = false }()
			time.Sleep(500 * time.Millisecond) // the candidate waits by then
			if first {
				return 0.2
			}
			return 1
		}, elector.HealthPolicy{CampaignAfter: 1}))
		start := time.Now()
		term := campaign(t, e)
		if took := time.Since(start); took != 1500*time.Millisecond {
			t.Errorf("elected after %v", took)
		}
		resign(t, term)
		if err := rec.Failures()[0].Err; !contains(err, "the score is 0.2") {
			t.Errorf("got %v", err)
		}
	})
}

func TestTryCampaignSaysWhyTheCandidateIsUnhealthy(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, _ := newMock(t)
		e, _ := newPlain(t, pool, elector.WithHealth(func(context.Context) float64 { return 0.2 }, elector.HealthPolicy{}))
		if _, _, err := e.TryCampaign(t.Context()); !contains(err, "the score is 0.2") {
			t.Errorf("got %v", err)
		}
	})
}

// While it cannot be asked who leads, nothing is known to have changed; and who was seen
// from outside of the queue is the same one when the candidate campaigns.
func TestAnUnhealthyCandidateIsToldOfALeaderOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		v := &vitals{}
		v.ill.Store(true)
		holder.expect(mock, fault{})
		holder.expect(mock, fault{err: errPlain}) // after 90 to 120 s
		expectServerCheck(mock)
		expectBusy(mock, 200, "web-2")
		e, rec := newElector(t, pool, v.gated(), elector.WithRetryInterval(time.Minute))
		v.turn(123500 * time.Millisecond) // so it is healthy after 126 s
		ctx, stop := context.WithTimeout(t.Context(), 130*time.Second)
		defer stop()
		_, err := e.Campaign(ctx)
		wantError(t, err, context.DeadlineExceeded)
		if got := rec.LeaderChanges(); len(got) != 1 || got[0].PID != 200 {
			t.Errorf("told %+v", got)
		}
	})
}

// No hook is called after a call that campaigns has returned.
func TestTryCampaignOfAnUnhealthyCandidateWaitsForTheHooks(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, _ := newMock(t)
		told := false
		e, err := elector.New(pool, "orders", elector.WithHealth(func(context.Context) float64 { return 0 }, elector.HealthPolicy{}),
			elector.WithHooks(hooks.Funcs{Error: func(context.Context, hooks.Failure) {
				time.Sleep(time.Second)
				told = true
			}}))
		wantError(t, err)
		_, _, err = e.TryCampaign(t.Context())
		if wantError(t, err, elector.ErrUnhealthy); !told {
			t.Error("a hook is still being told")
		}
	})
}

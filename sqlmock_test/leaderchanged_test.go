package sqlmock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

func TestEachChangeOfLeaderIsToldOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		expectBusy(mock, 300, "web-2")
		expectBusy(mock, 300, "web-2")
		expectBusy(mock, 301, "web-2") // another session of the same candidate
		expectBusy(mock, 0, "")        // it let go in that instant
		expectBusy(mock, 400, "web-3")
		expectFailedTry(mock, anyError[0])
		expectServerCheck(mock)
		expectBusy(mock, 400, "web-3")
		expectElection(mock, 1)
		expectResign(mock)
		expectBusy(mock, 300, "web-2")
		expectElection(mock, 2)
		expectResign(mock)
		e, rec := newElector(t, pool)
		resign(t, campaign(t, e))
		resign(t, campaign(t, e))
		settle()
		type change struct {
			previous, current string
			pid               int32
		}
		var got []change
		for _, c := range rec.LeaderChanges() {
			got = append(got, change{c.Previous, c.Current, c.PID})
		}
		want := []change{{"", "web-2", 300}, {"web-2", "web-2", 301}, {"web-2", "web-3", 400}, {"web-3", "web-1", sessionPID},
			{"web-1", "", 0}, {"", "web-2", 300}, {"web-2", "web-1", sessionPID}, {"web-1", "", 0}}
		if !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

func TestTheLeaderIsAskedForOnlyIfAHookWantsToKnow(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		query(mock, "TryLock").WillReturnRows(row("busy", sessionPID))
		query(mock, "TryLock").WillReturnRows(row("granted", sessionPID))
		query(mock, "Confirm").WillReturnRows(row(true, sessionPID, 1, noEpoch, false))
		expectResign(mock)
		e, err := elector.New(pool, "orders", elector.WithHooks(hooks.Funcs{Elected: func(context.Context, hooks.Elected) {}}))
		wantError(t, err)
		resign(t, campaign(t, e))
	})
}

// The bounds that the documents name: a heartbeat interval for a parked candidate, a
// retry interval for every other. Each case looks twice, and sees another leader each
// time.
func TestAChangeOfLeaderIsToldWithinItsBound(t *testing.T) {
	hangs := func(ctx context.Context) float64 { <-ctx.Done(); return 0 }
	for name, c := range map[string]struct {
		opts   []elector.Option
		bound  time.Duration
		expect func(sqlmock.Sqlmock)
	}{
		"polling": {nil, time.Second, func(mock sqlmock.Sqlmock) {
			expectServerCheck(mock)
			for pid := range int32(5) {
				expectBusy(mock, 300+pid, "web-2")
			}
		}},
		"parked": {[]elector.Option{elector.WithStandby(elector.Wait)}, 2 * time.Second, func(mock sqlmock.Sqlmock) {
			expectParked(mock, parks)
			for pid := range 5 {
				expectWait(mock, 2*time.Second, false)
				expectLeader(mock, 300+pid, "web-2")
			}
			mock.ExpectExec("-- name: WaitLock ").WillDelayFor(never).WillReturnResult(sqlmock.NewResult(0, 0))
		}},
		"unhealthy": {[]elector.Option{elector.WithHealth(hangs, elector.HealthPolicy{Interval: time.Minute})}, time.Second, func(mock sqlmock.Sqlmock) {
			for pid := range 4 {
				expectLeader(mock, 300+pid, "web-2")
			}
			expectLeader(mock, 0, "")
		}},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			c.expect(mock)
			e, rec := newElector(t, pool, c.opts...)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan error, 1)
			go func() { _, err := e.Campaign(ctx); ended <- err }()
			changes, err := hookstest.WaitN[hooks.LeaderChanged](patience(t), rec, 5, nil)
			wantError(t, err)
			settle()
			stop()
			wantError(t, <-ended, context.Canceled)
			for i, change := range changes[1:] {
				if took := change.At.Sub(changes[i].At); took > c.bound {
					t.Errorf("told %v after the one before", took)
				}
			}
		})
	}
}

package sqlmock_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// A server that was seen as a primary and is in recovery now is being replaced:
// the candidate waits for the new one, however it learned that there was one.

func TestALeaderWhoseServerTurnsStandbyWaitsForThePrimary(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		query(mock, "Ping").WillReturnRows(row(sessionPID, true))
		for range 3 {
			query(mock, "DescribeServer").WillReturnRows(row(firstPID, true, 150000, "PostgreSQL 15", asked))
		}
		expectTerm(mock, 2)
		expectResign(mock)
		e, rec := newElector(t, pool)
		terms := 0
		err := e.Run(patience(t), func(ctx context.Context, term *elector.Term) error {
			if terms++; terms == 2 {
				return nil
			}
			<-ctx.Done()
			wantError(t, context.Cause(ctx), elector.ErrSessionLost, elector.ErrServerReadOnly)
			return nil
		})
		wantError(t, err)
		wantDemoted(t, rec, hooks.SessionLost, hooks.Resigned)
		wantFailures(t, rec, hooks.OpHeartbeat, hooks.OpCampaign, hooks.OpCampaign, hooks.OpCampaign)
		for _, f := range rec.Failures()[1:] {
			wantError(t, f.Err, elector.ErrServerReadOnly)
			if f.Permanent {
				t.Errorf("reported %+v", f)
			}
		}
	})
}

func TestAFollowerWhoseServerTurnsStandbyWaitsForThePrimary(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		expectBusy(mock, 300, "web-2")
		expectAttempt(mock, "standby")
		query(mock, "DescribeServer").WillReturnRows(row(firstPID, true, 150000, "PostgreSQL 15", asked))
		expectTerm(mock, 2)
		expectResign(mock)
		e, rec := newElector(t, pool)
		resign(t, campaign(t, e))
		wantFailures(t, rec, hooks.OpCampaign, hooks.OpCampaign)
	})
}

func TestAServerThatTurnsStandbyBetweenCheckAndLockIsWaitedOut(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		expectAttempt(mock, "standby")
		expectTerm(mock, 2)
		expectResign(mock)
		e, rec := newElector(t, pool)
		start := time.Now()
		resign(t, campaign(t, e))
		if waited := time.Since(start); waited < 125*time.Millisecond || waited > time.Second {
			t.Errorf("waited %v", waited)
		}
		wantFailures(t, rec, hooks.OpCampaign)
	})
}

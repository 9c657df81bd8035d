package sqlmock_test

import (
	"context"
	"github.com/DATA-DOG/go-sqlmock"
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
			query(mock, "DescribeServer").WillReturnRows(row(firstPID, true, 150000, "PostgreSQL 15", asked, false))
		}
		expectTerm(mock, 2)
		expectResign(mock)
		e, rec := newElector(t, pool, elector.WithBackoff(10*time.Second, 10*time.Second))
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
		wantFailures(t, rec, hooks.OpHeartbeat, hooks.OpCampaign) // the others are quick attempts
		refusal := rec.Failures()[1]
		wantError(t, refusal.Err, elector.ErrServerReadOnly)
		if refusal.Permanent {
			t.Errorf("reported %+v", refusal)
		}
	})
}

func TestAFollowerWhoseServerTurnsStandbyWaitsForThePrimary(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		expectBusy(mock, 300, "web-2")
		expectAttempt(mock, "standby")
		query(mock, "DescribeServer").WillReturnRows(row(firstPID, true, 150000, "PostgreSQL 15", asked, false))
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

// That the server was a primary is known from any check: also one that failed later on,
// and one that another elector of the pool has made.
func TestAServerThatWasSeenAsAPrimaryOnceIsWaitedFor(t *testing.T) {
	standby := func(mock sqlmock.Sqlmock) {
		query(mock, "DescribeServer").WillReturnRows(row(firstPID, true, 150000, "PostgreSQL 15", asked, false))
	}
	bubble(t, "by a check that failed", func(t *testing.T) {
		pool, mock := newMock(t)
		expectAttemptUpTo(mock, 1, fault{err: errPlain})
		standby(mock)
		expectTerm(mock, 1)
		expectResign(mock)
		e, rec := newElector(t, pool)
		resign(t, campaign(t, e))
		wantFailures(t, rec, hooks.OpCampaign, hooks.OpCampaign)
	})
	bubble(t, "by another's check", func(t *testing.T) {
		pool, mock := newMockInAnyOrder(t)
		for i, s := range attempt[:10] {
			s.expect(mock, fault{after: time.Second * time.Duration(1-min(i, 1))})
		}
		for range 2 {
			query(mock, "TryLockOrSee").WithArgs(orders, has("application_name"), "web-1").WillReturnRows(row("busy", sessionPID, 300, "web-2"))
		}
		expectServerCheck(mock)
		query(mock, "TryLockOrSee").WithArgs(orders, has("application_name"), "web-3").WillReturnRows(row("standby", sessionPID, 0, ""))
		first, _ := newElector(t, pool)
		second, _ := newElector(t, pool)
		third, rec := newElector(t, pool, elector.WithCandidateID("web-3"))
		for i, e := range []*elector.Elector{first, second} {
			time.AfterFunc(time.Duration(i)*100*time.Millisecond, func() { _, _, err := e.TryCampaign(t.Context()); wantError(t, err) })
		}
		time.Sleep(200 * time.Millisecond)
		ctx, stop := context.WithTimeout(t.Context(), 900*time.Millisecond)
		defer stop()
		_, err := third.Campaign(ctx)
		wantError(t, err, context.DeadlineExceeded)
		wantFailures(t, rec, hooks.OpCampaign)
	})
}

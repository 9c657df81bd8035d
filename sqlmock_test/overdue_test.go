package sqlmock_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgelector/pgelector/hooks"
)

// A fenced transaction of the last term holds the next one back for longer than its
// lease, and the server is asked to end it: by a session of its own, or a shared one.

var (
	errCancelled = &pgconn.PgError{Severity: "ERROR", Code: "57014", Message: "canceling statement due to statement timeout"}
	errForbidden = &pgconn.PgError{Severity: "ERROR", Code: "42501", Message: "permission denied to terminate process"}
)

func TestATransactionThatIsOverdueIsEndedOnceForEachWaitInVain(t *testing.T) {
	for name, barred := range map[string]fault{"no answer": noAnswer, "cancelled": {err: errCancelled}} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectAttemptUpTo(mock, len(attempt)-1, barred) // of Confirm
			expectServerCheck(mock)
			query(mock, "EndOverdue").WithArgs(orders, 10_000).WillReturnRows(row(1, true))
			expectFailedTry(mock, anyError[0]) // which has seen no barrier
			expectTerm(mock, 1)
			expectResign(mock)
			e, rec := newElector(t, pool)
			resign(t, campaign(t, e))
			wantFailures(t, rec, hooks.OpCampaign, hooks.OpCampaign)
		})
	}
}

func TestATransactionThatMayNotBeEndedIsReported(t *testing.T) {
	reported := func(t *testing.T, all []hooks.Failure) {
		t.Helper()
		last := all[len(all)-1]
		wantError(t, last.Err, errForbidden)
		if !strings.Contains(last.Err.Error(), "role") || last.Permanent {
			t.Errorf("got %+v", last)
		}
	}
	bubble(t, "alone", func(t *testing.T) {
		pool, mock := newMock(t)
		expectAttemptUpTo(mock, len(attempt)-1, noAnswer)
		expectServerCheck(mock)
		query(mock, "EndOverdue").WillReturnError(errForbidden)
		expectElection(mock, 1)
		expectResign(mock)
		e, rec := newElector(t, pool)
		resign(t, campaign(t, e))
		wantFailures(t, rec, hooks.OpCampaign, hooks.OpCampaign)
		reported(t, rec.Failures())
	})
	bubble(t, "shared", func(t *testing.T) {
		m := newMany(t, 1)
		m.opened()
		query(m.mock, "TryLocksOrSeeOffers").WillReturnRows(rows(values(int64(1), "granted")))
		for range 3 { // which is reported once
			query(m.mock, "HeldLocks").WillReturnRows(rows(values(int64(1))))
			query(m.mock, "Tokens").WillReturnRows(rows(values(int64(1), false, int64(0), noEpoch)))
			query(m.mock, "EndOverdue").WillReturnError(errForbidden)
		}
		query(m.mock, "HeldLocks").WillReturnRows(rows(values(int64(1))))
		query(m.mock, "Tokens").WillReturnRows(rows(values(int64(1), true, int64(9), noEpoch)))
		term := m.campaign(t, 0)
		expectResign(m.mock)
		resign(t, term)
		wantFailures(t, m.rec, hooks.OpCampaign)
		reported(t, m.rec.Failures())
	})
}

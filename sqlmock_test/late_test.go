package sqlmock_test

import (
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// A candidate that is frozen when the answer to its last question comes reads it
// when it thaws, and another may lead by then. Here the answer comes at the very
// moment at which the validity ends, so that the driver may return either.
func TestAnAnswerThatIsReadTooLateElectsNobody(t *testing.T) {
	const validity = 7 * time.Second
	for range 30 {
		bubble(t, "alone", func(t *testing.T) {
			pool, mock := newMock(t)
			expectServerCheck(mock)
			expectAttempt(mock, "granted")
			query(mock, "Confirm").WillDelayFor(validity).WillReturnRows(row(true, sessionPID, 1, noEpoch, false))
			e, rec := newElector(t, pool)
			_, elected, err := e.TryCampaign(t.Context())
			wantError(t, err, elector.ErrNoAnswer)
			if elected || len(rec.Elected()) > 0 {
				t.Error("elected by an answer that came too late")
			}
		})
		bubble(t, "on a shared session", func(t *testing.T) {
			pool, mock := newMockInAnyOrder(t) // a heartbeat may be sent in that moment, too
			m := newManyOn(t, pool, mock, 1)
			m.opened()
			query(m.mock, "TryLocksOrSeeOffers").WillReturnRows(row(int64(1), "granted"))
			query(m.mock, "HeldLocks").WillReturnRows(row(int64(1)))
			query(m.mock, "Tokens").WillDelayFor(validity).WillReturnRows(row(int64(1), true, int64(1), noEpoch))
			_, elected, err := m.all[0].TryCampaign(t.Context())
			if elected || err == nil || len(m.rec.Elected()) > 0 {
				t.Errorf("elected by an answer that came too late: %t, %v", elected, err)
			}
		})
	}
}

package sqlmock_test

import (
	"testing"

	"github.com/pgelector/pgelector/elector"
)

func TestTheEpochsOfTheOptionAndTheDatabaseRaiseTheToken(t *testing.T) {
	for setting, want := range map[string]int64{noEpoch: 3<<48 | 745, "3": 3<<48 | 745, "9": 9<<48 | 745} {
		bubble(t, setting, func(t *testing.T) {
			pool, mock := newMock(t)
			e, _ := newElector(t, pool, elector.WithTokenEpoch(3))
			expectServerCheck(mock)
			expectAttempt(mock, "granted")
			query(mock, "Confirm").WillReturnRows(row(true, sessionPID, 745, setting, false))
			term := campaign(t, e)
			if term.Token() != want {
				t.Errorf("the token is %x, want %x", term.Token(), want)
			}
			expectResign(mock)
			resign(t, term)
		})
	}
}

func TestAnEpochThatIsNoNumberFailsTheAttemptAndTheNextOneStartsAnew(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		e, rec := newElector(t, pool)
		expectServerCheck(mock)
		expectAttempt(mock, "granted")
		query(mock, "Confirm").WillReturnRows(row(true, sessionPID, 745, "three", false))
		_, elected, err := e.TryCampaign(t.Context())
		wantError(t, err, elector.ErrTokenEpoch)
		if elected || len(rec.Elected()) > 0 {
			t.Error("elected without a token")
		}
		expectTerm(mock, 746) // on another connection
		term := campaign(t, e)
		if term.Token() != 746 {
			t.Errorf("the token is %d", term.Token())
		}
		expectResign(mock)
		resign(t, term)
	})
}

func TestAnEpochThatIsNoNumberFailsABatchAndKeepsTheSharedSession(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 2)
		m.opened()
		m.elected(5, 1)
		first := m.campaign(t, 0)
		query(m.mock, "TryLocksOrSeeOffers").WillReturnRows(rows(values(int64(2), "granted")))
		query(m.mock, "HeldLocks").WillReturnRows(rows(values(int64(1)), values(int64(2))))
		query(m.mock, "Tokens").WillReturnRows(rows(values(int64(2), true, int64(6), "three")))
		expectResign(m.mock) // of the lock without a token
		_, _, err := m.all[1].TryCampaign(t.Context())
		wantError(t, err, elector.ErrTokenEpoch)
		if !first.Valid() {
			t.Error("the other term is not valid any more")
		}
		expectResign(m.mock)
		resign(t, first)
	})
}

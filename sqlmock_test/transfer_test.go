package sqlmock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// A successor opens a session to wait on.
var (
	successorSetup = append([]statement{{"HolderOffers", values(true)}, waitSetup}, warmUp[0], warmUp[1], warmUp[3], warmUp[4])
	successorLeads = append(slices.Clone(successorSetup), statement{"WaitLock", nil}, granted)
)

// expectWait expects a wait of a heartbeat interval that ends without the lock.
func expectWait(mock sqlmock.Sqlmock) {
	mock.ExpectExec("-- name: WaitLock ").WillDelayFor(2 * time.Second).WillReturnResult(sqlmock.NewResult(0, 0))
	notHeld.expect(mock, fault{})
}

func expectOffer(mock sqlmock.Sqlmock, made bool) {
	query(mock, "TryPair").WillReturnRows(row(made))
}

// expectPlace expects a query for the successor's place in the queue.
func expectPlace(mock sqlmock.Sqlmock, place int) {
	query(mock, "UnlockTo").WithArgs(orders, "web-2", false).WillReturnRows(row(place == 1, false, false))
}

func expectUnlockTo(mock sqlmock.Sqlmock, released bool) {
	query(mock, "UnlockTo").WithArgs(orders, "web-2", true).WillReturnRows(row(released, released, released))
}

// expectWithdrawal expects that the offer is taken back.
func expectWithdrawal(mock sqlmock.Sqlmock) {
	query(mock, "UnlockPair").WillReturnRows(row(true))
}

// expectTransfer expects a transfer to a successor that is the first in the queue at once, and what follows then.
func expectTransfer(mock sqlmock.Sqlmock, follows func(sqlmock.Sqlmock)) {
	expectOffer(mock, true)
	expectPlace(mock, 1)
	follows(mock)
	expectWithdrawal(mock)
}

func expectUnlock(mock sqlmock.Sqlmock, key int64) {
	query(mock, "Unlock").WithArgs(key).WillReturnRows(row(true))
}

// The term goes on until the successor is first in the queue. The lock is released after the work
// has returned, when the successor is first again.
func TestTheTermGoesOnUntilItsSuccessorIsReady(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectOffer(mock, false) // the successor is checking for it
		expectOffer(mock, true)
		for _, place := range []int{0, 0, 3, 1} {
			expectPlace(mock, place)
		}
		expectUnlockTo(mock, false) // it was first, but waits again
		expectUnlockTo(mock, true)
		expectWithdrawal(mock)
		e, rec := newElector(t, pool)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		err := e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
			wantError(t, term.TransferTo(ctx, "web-2"), elector.ErrNoSuccessor, elector.ErrResigned)
			time.Sleep(time.Second)
			if len(rec.Demoted()) > 0 {
				t.Error("demoted before the work has returned")
			}
			if mock.ExpectationsWereMet() == nil {
				t.Error("the lock was released before the work has returned")
			}
			time.AfterFunc(500*time.Millisecond, stop) // before the next campaign
			return nil
		})
		wantError(t, err, context.Canceled)
		wantDemoted(t, rec, hooks.Resigned)
		wantFailures(t, rec)
	})
}

func TestTransferToReturnsNilOnlyIfTheSuccessorHasTheLock(t *testing.T) {
	const overtaken, goesOn = `"web-2": it was the first in the queue, but no longer`, "and the term goes on"
	const kept = overtaken + " when the work returned" // so the lock is released as without a successor
	for name, c := range map[string]struct {
		expect func(sqlmock.Sqlmock) // once the successor is the first in the queue, unless it is said that the term goes on
		says   string
		wraps  []error
		took   time.Duration
	}{
		"it was lost while the work returned": {func(mock sqlmock.Sqlmock) {
			mock.MatchExpectationsInOrder(false)
			expectHeartbeats(mock, 1)
			for range looks(2 * time.Second) { // a heartbeat interval
				expectUnlockTo(mock, false)
			}
		}, kept, []error{elector.ErrNoSuccessor}, 2 * time.Second},
		"another came before it in that instant": {expectOvertaken, overtaken, []error{elector.ErrNoSuccessor}, 0},
		"it comes a moment later": {func(mock sqlmock.Sqlmock) {
			query(mock, "UnlockTo").WillReturnRows(row(true, true, false))
			query(mock, "Holder").WillReturnRows(rows())
			expectHolder(mock, "web-2")
		}, "", nil, 2 * time.Millisecond},
		"nobody comes": {func(mock sqlmock.Sqlmock) {
			query(mock, "UnlockTo").WillReturnRows(row(true, true, false))
			for range looks(time.Second) {
				query(mock, "Holder").WillReturnRows(rows())
			}
		}, overtaken, []error{elector.ErrNoSuccessor}, time.Second},
		"it does not come": {func(mock sqlmock.Sqlmock) {
			expectOffer(mock, true)
			mock.MatchExpectationsInOrder(false)
			expectHeartbeats(mock, 5)           // what a part asks proves nothing
			for range looks(10 * time.Second) { // a lease
				expectPlace(mock, 0)
			}
			expectWithdrawal(mock)
		}, goesOn + `: "web-2": it did not come within 10s`, []error{elector.ErrNoSuccessor}, 10 * time.Second},
		"the server refuses the offer": {func(mock sqlmock.Sqlmock) {
			query(mock, "TryPair").WillReturnError(errFull)
		}, goesOn, []error{elector.ErrNoSuccessor, elector.ErrLockTableFull}, 0},
		"the server does not say where it is": {func(mock sqlmock.Sqlmock) {
			expectOffer(mock, true)
			query(mock, "UnlockTo").WillReturnError(errPlain)
			expectWithdrawal(mock)
		}, goesOn + `: "web-2": elector: look for the successor`, []error{elector.ErrNoSuccessor, errPlain}, 0},
		"the server does not release": {func(mock sqlmock.Sqlmock) {
			query(mock, "UnlockTo").WillReturnError(errPlain)
			holdsLock.expect(mock, fault{})
		}, kept, []error{elector.ErrNoSuccessor}, 0},
		"the server does not release, nor says so": {func(mock sqlmock.Sqlmock) {
			query(mock, "UnlockTo").WillReturnError(errPlain)
			query(mock, "HoldsLock").WillReturnError(errPlain)
		}, kept, []error{elector.ErrNoSuccessor}, 0},
		"the server releases, and has no room to take it back": {func(mock sqlmock.Sqlmock) {
			query(mock, "UnlockTo").WillReturnError(errFull)
			query(mock, "HoldsLock").WillReturnRows(row(false, sessionPID))
			expectHolder(mock, "web-2")
		}, "", nil, 0},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			stays := strings.HasPrefix(c.says, goesOn)
			if stays {
				c.expect(mock)
			} else {
				expectTransfer(mock, c.expect)
			}
			if c.says == kept {
				expectUnlock(mock, orders)
			}
			e, _ := newElector(t, pool)
			term := campaign(t, e)
			time.Sleep(500 * time.Millisecond) // or a heartbeat may be due just at the end
			start := time.Now()
			err := term.TransferTo(t.Context(), "web-2")
			if wantError(t, err, c.wraps...); err != nil && !contains(err, c.says) {
				t.Errorf("got %v", err)
			}
			wantTook(t, start, c.took)
			if stays {
				expectUnlock(mock, orders)
				resign(t, term)
			}
		})
	}
	bubble(t, "it has, and the server serves it first", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectAll(mock, []statement{{"PREPARE Unlock", nil}})
		expectTransfer(mock, func(mock sqlmock.Sqlmock) { expectUnlockTo(mock, true) })
		e, _ := newElector(t, pool, elector.WithTakeover(elector.Wait))
		term := campaign(t, e)
		time.Sleep(time.Second)
		start := time.Now()
		wantError(t, term.TransferTo(t.Context(), "web-2"))
		wantTook(t, start, 10*time.Millisecond)
	})
	bubble(t, "the successor of another call came before it", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectTransfer(mock, expectOvertaken)
		e, _ := newElector(t, pool)
		term := campaign(t, e)
		wantError(t, term.TransferTo(t.Context(), "web-2"), elector.ErrNoSuccessor)
		wantError(t, term.TransferTo(t.Context(), "web-4"), elector.ErrNoSuccessor)
		wantError(t, term.TransferTo(t.Context(), "web-3"))
	})
}

// On a shared session both locks are released separately, in either order.
func TestAResignationDuringATransferComesFirst(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 1)
		m.opened()
		m.elected(1, 1)
		query(m.mock, "TryPair").WillReturnRows(row(true))
		for range looks(time.Second) {
			query(m.mock, "UnlockTo").WillReturnRows(row(false, false, false))
		}
		m.mock.MatchExpectationsInOrder(false)
		expectWithdrawal(m.mock)
		expectUnlock(m.mock, 1)
		term := m.campaign(t, 0)
		time.AfterFunc(time.Second, func() { _ = term.Resign(t.Context()) })
		start := time.Now()
		wantError(t, term.TransferTo(t.Context(), "web-2"), elector.ErrNoSuccessor)
		wantTook(t, start, time.Second)
	})
}

// expectOvertaken expects that web-3 is granted the lock in the instant in which it is released.
func expectOvertaken(mock sqlmock.Sqlmock) {
	query(mock, "UnlockTo").WillReturnRows(row(true, true, false))
	expectHolder(mock, "web-3")
}

// expectHolder expects a query who has the lock, within a transfer.
func expectHolder(mock sqlmock.Sqlmock, id string) {
	query(mock, "Holder").WillReturnRows(row(300, id, "app", "", 0, 0, 0, false, 0, "", "", 0, 0))
}

// looks returns how often a leader checks the queue in that time: after 2 ms at first, then after
// twice as long each time, up to 50 ms.
func looks(wait time.Duration) (n int) {
	pause := 2 * time.Millisecond
	for at := time.Duration(0); at < wait; at += pause {
		if n++; n > 1 {
			pause = min(2*pause, 50*time.Millisecond)
		}
	}
	return n
}

func TestAnInvalidSuccessorIsAnErrorAndTheTermGoesOn(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		e, _ := newElector(t, pool)
		term := campaign(t, e)
		for _, successor := range []string{"", "web-1", strings.Repeat("w", 64), "wëb"} {
			wantError(t, term.TransferTo(t.Context(), successor), elector.ErrNoSuccessor, elector.ErrConfig)
		}
		if !term.Valid() {
			t.Error("the term has ended")
		}
		resign(t, term)
		wantError(t, term.Resign(t.Context()))
	})
}

// Otherwise it polls.
func TestACandidateWaitsAsLongAsItsOfferStands(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		query(mock, "TryLock").WillReturnRows(row("offered", false, sessionPID, 300, "web-2"))
		query(mock, "HolderOffers").WillReturnRows(row(true))
		query(mock, "PrepareWait").WithArgs(false, has(`"pgelector.role","value":"successor"`)).WillReturnRows(row(sessionPID, false, 14, "1.5"))
		expectAll(mock, successorSetup[2:])
		expectWait(mock)
		query(mock, "HolderOffers").WillReturnRows(row(true))
		expectWait(mock)
		query(mock, "HolderOffers").WillReturnRows(row(false)) // the transfer has ended
		expectBusy(mock, 300, "web-2")
		query(mock, "TryLock").WillReturnRows(row("offered", false, sessionPID, 300, "web-2"))
		expectAll(mock, successorLeads)
		query(mock, "TryPair").WillReturnRows(row(true)) // a seat
		expectResign(mock)
		e, rec := newElector(t, pool)
		term := campaign(t, e)
		synctest.Wait()
		resign(t, term)
		wantFailures(t, rec)
		var outcomes []hooks.Outcome
		for _, c := range rec.Campaigns() {
			outcomes = append(outcomes, c.Outcome)
		}
		if len(outcomes) != 3 || outcomes[2] != hooks.Granted {
			t.Errorf("got %v", outcomes)
		}
		wantInUse(t, pool, 1)
	})
}

// The last leader keeps its seat for a moment, and the deputy has the other one. A refusal,
// as by a full lock table, is no reason to give up either.
func TestALeaderWithoutASeatTriesUntilOneIsFree(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		query(mock, "TryLock").WillReturnRows(row("offered", false, sessionPID, 300, "web-2"))
		expectAll(mock, successorLeads)
		for range 3 {
			query(mock, "TryPair").WillReturnRows(row(false)) // one seat
			query(mock, "TryPair").WillReturnRows(row(false)) // the other
		}
		query(mock, "TryPair").WillReturnError(errFull)
		query(mock, "TryPair").WillReturnRows(row(false))
		query(mock, "TryPair").WillReturnRows(row(true))
		e, rec := newElector(t, pool)
		term := campaign(t, e)
		time.Sleep(time.Second) // before the first heartbeat
		wantError(t, mock.ExpectationsWereMet())
		expectResign(mock)
		resign(t, term)
		wantFailures(t, rec)
	})
}

// The term has its own session, and ends with the shared one.
func TestASuccessorOfASessionWaitsOnAConnectionOfItsOwn(t *testing.T) {
	for _, resigns := range []bool{true, false} {
		bubble(t, "", func(t *testing.T) {
			m := newMany(t, 1)
			m.opened()
			query(m.mock, "TryLocks").WillReturnRows(rows(values(int64(1), "offered", sessionPID)))
			expectCheck(m.mock, turns) // of the server as the elector knows it
			expectAll(m.mock, successorLeads)
			query(m.mock, "TryPair").WillReturnRows(row(true)) // a seat
			expectResign(m.mock)
			term := m.campaign(t, 0)
			synctest.Wait()
			wantInUse(t, m.pool, 3)
			if resigns {
				resign(t, term)
				wantInUse(t, m.pool, 2)
				return
			}
			wantError(t, m.Close(t.Context()))
			wantError(t, context.Cause(term.Context()), elector.ErrStopped)
		})
	}
}

func TestCloseEndsTheWaitOfASuccessor(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 1)
		m.opened()
		query(m.mock, "TryLocks").WillReturnRows(rows(values(int64(1), "offered", sessionPID)))
		expectCheck(m.mock, turns) // of the server as the elector knows it
		expectAll(m.mock, successorSetup)
		m.mock.ExpectExec("-- name: WaitLock ").WillDelayFor(never).WillReturnResult(sqlmock.NewResult(0, 0))
		time.AfterFunc(time.Second, func() { wantError(t, m.Close(context.Background())) })
		start := time.Now()
		_, err := m.all[0].Campaign(patience(t))
		wantError(t, err, elector.ErrStopped)
		wantTook(t, start, time.Second+sendGrace)
	})
}

// The successor gets one notification, after the offer is visible.
func TestTheSuccessorIsNotifiedWhenItsOfferStands(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectNotify(mock, fmt.Sprint("led ", orders))
		expectOffer(mock, false)
		expectOffer(mock, true)
		expectNotify(mock, fmt.Sprint("successor ", orders, " web-2"))
		expectPlace(mock, 0)
		expectPlace(mock, 1)
		expectUnlockTo(mock, true)
		expectWithdrawal(mock)
		e, _ := newElector(t, pool, elector.WithNotifier(&manualNotifier{}))
		term := campaign(t, e)
		settle()
		wantError(t, term.TransferTo(t.Context(), "web-2"))
	})
}

// If its wait fails, a successor campaigns on as after any failure.
func TestASuccessorReportsWhatFails(t *testing.T) {
	for name, fails := range map[string]func(sqlmock.Sqlmock){
		"its connection": func(mock sqlmock.Sqlmock) {
			query(mock, "HolderOffers").WillReturnRows(row(true))
			query(mock, "PrepareWait").WillReturnError(errPlain)
		},
		"the wait": func(mock sqlmock.Sqlmock) { mock.ExpectExec("-- name: WaitLock ").WillReturnError(errPlain) },
		"the question": func(mock sqlmock.Sqlmock) {
			expectWait(mock)
			query(mock, "HolderOffers").WillReturnError(errPlain)
		},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectServerCheck(mock)
			query(mock, "TryLock").WillReturnRows(row("offered", false, sessionPID, 300, "web-2"))
			if name != "its connection" {
				expectAll(mock, successorSetup)
			}
			fails(mock)
			expectTerm(mock, 2)
			expectResign(mock)
			e, rec := newElector(t, pool)
			resign(t, campaign(t, e))
			wantFailures(t, rec, hooks.OpCampaign)
			wantError(t, rec.Failures()[0].Err, errPlain)
		})
	}
}

// The lock, on the backend that a pooler has moved the session from, is released.
func TestASuccessorThatIsMovedByAPoolerIsNotElected(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		query(mock, "TryLock").WillReturnRows(row("offered", false, sessionPID, 300, "web-2"))
		expectAll(mock, successorSetup)
		mock.ExpectExec("-- name: WaitLock ").WillReturnResult(sqlmock.NewResult(0, 0))
		query(mock, "Confirm").WillReturnRows(row(true, sessionPID+1, timelineOne|745, noEpoch, false, ""))
		expectEviction(mock, sessionPID, orders)
		e, rec := newElector(t, pool, elector.WithMaxAttempts(1))
		wantError(t, e.Run(patience(t), nil), elector.ErrSessionPooled, elector.ErrGaveUp)
		if n := len(rec.Elected()); n > 0 {
			t.Errorf("elected %d times", n)
		}
	})
}

// An offer that is answered after the transfer was cancelled is taken back if it was made. The
// other terms of the session go on.
func TestALateAnswerToAnOfferCostsTheSessionNothing(t *testing.T) {
	for name, made := range map[string]bool{"made": true, "not made": false} {
		bubble(t, name, func(t *testing.T) {
			m := newMany(t, 2)
			m.opened()
			m.elected(1, 1, 2)
			m.mock.MatchExpectationsInOrder(false)
			terms := m.campaigns(t)
			query(m.mock, "TryPair").WillDelayFor(2 * time.Second).WillReturnRows(row(made))
			expectUnlock(m.mock, 1)
			if made {
				expectWithdrawal(m.mock)
			}
			wantError(t, terms[0].TransferTo(within(t, time.Second), "web-2"), elector.ErrNoSuccessor)
			time.Sleep(1500 * time.Millisecond)
			if wantError(t, terms[0].Resign(t.Context())); !terms[1].Valid() {
				t.Errorf("the other term has ended: %v", context.Cause(terms[1].Context()))
			}
			expectUnlock(m.mock, 2)
			resign(t, terms[1])
		})
	}
}

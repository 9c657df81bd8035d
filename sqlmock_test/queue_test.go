package sqlmock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// With WithStandby(Wait) an attempt is a wait in the server: a session is set up
// once, and rehearses; then each wait is two statements.

var errFull = &pgconn.PgError{Severity: "ERROR", Code: "53200", Message: "out of shared memory"}

// parkedAttempt is every statement of a first wait that is granted, after the check.
var parkedAttempt = []statement{
	{"PrepareWait", values(sessionPID, false, 14)},
	{"PREPARE Confirm", nil}, // the rehearsal, of two, with two prepared
	{"PREPARE Unlock", nil},
	{"TrialLock", values(true)},
	{"Confirm", values(false, sessionPID, 0, noEpoch, false)},
	{"WaitLock", nil},
	{"Confirm", values(true, sessionPID, 745, noEpoch, false)},
}

const parks = 5 // so many of them come before the first wait

// expectParked expects a check, and the first n statements.
func expectParked(mock sqlmock.Sqlmock, n int) {
	expectServerCheck(mock)
	for _, s := range parkedAttempt[:n] {
		s.expect(mock, fault{})
	}
}

// expectWait expects a wait of that length, and whether it was granted.
func expectWait(mock sqlmock.Sqlmock, took time.Duration, granted bool) {
	mock.ExpectExec("-- name: WaitLock ").WillDelayFor(took).WillReturnResult(sqlmock.NewResult(0, 0))
	query(mock, "Confirm").WillReturnRows(row(granted, sessionPID, 745, noEpoch, false))
}

// expectVain expects a wait of a full heartbeat interval in vain, after which a
// recorder wants to know who leads.
func expectVain(mock sqlmock.Sqlmock) {
	expectWait(mock, 2*time.Second, false)
	expectLeader(mock, 300, "web-2")
}

func TestAnyFaultOfAWaitFailsItAndTheNextOneStartsAnew(t *testing.T) {
	for i, s := range parkedAttempt {
		for _, f := range append(s.faults(), fault{name: "full", err: errFull, want: errFull}) {
			bubble(t, s.name+"/"+f.name, func(t *testing.T) {
				pool, mock := newMock(t)
				e, rec := newElector(t, pool, elector.WithStandby(elector.Wait), elector.WithHooks(hooks.Funcs{
					Campaign: func(_ context.Context, c hooks.Campaign) { // before the pause
						if n := pool.Stats().InUse; c.Outcome == hooks.Failed && n != 1 {
							t.Errorf("%d connections are in use after the failure", n)
						}
					}}))
				expectParked(mock, i)
				s.expect(mock, f)
				expectServerCheck(mock)
				if i > parks && f.after == never { // perhaps it waited at the barrier
					query(mock, "EndOverdue").WillReturnRows(row(1, true))
				}
				for _, s := range parkedAttempt {
					s.expect(mock, fault{})
				}
				expectResign(mock)
				resign(t, campaign(t, e))
				wantFailures(t, rec, hooks.OpCampaign)
				err := rec.Failures()[0].Err
				switch {
				case f.after == never:
					wantError(t, err, elector.ErrNoAnswer)
				case f.err == errFull:
					wantError(t, err, elector.ErrLockTableFull, errFull)
				case f.err == driver.ErrBadConn && (s.name == "Confirm" || s.name == "Unlock"): // they are prepared
					wantError(t, err, sql.ErrConnDone)
				case f.want != nil:
					wantError(t, err, f.want)
				}
				if n := pool.Stats().InUse; n != 1 { // the mock's own
					t.Errorf("%d connections are in use", n)
				}
			})
		}
	}
}

// A server that turns standby between its check and the set-up of the session is
// waited out, since it was a primary, and nothing is kept of the attempt.
func TestAStandbyIsNotWaitedFor(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		query(mock, "PrepareWait").WillReturnRows(row(sessionPID, true, 14))
		expectParked(mock, len(parkedAttempt))
		expectResign(mock)
		e, rec := newElector(t, pool, elector.WithStandby(elector.Wait))
		term := campaign(t, e)
		wantFailures(t, rec, hooks.OpCampaign)
		wantError(t, rec.Failures()[0].Err, elector.ErrServerReadOnly)
		if n := pool.Stats().InUse; n != 2 { // the mock's own, and the term's
			t.Errorf("%d connections are in use", n)
		}
		resign(t, term)
	})
}

func TestASlowWaitIsNoFault(t *testing.T) {
	for i, s := range parkedAttempt {
		bubble(t, s.name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectParked(mock, i)
			s.expect(mock, slow)
			for _, s := range parkedAttempt[i+1:] {
				s.expect(mock, fault{})
			}
			expectResign(mock)
			e, rec := newElector(t, pool, elector.WithStandby(elector.Wait))
			resign(t, campaign(t, e))
			wantFailures(t, rec)
		})
	}
}

func TestWaitsFollowOneAnotherOnOneSession(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectParked(mock, parks)
		for range 5 {
			expectVain(mock)
		}
		expectWait(mock, 1300*time.Millisecond, true)
		expectResign(mock)
		e, rec := newElector(t, pool, elector.WithStandby(elector.Wait))
		start := time.Now()
		term := campaign(t, e)
		if took := time.Since(start); took != 11300*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if left := time.Until(term.Deadline()); left != 7*time.Second { // counted from the last answer's question
			t.Errorf("valid for %v", left)
		}
		resign(t, term)
		wantFailures(t, rec)
	})
}

// A granted lock that does not show is a refusal, and no reason to ask in a loop.
func TestALockThatIsGrantedToAStandbyButDoesNotShowIsRefused(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectParked(mock, parks)
		expectWait(mock, 0, false)
		query(mock, "TryLocks").WillReturnRows(row(elector.KeyFromName("orders"), true))
		query(mock, "Confirm").WillReturnRows(row(false, sessionPID, 0, noEpoch, false))
		e, rec := newElector(t, pool, elector.WithStandby(elector.Wait))
		wantError(t, e.Run(patience(t), nil), elector.ErrUnsupportedServer)
		wantFailures(t, rec, hooks.OpCampaign)
	})
}

// The rehearsal unlocks what nobody else can have unlocked.
func TestAWaitThatEndedTooSoonIsNotBelievedWithoutAnAnswer(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectParked(mock, parks)
		expectWait(mock, 0, false)
		query(mock, "TryLocks").WillReturnError(errPlain)
		expectParked(mock, parks)
		expectWait(mock, 0, false)
		query(mock, "TryLocks").WillReturnRows(rows()) // which no server does
		query(mock, "Confirm").WillReturnRows(row(false, sessionPID, 0, noEpoch, false))
		e, rec := newElector(t, pool, elector.WithStandby(elector.Wait))
		wantError(t, e.Run(patience(t), nil), elector.ErrUnsupportedServer)
		wantFailures(t, rec, hooks.OpCampaign, hooks.OpCampaign)
		wantError(t, rec.Failures()[0].Err, errPlain)
	})
}

// Whom nobody asks who leads does not ask the server.
func TestAParkedCandidateWithoutAHookAsksNothingMore(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectParked(mock, parks)
		expectWait(mock, 2*time.Second, false)
		expectWait(mock, time.Second, true)
		expectResign(mock)
		e, err := elector.New(pool, "orders", elector.WithStandby(elector.Wait))
		wantError(t, err, nil)
		resign(t, campaign(t, e))
	})
}

// Somebody has cancelled the waiting statement.
func TestAWaitThatEndsTooSoonIsBegunAnew(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectParked(mock, parks)
		expectWait(mock, 100*time.Millisecond, false)
		query(mock, "TryLocks").WillReturnRows(row(elector.KeyFromName("orders"), false))
		expectLeader(mock, 300, "web-2")
		expectWait(mock, 100*time.Millisecond, false)
		query(mock, "TryLocks").WillReturnRows(row(elector.KeyFromName("orders"), true)) // it is free by now
		query(mock, "Confirm").WillReturnRows(row(true, sessionPID, 745, noEpoch, false))
		expectResign(mock)
		e, rec := newElector(t, pool, elector.WithStandby(elector.Wait))
		resign(t, campaign(t, e))
		wantFailures(t, rec)
	})
}

func TestAParkedStandbyThatIsMovedByAPoolerIsNotElected(t *testing.T) {
	for i := range 2 {
		bubble(t, "", func(t *testing.T) {
			pool, mock := newMock(t)
			expectParked(mock, []int{parks - 1, parks + 1}[i]) // the rehearsal's Confirm, and that of the wait
			query(mock, "Confirm").WillReturnRows(row(false, sessionPID+1, 0, noEpoch, false))
			query(mock, "EvictHolder").WillReturnRows(row(true)) // the lock may be on the other backend
			e, rec := newElector(t, pool, elector.WithStandby(elector.Wait), elector.WithMaxAttempts(1))
			wantError(t, e.Run(patience(t), nil), elector.ErrSessionPooled, elector.ErrGaveUp)
			if n := len(rec.Elected()); n > 0 {
				t.Errorf("elected %d times", n)
			}
		})
	}
}

// A hook that takes longer than the lease costs a session, and no attempt.
func TestASessionThatWasLeftAloneForTooLongIsNotWaitedOn(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectParked(mock, parks)
		expectVain(mock)
		for _, s := range parkedAttempt {
			s.expect(mock, fault{})
		}
		expectResign(mock)
		e, rec := newElector(t, pool, elector.WithStandby(elector.Wait), elector.WithHooks(hooks.Funcs{
			Campaign: func(_ context.Context, c hooks.Campaign) {
				if c.Outcome == hooks.Busy {
					time.Sleep(20 * time.Second)
				}
			}}))
		resign(t, campaign(t, e))
		wantFailures(t, rec)
	})
}

// A hook is told between two waits: a campaign that ends then keeps nothing.
func TestACampaignThatEndsBetweenTwoWaitsKeepsNoSession(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectParked(mock, parks)
		expectVain(mock)
		ctx, stop := context.WithCancel(t.Context())
		e, _ := newElector(t, pool, elector.WithStandby(elector.Wait), elector.WithHooks(hooks.Funcs{
			Campaign: func(context.Context, hooks.Campaign) { stop() }}))
		_, err := e.Campaign(ctx)
		wantError(t, err, context.Canceled)
		if n := pool.Stats().InUse; n != 1 { // the mock's own
			t.Errorf("%d connections are in use", n)
		}
	})
}

// A parked leader that resigns lets the next one go first, and has nothing to wait for
// if it could not.
func TestAParkedLeaderClosesItsConnectionAMomentAfterItsRelease(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		took time.Duration
	}{"released": {nil, 10 * time.Millisecond}, "in doubt": {errPlain, 0}} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectParked(mock, len(parkedAttempt))
			query(mock, "Unlock").WillReturnRows(row(true)).WillReturnError(c.err)
			e, _ := newElector(t, pool, elector.WithStandby(elector.Wait))
			term := campaign(t, e)
			start := time.Now()
			_ = term.Resign(t.Context())
			if took := time.Since(start); took != c.took {
				t.Errorf("took %v", took)
			}
		})
	}
}

// Nobody is to be let go first by one that ends without a release.
func TestAParkedLeaderThatDoesNotReleaseClosesItsConnectionAtOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectParked(mock, len(parkedAttempt))
		e, _ := newElector(t, pool, elector.WithStandby(elector.Wait), elector.WithGracefulRelease(false))
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		start := time.Now()
		wantError(t, e.Run(ctx, nil), context.DeadlineExceeded)
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// What cannot be held in the rehearsal cannot be led by.
func TestALockThatDoesNotShowInTheRehearsalIsRefused(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectParked(mock, 3)
		query(mock, "TrialLock").WillReturnRows(row(false))
		e, rec := newElector(t, pool, elector.WithStandby(elector.Wait))
		wantError(t, e.Run(patience(t), nil), elector.ErrUnsupportedServer)
		wantFailures(t, rec, hooks.OpCampaign)
	})
}

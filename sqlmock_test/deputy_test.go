package sqlmock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

var errFull = &pgconn.PgError{Severity: "ERROR", Code: "53200", Message: "out of shared memory"}

var (
	tryLock   = statement{"TryLock", values("deputy", true, sessionPID, 300, "web-2")}
	lookAbout = statement{"Identify", values(int64(1), int64(1), "", 0)}
	granted   = statement{"Confirm", values(true, sessionPID, timelineOne|745, noEpoch, false, "")}
	notHeld   = statement{"Confirm", values(false, sessionPID, 0, noEpoch, false, "")}
	warmUp    = []statement{{"PREPARE Confirm", nil}, {"PREPARE Unlock", nil}, {"PREPARE TryAsDeputy", nil}, {"TrialLock", values(true)}, notHeld}
	waitSetup = statement{"PrepareWait", values(sessionPID, false, 14, "1.5")}
)

// A scriptedDeputy has the statements of a deputy that is granted the lock at the first
// opportunity.
type scriptedDeputy struct {
	takeover elector.Takeover
	sit      []statement // takes the seat
	lead     []statement // from then on
}

var deputies = map[string]scriptedDeputy{
	"asks": {elector.Deputy, append([]statement{tryLock}, warmUp...),
		[]statement{lookAbout, {"TryAsDeputy", values(true, sessionPID)}, granted}},
	"waits": {elector.Wait, append([]statement{tryLock, waitSetup}, warmUp...),
		[]statement{{"WaitLock", nil}, granted}},
}

func (d scriptedDeputy) all() []statement { return slices.Concat(d.sit, d.lead) }

// looksMeanwhile reports whether the deputy checks which server the pool reaches while the answer
// to the statement is late.
func (d scriptedDeputy) looksMeanwhile(i int, f fault) bool {
	return d.takeover == elector.Wait && i >= len(d.sit) && f.after > 0
}

func expectAll(mock sqlmock.Sqlmock, all []statement) {
	for _, s := range all {
		s.expect(mock, fault{})
	}
}

// After any fault of a deputy's statement the next attempt starts from the beginning. Only the check
// of the pool's server may fail.
func TestAnyFaultOfADeputyFailsItsAttempt(t *testing.T) {
	for name, d := range deputies {
		for i, s := range d.all() {
			for _, f := range append(s.faults(), fault{name: "full", err: errFull, want: errFull}) {
				if s.name == "TryLock" || s.name == "Identify" {
					continue
				}
				bubble(t, name+"/"+s.name+"/"+f.name, func(t *testing.T) {
					pool, mock := newMock(t)
					e, rec := newElector(t, pool, elector.WithTakeover(d.takeover), elector.WithHooks(hooks.Funcs{
						Campaign: func(_ context.Context, c hooks.Campaign) { // before the pause
							if n := pool.Stats().InUse; c.Outcome == hooks.Failed && n != 1 {
								t.Errorf("%d connections are in use after the failure", n)
							}
						}}))
					expectServerCheck(mock)
					expectAll(mock, d.all()[:i])
					s.expect(mock, f)
					if d.looksMeanwhile(i, f) {
						lookAbout.expect(mock, fault{})
					}
					expectServerCheck(mock)
					if s.name == "Confirm" && i > len(d.sit) && f.after == never { // it may have waited at the barrier
						query(mock, "EndOverdue").WillReturnRows(row(1, true, ""))
					}
					expectAll(mock, d.all())
					expectResign(mock)
					resign(t, campaign(t, e))
					if f.err == driver.ErrBadConn && i >= len(d.sit) { // the elector tries the pool's other connections at once
						wantFailures(t, rec)
						return
					}
					wantFailures(t, rec, hooks.OpCampaign)
					err := rec.Failures()[0].Err
					switch {
					case f.after == never:
						wantError(t, err, elector.ErrNoAnswer)
					case f.err == errFull:
						wantError(t, err, elector.ErrLockTableFull, errFull)
					case f.err == driver.ErrBadConn && (s.name == "Confirm" || s.name == "TryAsDeputy"): // they are prepared
						wantError(t, err, sql.ErrConnDone)
					case f.want != nil:
						wantError(t, err, f.want)
					}
					wantInUse(t, pool, 1)
				})
			}
		}
	}
}

func TestASlowAnswerToADeputyIsNoFault(t *testing.T) {
	for name, d := range deputies {
		for i, s := range d.all() {
			if s.name == "Identify" {
				continue
			}
			bubble(t, name+"/"+s.name, func(t *testing.T) {
				pool, mock := newMock(t)
				expectServerCheck(mock)
				expectAll(mock, d.all()[:i])
				s.expect(mock, slow)
				if d.looksMeanwhile(i, slow) {
					lookAbout.expect(mock, fault{})
				}
				expectAll(mock, d.all()[i+1:])
				expectResign(mock)
				e, rec := newElector(t, pool, elector.WithTakeover(d.takeover))
				resign(t, campaign(t, e))
				wantFailures(t, rec)
			})
		}
	}
}

// expectInterval expects a heartbeat interval of a deputy that tries each second.
func expectInterval(mock sqlmock.Sqlmock, first bool) {
	lookAbout.expect(mock, fault{})
	for range 2 {
		query(mock, "TryAsDeputy").WillReturnRows(row(false, sessionPID))
	}
	query(mock, "PairIsFree").WillReturnRows(row(true, sessionPID))
	holder.expect(mock, fault{})
	if first {
		lookAbout.expect(mock, fault{}) // on its own session, to compare
	}
}

var askEachSecond = elector.WithDeputyInterval(time.Second)

func TestTheValidityOfADeputyBeginsWithItsLastStatement(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		expectAll(mock, deputies["asks"].sit)
		for i := range 5 {
			expectInterval(mock, i == 0)
		}
		expectAll(mock, deputies["asks"].lead)
		expectResign(mock)
		e, rec := newElector(t, pool, elector.WithTakeover(elector.Deputy), askEachSecond)
		start := time.Now()
		term := campaign(t, e)
		wantTook(t, start, 11*time.Second)
		if left := time.Until(term.Deadline()); left != 7*time.Second {
			t.Errorf("valid for %v", left)
		}
		resign(t, term)
		wantFailures(t, rec)
		for i, c := range rec.Campaigns() {
			if c.Deputy != (c.Outcome == hooks.Busy) || c.Next != 0 {
				t.Errorf("attempt %d: %+v", i+1, c)
			}
		}
	})
}

// The check of the pool's server may fail.
func TestADeputyWhosePoolFailsGoesOn(t *testing.T) {
	for _, f := range anyError {
		bubble(t, f.name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectServerCheck(mock)
			expectAll(mock, deputies["asks"].sit)
			lookAbout.expect(mock, f)
			query(mock, "TryAsDeputy").WillReturnRows(row(false, sessionPID))
			query(mock, "TryAsDeputy").WillReturnRows(row(true, sessionPID))
			granted.expect(mock, fault{})
			expectResign(mock)
			e, rec := newElector(t, pool, elector.WithTakeover(elector.Deputy), askEachSecond)
			resign(t, campaign(t, e))
			wantFailures(t, rec)
		})
	}
}

// The deputy gives its seat up, and begins anew.
func TestADeputyReportsThatItCannotAskForAnOffer(t *testing.T) {
	for _, f := range []fault{{err: errPlain}, {err: errFull}} {
		bubble(t, f.err.Error(), func(t *testing.T) {
			pool, mock := newMock(t)
			expectServerCheck(mock)
			expectAll(mock, deputies["asks"].sit)
			lookAbout.expect(mock, fault{})
			for range 2 {
				query(mock, "TryAsDeputy").WillReturnRows(row(false, sessionPID))
			}
			query(mock, "PairIsFree").WillReturnError(f.err)
			expectServerCheck(mock)
			expectAll(mock, deputies["asks"].all())
			expectResign(mock)
			e, rec := newElector(t, pool, elector.WithTakeover(elector.Deputy), askEachSecond)
			resign(t, campaign(t, e))
			wantFailures(t, rec, hooks.OpCampaign)
			wantError(t, rec.Failures()[0].Err, f.err)
			wantInUse(t, pool, 1)
		})
	}
}

// But not if the server is starting up, or full: all of its clients come back then.
func TestADeputyHurriesAfterAFailure(t *testing.T) {
	for state, hurries := range map[string]bool{"XX000": true, "57P03": false, "53300": false} {
		bubble(t, state, func(t *testing.T) {
			pool, mock := newMock(t)
			expectServerCheck(mock)
			expectAll(mock, deputies["asks"].sit)
			lookAbout.expect(mock, fault{})
			query(mock, "TryAsDeputy").WillReturnError(&pgconn.PgError{Code: state})
			expectServerCheck(mock)
			expectAll(mock, deputies["asks"].all())
			expectResign(mock)
			e, rec := newElector(t, pool, elector.WithTakeover(elector.Deputy), askEachSecond, elector.WithBackoff(time.Minute, time.Minute))
			resign(t, campaign(t, e))
			for _, c := range rec.Campaigns() {
				if c.Outcome == hooks.Failed && hurries != (c.Next < 350*time.Millisecond) {
					t.Errorf("the next attempt after %v", c.Next)
				}
			}
			wantFailures(t, rec, hooks.OpCampaign)
		})
	}
}

// A wait that ends too soon was cancelled, or the server permits no wait. The deputy tries instead.
func TestADeputyThatCannotWaitTries(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		expectAll(mock, deputies["waits"].sit)
		for _, free := range []bool{false, true} {
			expectAll(mock, []statement{{"WaitLock", nil}, notHeld})
			if !free {
				lookAbout.expect(mock, fault{})
			}
			query(mock, "TryAsDeputy").WillReturnRows(row(free, sessionPID))
		}
		granted.expect(mock, fault{})
		expectResign(mock)
		e, rec := newElector(t, pool, elector.WithTakeover(elector.Wait), askEachSecond)
		resign(t, campaign(t, e))
		wantFailures(t, rec)
	})
}

// The seat, on the first backend, is released.
func TestAWaitingDeputyThatIsMovedByAPoolerIsNotElected(t *testing.T) {
	waits := deputies["waits"]
	for name, expect := range map[string]func(mock sqlmock.Sqlmock){
		"before it prepares its wait": func(mock sqlmock.Sqlmock) {
			expectAll(mock, waits.sit[:1])
			query(mock, "PrepareWait").WillReturnRows(row(sessionPID+1, false, 14, "1.5"))
		},
		"before it waits": func(mock sqlmock.Sqlmock) {
			expectAll(mock, waits.sit)
			mock.ExpectExec("-- name: WaitLock ").WillReturnError(&pgconn.PgError{Code: "42704", Message: "unrecognized configuration parameter"})
		},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectServerCheck(mock)
			expect(mock)
			expectEviction(mock, sessionPID, orders)
			e, _ := newElector(t, pool, elector.WithTakeover(elector.Wait), elector.WithMaxAttempts(1))
			wantError(t, e.Run(patience(t), nil), elector.ErrSessionPooled, elector.ErrGaveUp)
		})
	}
}

// A leader whose deputy may wait closes its connection a moment after the release, so that the
// server first serves the deputy. If the release failed, it closes the connection at once.
func TestALeaderLetsAWaitingDeputyGoFirst(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		graceful bool
		took     time.Duration
	}{
		"released":     {nil, true, 10 * time.Millisecond},
		"in doubt":     {errPlain, true, 0},
		"not released": {nil, false, 0},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			expectAll(mock, []statement{{"PREPARE Unlock", nil}})
			if c.graceful {
				query(mock, "Unlock").WillReturnRows(row(true)).WillReturnError(c.err)
			}
			e, _ := newElector(t, pool, elector.WithTakeover(elector.Wait), elector.WithGracefulRelease(c.graceful))
			ctx := within(t, time.Second)
			start := time.Now()
			wantError(t, e.Run(ctx, nil), context.DeadlineExceeded)
			wantTook(t, start, time.Second+c.took)
			wantInUse(t, pool, 1) // the session is discarded in any case
		})
	}
}

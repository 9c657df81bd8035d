package sqlmock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// A shared session is set up as a parked one is, and then asks for all its
// elections at once.

// many is a session with elections whose keys are 1, 2, 3 …
type many struct {
	*elector.Session
	pool *sql.DB
	mock sqlmock.Sqlmock
	all  []*elector.Elector
	rec  *hookstest.Recorder
}

func newMany(t *testing.T, n int64) *many {
	t.Helper()
	pool, mock := newMock(t)
	return newManyOn(t, pool, mock, n)
}

func newManyOn(t *testing.T, pool *sql.DB, mock sqlmock.Sqlmock, n int64) *many {
	t.Helper()
	m := &many{pool: pool, mock: mock, rec: hookstest.NewRecorder()}
	var err error
	// A heartbeat comes later than all that these tests count.
	m.Session, err = elector.NewSession(pool, elector.WithCandidateID("web-1"), elector.WithHeartbeatInterval(3500*time.Millisecond),
		elector.WithHooks(hooks.Funcs{Elected: m.rec.OnElected, Demoted: m.rec.OnDemoted, Error: m.rec.OnError, Campaign: m.rec.OnCampaign}))
	wantError(t, err)
	for key := range n {
		e, err := m.Elector("election", elector.WithKey(key+1))
		wantError(t, err)
		m.all = append(m.all, e)
	}
	t.Cleanup(func() {
		wantError(t, m.Close(context.Background()))
		for _, violation := range m.rec.Violations() {
			t.Error(violation)
		}
		settle()
		if n := pool.Stats().InUse; n != 1 { // the mock's own
			t.Errorf("%d connections are in use", n)
		}
	})
	return m
}

// rows is an answer of some rows.
func rows(all ...[]driver.Value) *sqlmock.Rows {
	if len(all) == 0 {
		return sqlmock.NewRows([]string{"none"})
	}
	answer := sqlmock.NewRows(make([]string, len(all[0])))
	for _, one := range all {
		answer.AddRow(one...)
	}
	return answer
}

// opened expects that the session is set up.
func (m *many) opened() {
	expectServerCheck(m.mock)
	query(m.mock, "PrepareWait").WillReturnRows(row(sessionPID, false, 14))
	query(m.mock, "InTransaction").WillReturnRows(row(false))
}

// elected expects that those are granted, and no others.
func (m *many) elected(token int64, keys ...int64) {
	var tried, held, passed [][]driver.Value
	for _, key := range keys {
		tried = append(tried, values(key, "granted"))
		held = append(held, values(key))
		passed = append(passed, values(key, true, token, noEpoch))
	}
	query(m.mock, "TryLocksOrSeeOffers").WillReturnRows(rows(tried...))
	query(m.mock, "HeldLocks").WillReturnRows(rows(held...))
	query(m.mock, "Tokens").WillReturnRows(rows(passed...))
}

// barred expects that one is granted, and its barrier not passed.
func (m *many) barred(key int64) {
	query(m.mock, "TryLocksOrSeeOffers").WillReturnRows(rows(values(key, "granted")))
	query(m.mock, "HeldLocks").WillReturnRows(rows(values(key)))
	query(m.mock, "Tokens").WillReturnRows(rows(values(key, false, int64(0), noEpoch)))
	query(m.mock, "EndOverdue").WillReturnRows(rows())
}

func (m *many) campaign(t *testing.T, i int) *elector.Term {
	t.Helper()
	return campaign(t, m.all[i])
}

// manyAttempt is every statement of a batch that is granted.
var manyAttempt = []statement{
	{"PrepareWait", values(sessionPID, false, 14)},
	{"InTransaction", values(false)},
	{"TryLocksOrSeeOffers", values(int64(1), "granted")},
	{"HeldLocks", values(int64(1))},
	{"Tokens", values(int64(1), true, int64(745), noEpoch)},
}

func TestAnyFaultOfABatchFailsItAndTheNextOneStartsAnew(t *testing.T) {
	for i, s := range manyAttempt {
		for _, f := range s.faults() {
			bubble(t, s.name+"/"+f.name, func(t *testing.T) {
				m := newMany(t, 1)
				expectServerCheck(m.mock)
				for _, before := range manyAttempt[:i] {
					before.expect(m.mock, fault{})
				}
				s.expect(m.mock, f)
				if s.name == "TryLocksOrSeeOffers" && (f.err == errPgx || f.err == errPq) { // the server has spoken: the session lives
					query(m.mock, "HeldLocks").WillReturnRows(rows())
				} else {
					m.opened()
				}
				m.elected(746, 1)
				expectResign(m.mock)
				term := m.campaign(t, 0)
				if term.Token() != 746 {
					t.Errorf("token %d", term.Token())
				}
				resign(t, term)
				wantFailures(t, m.rec, hooks.OpCampaign)
				err := m.rec.Failures()[0].Err
				if f.after == never && !errors.Is(err, elector.ErrNoAnswer) && !errors.Is(err, elector.ErrLeaseExpired) {
					t.Errorf("got %v", err)
				}
				if f.want != nil {
					wantError(t, err, f.want)
				}
			})
		}
	}
}

// A fault that comes when another election is led already ends that term too,
// unless the server has answered: then nothing is in doubt.
func TestAFaultOfABatchEndsTheOtherTermsOnlyIfTheSessionIsInDoubt(t *testing.T) {
	for name, f := range map[string]struct {
		statement string
		err       error
		ends      bool
	}{
		"an attempt that the server refuses": {"TryLocksOrSeeOffers", errPgx, false},
		"a full lock table":                  {"TryLocksOrSeeOffers", errFull, false},
		"barriers in a full lock table":      {"Tokens", errFull, false},
		"a broken attempt":                   {"TryLocksOrSeeOffers", driver.ErrBadConn, true},
		"a broken look at pg_locks":          {"HeldLocks", errPlain, true},
		"broken barriers":                    {"Tokens", errPlain, true},
	} {
		bubble(t, name, func(t *testing.T) {
			m := newMany(t, 2)
			m.opened()
			m.elected(1, 1)
			first := m.campaign(t, 0)
			for _, s := range []statement{{"TryLocksOrSeeOffers", values(int64(2), "granted")}, {"HeldLocks", values(int64(2))}, {"Tokens", values(int64(2), true, int64(2), noEpoch)}} {
				if s.name != f.statement {
					s.expect(m.mock, fault{})
					continue
				}
				query(m.mock, s.name).WillReturnError(f.err)
				break
			}
			switch {
			case f.ends:
				m.opened()
			case f.statement == "TryLocksOrSeeOffers":
				query(m.mock, "HeldLocks").WillReturnRows(rows(values(int64(1))))
			default:
				expectResign(m.mock) // what was granted is given back
			}
			m.elected(3, 2)
			second := m.campaign(t, 1)
			if first.Valid() == f.ends || second.Token() != 3 {
				t.Errorf("the first term is valid: %t; the token is %d", first.Valid(), second.Token())
			}
			wantError(t, m.rec.Failures()[len(m.rec.Failures())-1].Err, f.err)
			if f.err == errFull {
				wantError(t, m.rec.Failures()[0].Err, elector.ErrLockTableFull)
			}
			if !f.ends {
				expectResign(m.mock)
				resign(t, first)
			}
			expectResign(m.mock)
			resign(t, second)
		})
	}
}

// The lock table is full half-way: what was granted by then is held, and led.
func TestThoseThatAFullLockTableHadRoomForAreLed(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 4)
		m.opened()
		query(m.mock, "TryLocksOrSeeOffers").WillReturnError(errFull)
		query(m.mock, "HeldLocks").WillReturnRows(rows(values(int64(1)), values(int64(2)), values(int64(99)))) // 99 is of a watch, say
		query(m.mock, "Tokens").WillReturnRows(rows(values(int64(1), true, int64(5), noEpoch), values(int64(2), true, int64(5), noEpoch)))
		got := make(chan *elector.Term, 4)
		ctx, stop := context.WithCancel(patience(t))
		defer stop()
		for _, e := range m.all {
			go func() {
				if term, err := e.Campaign(ctx); err == nil {
					got <- term
				}
			}()
		}
		terms := []*elector.Term{<-got, <-got}
		settle()
		stop() // the others would try again
		settle()
		wantFailures(t, m.rec, hooks.OpCampaign, hooks.OpCampaign)
		for _, f := range m.rec.Failures() {
			wantError(t, f.Err, elector.ErrLockTableFull, errFull)
		}
		expectResign(m.mock)
		expectResign(m.mock)
		for _, term := range terms {
			resign(t, term)
		}
	})
}

func TestAShareOfWhatWasGrantedIsGivenBackForTheBarriers(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 3)
		m.opened()
		query(m.mock, "TryLocksOrSeeOffers").WillReturnRows(rows(values(int64(1), "granted"), values(int64(2), "granted"), values(int64(3), "granted")))
		query(m.mock, "HeldLocks").WillReturnRows(rows(values(int64(1)), values(int64(2)), values(int64(3))))
		query(m.mock, "Tokens").WillReturnError(errFull)
		expectResign(m.mock)
		expectResign(m.mock)
		query(m.mock, "Tokens").WillReturnRows(rows(values(int64(1), true, int64(7), noEpoch), values(int64(2), true, int64(7), noEpoch), values(int64(3), true, int64(7), noEpoch)))
		led := make(chan *elector.Term, 3)
		ctx, stop := context.WithCancel(patience(t))
		defer stop()
		for _, e := range m.all {
			go func() {
				if term, err := e.Campaign(ctx); err == nil {
					led <- term
				}
			}()
		}
		term := <-led
		settle()
		stop() // the others would try again
		settle()
		wantFailures(t, m.rec, hooks.OpCampaign, hooks.OpCampaign)
		expectResign(m.mock)
		resign(t, term)
	})
}

// The barrier of one is not passed yet: it alone is asked for again, and often.
func TestAnElectionAtItsBarrierIsAskedForAlone(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 2)
		m.opened()
		query(m.mock, "TryLocksOrSeeOffers").WillReturnRows(rows(values(int64(1), "granted"), values(int64(2), "busy")))
		query(m.mock, "HeldLocks").WillReturnRows(rows(values(int64(1))))
		query(m.mock, "Tokens").WillReturnRows(rows(values(int64(1), false, int64(0), noEpoch)))
		query(m.mock, "EndOverdue").WillReturnRows(rows())
		for range 3 {
			query(m.mock, "HeldLocks").WillReturnRows(rows(values(int64(1))))
			query(m.mock, "Tokens").WithArgs(lacks(`"key":2`)).WillReturnRows(rows(values(int64(1), false, int64(0), noEpoch)))
			query(m.mock, "EndOverdue").WillReturnRows(rows())
		}
		query(m.mock, "HeldLocks").WillReturnRows(rows(values(int64(1))))
		query(m.mock, "Tokens").WillReturnRows(rows(values(int64(1), true, int64(9), noEpoch)))
		other, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _, _ = m.all[1].Campaign(other) }()
		start := time.Now()
		term := m.campaign(t, 0)
		if took := time.Since(start); took > 300*time.Millisecond || term.Token() != 9 {
			t.Errorf("elected after %v with token %d", took, term.Token())
		}
		expectResign(m.mock)
		resign(t, term)
	})
}

func TestAnElectionThatIsCancelledAtItsBarrierIsGivenBackBeforeItIsAskedForAgain(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 1)
		m.opened()
		m.barred(1)
		expectResign(m.mock)
		m.elected(2, 1)
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer stop()
		_, err := m.all[0].Campaign(ctx)
		wantError(t, err, context.DeadlineExceeded)
		term := m.campaign(t, 0)
		expectResign(m.mock)
		resign(t, term)
		wantFailures(t, m.rec)
	})
}

// The session is lost while one election waits at its barrier on it: on the next
// session its lock is asked for again.
func TestALockThatWasLostAtItsBarrierIsAskedForAgain(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 2)
		m.opened()
		m.elected(1, 2)
		other := m.campaign(t, 1)
		m.barred(1)
		query(m.mock, "HoldsLock").WillReturnError(errTerminated)
		m.opened()
		m.elected(3, 1)
		got := make(chan *elector.Term)
		go func() {
			term, err := m.all[0].Campaign(patience(t))
			wantError(t, err)
			got <- term
		}()
		time.Sleep(20 * time.Millisecond)
		wantError(t, other.Verify(t.Context()), elector.ErrNotLeader, elector.ErrSessionLost)
		term := <-got
		if term.Token() != 3 {
			t.Errorf("token %d", term.Token())
		}
		expectResign(m.mock)
		resign(t, term)
		wantError(t, other.Resign(t.Context()), elector.ErrNotLeader)
		for _, f := range m.rec.Failures() {
			if f.Permanent {
				t.Errorf("reported %+v", f)
			}
		}
	})
}

func TestASessionWhoseGrantsDoNotShowIsRefused(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 1)
		m.opened()
		query(m.mock, "TryLocksOrSeeOffers").WillReturnRows(row(int64(1), "granted"))
		query(m.mock, "HeldLocks").WillReturnRows(rows())
		wantError(t, m.all[0].Run(patience(t), nil), elector.ErrUnsupportedServer)
	})
}

func TestAnUnlockInDoubtEndsTheSession(t *testing.T) {
	for _, f := range []fault{anyError[0], anyError[1], noAnswer} {
		bubble(t, f.name, func(t *testing.T) {
			m := newMany(t, 2)
			m.opened()
			m.elected(1, 1)
			first := m.campaign(t, 0)
			m.elected(1, 2)
			second := m.campaign(t, 1)
			statement{"Unlock", values(true)}.expect(m.mock, f)
			wantError(t, first.Resign(t.Context()), elector.ErrSessionLost)
			<-second.Context().Done()
			if f.after != never { // or the lease runs out at that very moment
				wantError(t, context.Cause(second.Context()), elector.ErrSessionLost)
			}
			wantError(t, second.Resign(t.Context()), elector.ErrNotLeader)
		})
	}
}

func TestOneFailedHeartbeatEndsEveryTerm(t *testing.T) {
	for _, h := range heartbeatFaults {
		bubble(t, h.name, func(t *testing.T) {
			m := newMany(t, 2)
			m.opened()
			m.elected(1, 1)
			m.elected(1, 2)
			beat := heartbeat
			if h.answer != nil {
				beat = statement{"Ping", values(h.answer[0], h.answer[1])}
			}
			beat.expect(m.mock, h.fault)
			first, second := m.campaign(t, 0), m.campaign(t, 1)
			for _, term := range []*elector.Term{first, second} {
				<-term.Context().Done()
				wantError(t, context.Cause(term.Context()), h.want...)
				if term.Valid() {
					t.Error("still valid")
				}
				wantError(t, term.Resign(t.Context()), elector.ErrNotLeader)
			}
			if a, b := m.rec.Demoted()[0].At, m.rec.Demoted()[1].At; !a.Equal(b) {
				t.Errorf("the terms ended at %v and %v", a, b)
			}
			wantDemoted(t, m.rec, h.reason, h.reason)
		})
	}
}

// A term waits for its unlock for as long as the calls before it are answered.
func TestAQueueOfUnlocksIsNoExpiry(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 10)
		m.opened()
		keys := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
		m.elected(1, keys...)
		done := make(chan struct{}, len(keys))
		for _, e := range m.all {
			go func() {
				campaign(t, e)
				done <- struct{}{}
			}()
		}
		for range keys {
			<-done
		}
		for range keys {
			query(m.mock, "Unlock").WillDelayFor(time.Second).WillReturnRows(row(true))
		}
		start := time.Now()
		wantError(t, m.Close(t.Context()))
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("took %v", took)
		}
		wantFailures(t, m.rec)
	})
}

func TestCloseOfASessionThatIsNotAnsweredIsBoundedByItsContext(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 1)
		m.opened()
		m.elected(1, 1)
		term := m.campaign(t, 0)
		query(m.mock, "Unlock").WillDelayFor(never).WillReturnRows(row(true))
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		start := time.Now()
		wantError(t, m.Close(ctx), context.DeadlineExceeded)
		if took := time.Since(start); took != time.Second || term.Valid() {
			t.Errorf("took %v, and the term is valid: %t", took, term.Valid())
		}
		wantError(t, m.Close(t.Context()))
		if took := time.Since(start); took > 7*time.Second+grace {
			t.Errorf("took %v", took)
		}
	})
}

// Nothing is asked any more by a session that was closed while it gathered wishes.
func TestASessionThatIsClosedAsksNothing(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 2)
		m.opened()
		m.elected(1, 1)
		first := m.campaign(t, 0)
		time.AfterFunc(2*time.Millisecond, func() {
			expectResign(m.mock)
			wantError(t, m.Close(context.Background()))
		})
		_, err := m.all[1].Campaign(patience(t))
		wantError(t, err, elector.ErrStopped)
		<-first.Context().Done()
		wantError(t, context.Cause(first.Context()), elector.ErrStopped)
		wantFailures(t, m.rec)
	})
}

// A Run ends at once, without waiting for a retry interval when there is nothing to retry,
// and no hook is told of a failure.
func TestCloseEndsARun(t *testing.T) {
	for name, expect := range map[string]func(*many){
		"that follows": func(m *many) { query(m.mock, "TryLocksOrSeeOffers").WillReturnRows(rows(values(int64(1), "busy"))) },
		"that leads":   func(m *many) { m.elected(1, 1); expectResign(m.mock) },
	} {
		bubble(t, name, func(t *testing.T) {
			m := newMany(t, 1)
			m.opened()
			expect(m)
			ended := make(chan error, 1)
			go func() { ended <- m.all[0].Run(context.WithoutCancel(t.Context()), nil) }()
			time.Sleep(100 * time.Millisecond)
			start := time.Now()
			wantError(t, m.Close(t.Context()))
			wantError(t, <-ended, elector.ErrStopped)
			if took := time.Since(start); took > grace/10 {
				t.Errorf("took %v", took)
			}
			wantFailures(t, m.rec)
		})
	}
}

func TestASessionThatWasNeverUsedIsClosedAsOftenAsAnybodyLikes(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 1)
		for range 3 {
			wantError(t, m.Close(t.Context()))
		}
		_, err := m.all[0].Campaign(t.Context())
		wantError(t, err, elector.ErrStopped)
	})
}

// What concerns no election is told to the session's own hooks, and Close waits for them.
func TestCloseWaitsForTheHooksOfTheSession(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		refused := &pgconn.PgError{Code: "22023", Message: "must be set to 0 on this platform"}
		names := sessionSettings(t)
		pool, mock := newMock(t)
		var told atomic.Bool
		s, err := elector.NewSession(pool, elector.WithHooks(hooks.Funcs{Error: func(context.Context, hooks.Failure) {
			time.Sleep(5 * time.Second)
			told.Store(true)
		}}))
		wantError(t, err)
		e, err := s.Elector("orders")
		wantError(t, err)
		expectEachTried(mock, names, names[len(names)-1], refused)
		query(mock, "PrepareWait").WillReturnRows(row(sessionPID, false, 14))
		query(mock, "InTransaction").WillReturnRows(row(false))
		query(mock, "TryLocksOrSeeOffers").WillReturnRows(rows(values(orders, "busy")))
		_, _, err = e.TryCampaign(t.Context())
		wantError(t, err)
		wantError(t, s.Close(t.Context()))
		if !told.Load() {
			t.Error("closed before the hook has returned")
		}
	})
}

// The first attempt of a campaign is not kept waiting for the next batch, also if the
// elector has campaigned or led before.
func TestTheFirstAttemptOfEachCampaignIsMadeAtOnce(t *testing.T) {
	at := func(t *testing.T, campaign func()) {
		t.Helper()
		start := time.Now()
		campaign()
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("took %v", took)
		}
	}
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 1)
		busy := func() { query(m.mock, "TryLocksOrSeeOffers").WillReturnRows(rows(values(int64(1), "busy"))) }
		try := func() { _, _, err := m.all[0].TryCampaign(t.Context()); wantError(t, err) }
		m.opened()
		busy()
		at(t, try)
		busy()
		at(t, try)
		busy()
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		_, err := m.all[0].Campaign(ctx)
		wantError(t, err, context.DeadlineExceeded)
		for token := range int64(2) {
			m.elected(token, 1)
			expectResign(m.mock)
			at(t, func() { resign(t, m.campaign(t, 0)) })
		}
	})
}

// What an election held at its barrier is given back once, when its campaign ends while
// that is under way as well.
func TestALockIsGivenBackOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 2)
		m.opened()
		m.elected(1, 2)
		other := m.campaign(t, 1)
		query(m.mock, "TryLocksOrSeeOffers").WillReturnRows(rows(values(int64(1), "granted")))
		query(m.mock, "HeldLocks").WillReturnRows(rows(values(int64(1))))
		query(m.mock, "Tokens").WillReturnError(errFull)
		query(m.mock, "Unlock").WillDelayFor(200 * time.Millisecond).WillReturnRows(row(true))
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		_, err := m.all[0].Campaign(ctx)
		wantError(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		if !other.Valid() {
			t.Error("the session was lost")
		}
		expectResign(m.mock)
		resign(t, other)
		wantFailures(t, m.rec)
	})
}

func TestALockThatCannotBeGivenBackIsReported(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 1)
		m.opened()
		m.barred(1)
		query(m.mock, "Unlock").WillReturnError(errPlain)
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer stop()
		_, err := m.all[0].Campaign(ctx)
		wantError(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		wantFailures(t, m.rec, hooks.OpRelease)
		if err := m.rec.Failures()[0].Err; !errors.Is(err, errPlain) || !contains(err, `"election"`) {
			t.Errorf("got %v", err)
		}
	})
}

// A session that was lost holds nothing that could be given back.
func TestALockThatWasLostIsNotGivenBack(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 2)
		m.opened()
		m.elected(1, 2)
		other := m.campaign(t, 1)
		m.barred(1)
		query(m.mock, "HoldsLock").WillReturnError(errTerminated)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := m.all[0].Campaign(ctx); ended <- err }()
		time.Sleep(20 * time.Millisecond)
		wantError(t, other.Verify(t.Context()), elector.ErrSessionLost)
		stop()
		wantError(t, <-ended, context.Canceled)
		time.Sleep(2 * time.Second)
		wantFailures(t, m.rec, hooks.OpHeartbeat)
		wantError(t, other.Resign(t.Context()), elector.ErrNotLeader)
	})
}

// An attempt of which the server says that it ended the session tells that, and not
// what the next statement fails by.
func TestASessionThatTheServerEndsInABatchSaysSo(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 1)
		m.opened()
		query(m.mock, "TryLocksOrSeeOffers").WillReturnError(errTerminated)
		m.opened()
		m.elected(3, 1)
		expectResign(m.mock)
		resign(t, m.campaign(t, 0))
		wantFailures(t, m.rec, hooks.OpCampaign)
		wantError(t, m.rec.Failures()[0].Err, errTerminated)
	})
}

// Who leads the others is not asked of a server whose lock table is full.
func TestAFailedBatchAsksNotWhoLeads(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		s, err := elector.NewSession(pool, elector.WithHooks(hookstest.NewRecorder()))
		wantError(t, err)
		e, err := s.Elector("orders")
		wantError(t, err)
		expectServerCheck(mock)
		query(mock, "PrepareWait").WillReturnRows(row(sessionPID, false, 14))
		query(mock, "InTransaction").WillReturnRows(row(false))
		query(mock, "TryLocksOrSeeOffers").WillReturnError(errFull)
		query(mock, "HeldLocks").WillReturnRows(rows())
		_, _, err = e.TryCampaign(t.Context())
		wantError(t, err, elector.ErrLockTableFull)
		wantError(t, s.Close(t.Context()))
	})
}

package sqlmock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/pgelector/pgelector/internal/shared"
)

// A shared session sets up its connection and then tries all its elections at once.

// many is a session with elections whose keys are 1, 2, 3 …
type many struct {
	*elector.Session
	pool *sql.DB
	mock sqlmock.Sqlmock
	all  []*elector.Elector
	rec  *hookstest.Recorder
}

// lifeKey is the key of the session's life lock.
var lifeKey = shared.LifeKey("web-1", sessionPID)

func newMany(t *testing.T, n int64, opts ...elector.SessionOption) *many {
	t.Helper()
	pool, mock := newMock(t)
	return newManyOn(t, pool, mock, n, opts...)
}

func newManyOn(t *testing.T, pool *sql.DB, mock sqlmock.Sqlmock, n int64, opts ...elector.SessionOption) *many {
	t.Helper()
	m := &many{pool: pool, mock: mock, rec: hookstest.NewRecorder()}
	var err error
	// No heartbeat or validation comes while these tests count statements.
	m.Session, err = elector.NewSession(pool, append([]elector.SessionOption{elector.WithCandidateID("web-1"), elector.WithTakeover(elector.Poll),
		elector.WithHeartbeatInterval(3500 * time.Millisecond), elector.WithValidateInterval(0),
		elector.WithHooks(hooks.Funcs{Elected: m.rec.OnElected, Demoted: m.rec.OnDemoted, Error: m.rec.OnError, Campaign: m.rec.OnCampaign})}, opts...)...)
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
		wantInUse(t, pool, 1)
	})
	return m
}

// rows returns an answer of some rows.
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

// opened expects the set-up of the session.
func (m *many) opened() {
	expectServerCheck(m.mock)
	expectAll(m.mock, manyAttempt[:3])
}

// elected expects a batch in which only these keys are granted.
func (m *many) elected(token int64, keys ...int64) {
	tried, held, passed := answersOf(token, keys...)
	query(m.mock, "TryLocks").WillReturnRows(rows(tried...))
	query(m.mock, "HeldLocks").WillReturnRows(rows(held...))
	query(m.mock, "Tokens").WillReturnRows(rows(passed...))
	wasGranted.Store(m.mock, true)
}

// answersOf returns the answers of the three statements of such a batch.
func answersOf(token int64, keys ...int64) (tried, held, passed [][]driver.Value) {
	for _, key := range keys {
		tried = append(tried, values(key, "granted", sessionPID))
		held = append(held, values(key))
		passed = append(passed, values(key, true, timelineOne|token, noEpoch, sessionPID))
	}
	return tried, held, passed
}

// barred expects a batch in which the key is granted, but its barrier is not passed.
func (m *many) barred(key int64) {
	query(m.mock, "TryLocks").WillReturnRows(rows(values(key, "granted", sessionPID)))
	query(m.mock, "HeldLocks").WillReturnRows(rows(values(key)))
	query(m.mock, "Tokens").WillReturnRows(rows(values(key, false, timelineOne|1, noEpoch, sessionPID)))
	query(m.mock, "EndOverdue").WillReturnRows(rows())
}

func (m *many) campaign(t *testing.T, i int) *elector.Term {
	t.Helper()
	return campaign(t, m.all[i])
}

// manyAttempt has the statements of a batch that is granted.
var manyAttempt = append([]statement{waitSetup, {"InTransaction", values(false)}, {"TryPair", values(true)}}, grants(1, 745)...)

// grants returns the statements of a batch for one key, after the set-up of the session.
func grants(key, token int64) []statement {
	tried, held, passed := answersOf(token, key)
	return []statement{{"TryLocks", tried[0]}, {"HeldLocks", held[0]}, {"Tokens", passed[0]}}
}

func TestAnyFaultOfABatchFailsItAndTheNextOneStartsAnew(t *testing.T) {
	for i, s := range manyAttempt {
		for _, f := range append(s.faults(), fault{name: "terminated", err: errTerminated, want: errTerminated}) {
			bubble(t, s.name+"/"+f.name, func(t *testing.T) {
				m := newMany(t, 1)
				expectServerCheck(m.mock)
				expectAll(m.mock, manyAttempt[:i])
				s.expect(m.mock, f)
				switch answered := f.err == errPgx || f.err == errPq; { // then the session lives
				case answered && s.name == "TryLocks":
					query(m.mock, "HeldLocks").WillReturnRows(rows())
				case answered && s.name == "Tokens":
					expectUnlock(m.mock, 1)
				default:
					m.opened()
				}
				m.elected(746, 1)
				expectResign(m.mock)
				term := m.campaign(t, 0)
				if term.Token() != timelineOne|746 {
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

// The key of the life lock can be guessed: a stranger who holds it does so for this session,
// and not for the next, and ends no campaign.
func TestALifeLockThatAStrangerHoldsEndsNoCampaign(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 1)
		expectServerCheck(m.mock)
		expectAll(m.mock, manyAttempt[:2])
		query(m.mock, "TryPair").WillReturnRows(row(false))
		m.opened()
		m.elected(745, 1)
		expectResign(m.mock)
		resign(t, m.campaign(t, 0))
		wantFailures(t, m.rec, hooks.OpCampaign)
	})
}

// An error that the server returned leaves the session usable.
func TestAFaultOfABatchEndsTheOtherTermsOnlyIfTheSessionIsInDoubt(t *testing.T) {
	for _, c := range []struct {
		statement int // of grants
		err       error
		ends      bool
	}{{0, errPgx, false}, {0, errFull, false}, {2, errPgx, false}, {2, errFull, false}, {0, driver.ErrBadConn, true}, {1, errPlain, true}, {2, errPlain, true}} {
		all := grants(2, 2)
		bubble(t, all[c.statement].name+"/"+c.err.Error(), func(t *testing.T) {
			m := newMany(t, 2)
			m.opened()
			m.elected(1, 1)
			first := m.campaign(t, 0)
			expectAll(m.mock, all[:c.statement])
			all[c.statement].expect(m.mock, fault{err: c.err})
			switch {
			case c.ends:
				m.opened()
			case c.statement == 0:
				query(m.mock, "HeldLocks").WillReturnRows(rows(values(int64(1))))
			default:
				expectResign(m.mock) // the granted lock is released
			}
			m.elected(3, 2)
			second := m.campaign(t, 1)
			if first.Valid() == c.ends || second.Token() != timelineOne|3 {
				t.Errorf("the first term is valid: %t; the token is %d", first.Valid(), second.Token())
			}
			wantError(t, m.rec.Failures()[len(m.rec.Failures())-1].Err, c.err)
			if c.err == errFull {
				wantError(t, m.rec.Failures()[0].Err, elector.ErrLockTableFull)
			}
			if !c.ends {
				expectResign(m.mock)
				resign(t, first)
			}
			expectResign(m.mock)
			resign(t, second)
		})
	}
}

func TestWithAFullLockTableAsManyElectionsAsFitAreLed(t *testing.T) {
	for name, c := range map[string]struct {
		led    int64
		failed int64
		expect func(sqlmock.Sqlmock)
	}{
		"of the locks": {2, 2, func(mock sqlmock.Sqlmock) {
			_, held, passed := answersOf(5, 1, 2)
			query(mock, "TryLocks").WillReturnError(errFull)
			query(mock, "HeldLocks").WillReturnRows(rows(append(held, values(int64(99)))...)) // 99 is no election's
			query(mock, "Tokens").WillReturnRows(rows(passed...))
		}},
		"of the barriers": {1, 2, func(mock sqlmock.Sqlmock) {
			tried, held, passed := answersOf(5, 1, 2, 3)
			query(mock, "TryLocks").WillReturnRows(rows(tried...))
			query(mock, "HeldLocks").WillReturnRows(rows(held...))
			query(mock, "Tokens").WillReturnError(errFull)
			// Two of them make room for the third.
			query(mock, "UnlockMany").WillReturnRows(rows(values(int64(1), true), values(int64(2), true), values(int64(3), true)))
			query(mock, "EndOverdue").WillReturnRows(rows())
			query(mock, "HeldLocks").WillReturnRows(rows(held...))
			query(mock, "Tokens").WillReturnRows(rows(passed...))
		}},
	} {
		bubble(t, name, func(t *testing.T) {
			m := newMany(t, c.led+c.failed)
			m.opened()
			c.expect(m.mock)
			got := make(chan *elector.Term, c.led+c.failed)
			ctx, stop := context.WithCancel(patience(t))
			defer stop()
			for _, e := range m.all {
				go func() {
					if term, err := e.Campaign(ctx); err == nil {
						got <- term
					}
				}()
			}
			var terms []*elector.Term
			for range c.led {
				terms = append(terms, <-got)
			}
			settle()
			stop() // the others would try again
			settle()
			if len(got) > 0 || int64(len(m.rec.Failures())) != c.failed {
				t.Errorf("%d more are led; failures %+v", len(got), m.rec.Failures())
			}
			for _, f := range m.rec.Failures() {
				wantError(t, f.Err, elector.ErrLockTableFull, errFull)
			}
			for _, term := range terms {
				expectResign(m.mock)
				resign(t, term)
			}
		})
	}
}

func TestAnElectionAtItsBarrierIsAskedForAlone(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 2)
		m.opened()
		query(m.mock, "TryLocks").WillReturnRows(rows(values(int64(1), "granted", sessionPID), values(int64(2), "busy", sessionPID)))
		for range 4 {
			query(m.mock, "HeldLocks").WillReturnRows(rows(values(int64(1))))
			query(m.mock, "Tokens").WithArgs(lacks(`"key":2`)).WillReturnRows(rows(values(int64(1), false, timelineOne|1, noEpoch, sessionPID)))
			query(m.mock, "EndOverdue").WillReturnRows(rows())
		}
		expectAll(m.mock, grants(1, 9)[1:])
		other, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _, _ = m.all[1].Campaign(other) }()
		start := time.Now()
		term := m.campaign(t, 0)
		if took := time.Since(start); took > 300*time.Millisecond || term.Token() != timelineOne|9 {
			t.Errorf("elected after %v with token %d", took, term.Token())
		}
		expectResign(m.mock)
		resign(t, term)
	})
}

func TestACampaignThatEndsAtItsBarrierReleasesItsLockOnce(t *testing.T) {
	for name, c := range map[string]struct {
		expect func(m *many)
		loses  bool // the session, in between
		failed []hooks.Op
	}{
		"in time":     {expect: func(m *many) { m.barred(1); expectResign(m.mock) }},
		"with a loss": {expect: func(m *many) { m.barred(1) }, loses: true, failed: []hooks.Op{hooks.OpHeartbeat}},
		"in doubt":    {expect: func(m *many) { m.barred(1); query(m.mock, "Unlock").WillReturnError(errPlain) }, failed: []hooks.Op{hooks.OpHeartbeat, hooks.OpRelease}},
		"while that is under way": {expect: func(m *many) {
			expectAll(m.mock, grants(1, 0)[:2])
			query(m.mock, "Tokens").WillReturnError(errFull)
			query(m.mock, "Unlock").WillDelayFor(200 * time.Millisecond).WillReturnRows(row(true))
		}},
	} {
		bubble(t, name, func(t *testing.T) {
			m := newMany(t, 2)
			m.opened()
			m.elected(1, 2)
			other := m.campaign(t, 1)
			c.expect(m)
			ctx := within(t, 20*time.Millisecond)
			if c.loses {
				query(m.mock, "HoldsLock").WillReturnError(errTerminated)
				time.AfterFunc(10*time.Millisecond, func() { wantError(t, other.Verify(t.Context()), elector.ErrSessionLost) })
			}
			_, err := m.all[0].Campaign(ctx)
			wantError(t, err, context.DeadlineExceeded)
			time.Sleep(2 * time.Second)
			settle()
			var failed []hooks.Op
			for _, f := range m.rec.Failures() {
				if failed = append(failed, f.Op); f.Op == hooks.OpRelease && !contains(f.Err, `"election"`) {
					t.Errorf("got %v", f.Err)
				}
			}
			if slices.Sort(failed); !slices.Equal(failed, c.failed) { // two elections report in either order
				t.Errorf("failures %q, want %q", failed, c.failed)
			}
			if other.Valid() != (c.failed == nil) {
				t.Errorf("the other term is valid: %t", other.Valid())
			}
			if other.Valid() {
				expectResign(m.mock)
				resign(t, other)
			}
			_ = other.Resign(t.Context())
		})
	}
}

// An unlock would be in doubt, and end the session: there is nothing to unlock.
func TestACampaignThatEndsWhileAnotherLeadsCostsItsSessionNoStatement(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 2)
		m.opened()
		m.elected(1, 2)
		term := m.campaign(t, 1)
		query(m.mock, "TryLocks").WillReturnRows(rows(values(int64(1), "busy", sessionPID)))
		_, err := m.all[0].Campaign(within(t, 20*time.Millisecond))
		wantError(t, err, context.DeadlineExceeded)
		time.Sleep(2 * time.Second) // the mock reports any statement
		expectResign(m.mock)
		resign(t, term)
	})
}

// campaigns campaigns for all elections at once.
func (m *many) campaigns(t *testing.T) []*elector.Term {
	t.Helper()
	terms := make([]*elector.Term, len(m.all))
	var elected sync.WaitGroup
	for i, e := range m.all {
		elected.Go(func() { terms[i] = campaign(t, e) })
	}
	elected.Wait()
	return terms
}

// The server frees the locks of a session that ended one by one: four batches find them, long
// before the retry interval has passed.
func TestTheLocksOfTheLargestSessionAreAskedForUntilTheServerHasFreedThem(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		const look = 100 * time.Millisecond
		m := newMany(t, 4, elector.WithTakeover(elector.Deputy), elector.WithDeputyInterval(look), elector.WithRetryInterval(3*time.Second))
		m.opened()
		query(m.mock, "TryLocks").WillReturnRows(rows(values(int64(1), "busy", sessionPID), values(int64(2), "busy", sessionPID), values(int64(3), "busy", sessionPID), values(int64(4), "busy", sessionPID)))
		query(m.mock, "LargestHolder").WillReturnRows(row(300, "web-2"))
		for _, ended := range []bool{false, true} {
			query(m.mock, "PairIsFree").WillReturnRows(row(ended, sessionPID))
		}
		for key := range m.all {
			m.elected(int64(key+5), int64(key+1))
			if key < len(m.all)-1 {
				query(m.mock, "LargestHolder").WillReturnRows(rows()) // nobody holds the others
			}
		}
		start := time.Now()
		terms := m.campaigns(t)
		if took := time.Since(start); t.Failed() || took > 5*look {
			t.Fatalf("all are led after %v", took)
		}
		for _, term := range terms {
			expectResign(m.mock)
			resign(t, term)
		}
	})
}

// Its life lock is free: it has just ended, or it is a session of one election, which has none.
func TestALargestSessionThatCannotBeWatchedIsFollowedByOneBatchSoon(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		const look = 100 * time.Millisecond
		m := newMany(t, 1, elector.WithTakeover(elector.Deputy), elector.WithDeputyInterval(look), elector.WithRetryInterval(3*time.Second))
		m.opened()
		query(m.mock, "TryLocks").WillReturnRows(rows(values(int64(1), "busy", sessionPID)))
		query(m.mock, "LargestHolder").WillReturnRows(row(300, "web-2"))
		query(m.mock, "PairIsFree").WillReturnRows(row(true, sessionPID))
		m.elected(5, 1)
		start := time.Now()
		term := m.campaign(t, 0)
		if took := time.Since(start); t.Failed() || took > 2*look {
			t.Fatalf("elected after %v", took)
		}
		expectResign(m.mock)
		resign(t, term)
	})
}

func TestASessionWhoseGrantsDoNotShowIsRefused(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 1)
		m.opened()
		query(m.mock, "TryLocks").WillReturnRows(row(int64(1), "granted", sessionPID))
		query(m.mock, "HeldLocks").WillReturnRows(rows())
		query(m.mock, "HoldsLock").WillReturnRows(row(false, sessionPID))
		expectTrial(m.mock, false)
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
			unlock.expect(m.mock, f)
			wantError(t, first.Resign(t.Context()), elector.ErrSessionLost)
			<-second.Context().Done()
			if f.after != never { // otherwise the lease expires at that moment
				wantError(t, context.Cause(second.Context()), elector.ErrSessionLost)
			}
			wantError(t, second.Resign(t.Context()), elector.ErrNotLeader)
		})
	}
}

// A pooler has given the session another backend, which its check did not find.
func TestABatchOnAnotherBackendElectsNobody(t *testing.T) {
	for name, expect := range map[string]func(sqlmock.Sqlmock){
		"granted": func(mock sqlmock.Sqlmock) {
			query(mock, "TryLocks").WillReturnRows(row(int64(1), "granted", sessionPID+1))
			expectEviction(mock, sessionPID+1, int64(1))
		},
		"busy": func(mock sqlmock.Sqlmock) {
			query(mock, "TryLocks").WillReturnRows(row(int64(1), "busy", sessionPID+1))
		},
		"verified, after its own has ended": func(mock sqlmock.Sqlmock) {
			query(mock, "TryLocks").WillReturnRows(row(int64(1), "granted", sessionPID))
			query(mock, "HeldLocks").WithArgs(sessionPID).WillReturnRows(rows())
			query(mock, "HoldsLock").WillReturnRows(row(false, sessionPID+1))
		},
		"given its token": func(mock sqlmock.Sqlmock) {
			query(mock, "TryLocks").WillReturnRows(row(int64(1), "granted", sessionPID))
			query(mock, "HeldLocks").WithArgs(sessionPID).WillReturnRows(row(int64(1)))
			query(mock, "Tokens").WillReturnRows(row(int64(1), true, timelineOne|745, noEpoch, sessionPID+1))
		},
	} {
		bubble(t, name, func(t *testing.T) {
			m := newMany(t, 1)
			m.opened()
			m.mock.MatchExpectationsInOrder(false) // two backends may be terminated at the same time
			expect(m.mock)
			expectEviction(m.mock, sessionPID, lifeKey)
			m.opened()
			m.elected(746, 1)
			expectResign(m.mock)
			resign(t, m.campaign(t, 0))
			wantFailures(t, m.rec, hooks.OpCampaign)
			wantError(t, m.rec.Failures()[0].Err, elector.ErrSessionPooled)
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
			h.beat().expect(m.mock, h.fault)
			if slices.Contains(h.want, elector.ErrSessionPooled) { // another backend has the locks
				expectEviction(m.mock, sessionPID, lifeKey)
			}
			for _, term := range []*elector.Term{m.campaign(t, 0), m.campaign(t, 1)} {
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

// busy returns a session that leads the elections of these keys, and asks the server for a second whether it
// holds the first lock.
func busy(t *testing.T, keys ...int64) (*many, []*elector.Term) {
	t.Helper()
	m := newMany(t, int64(len(keys)))
	m.opened()
	m.elected(1, keys...)
	m.mock.MatchExpectationsInOrder(false)
	terms := m.campaigns(t)
	query(m.mock, "HoldsLock").WillDelayFor(time.Second).WillReturnRows(row(true, sessionPID))
	go func() { _ = terms[0].Verify(t.Context()) }()
	settle()
	return m, terms
}

// Close waits for the unlocks until its context ends. All that come while the session is busy
// are one statement. If that is not answered, the session ends with its validity.
func TestCloseWaitsForTheUnlocks(t *testing.T) {
	bubble(t, "that are slow", func(t *testing.T) {
		m, _ := busy(t, 1, 2, 3)
		query(m.mock, "UnlockMany").WillDelayFor(time.Second).WillReturnRows(rows(values(int64(1), true), values(int64(2), true), values(int64(3), true)))
		start := time.Now()
		wantError(t, m.Close(t.Context()))
		wantTook(t, start, 2*time.Second)
		wantFailures(t, m.rec)
	})
	bubble(t, "which fail", func(t *testing.T) {
		m, _ := busy(t, 1, 2, 3)
		query(m.mock, "UnlockMany").WillReturnError(errPlain)
		wantError(t, m.Close(t.Context()))
		for _, f := range m.rec.Failures() {
			wantError(t, f.Err, errPlain)
		}
		if n := len(m.rec.Failures()); n != 3 {
			t.Errorf("%d failures", n)
		}
	})
	bubble(t, "one of which was not held", func(t *testing.T) {
		m, terms := busy(t, 1, 2)
		query(m.mock, "UnlockMany").WillReturnRows(rows(values(int64(1), true), values(int64(2), false)))
		query(m.mock, "HoldsLock").WillReturnRows(row(false, sessionPID))
		failed := make(chan error, 1)
		go func() { failed <- terms[1].Resign(t.Context()) }()
		wantError(t, terms[0].Resign(t.Context())) // the server has said so, whatever became of the session
		wantError(t, <-failed, elector.ErrSessionLost)
	})
	bubble(t, "that are not answered", func(t *testing.T) {
		m := newMany(t, 1)
		m.opened()
		m.elected(1, 1)
		term := m.campaign(t, 0)
		unlock.expect(m.mock, noAnswer)
		ctx := within(t, time.Second)
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

func TestATermThatHasEndedCostsItsSessionNoStatement(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 1)
		m.opened()
		m.elected(1, 1)
		expectResign(m.mock)
		for range 10 {
			expectHeartbeat(m.mock)
		}
		term := m.campaign(t, 0)
		resign(t, term)
		for range 20 { // the mock reports any statement
			wantError(t, term.TransferTo(t.Context(), "web-2"), elector.ErrNoSuccessor, elector.ErrResigned)
		}
		time.Sleep(36 * time.Second)
	})
}

// One look is for all elections of a session. A lock that it does not
// show is checked once more, as it may have been released meanwhile.
func TestAValidationIsOfAllLocksOfASession(t *testing.T) {
	for name, gone := range map[string]bool{"gone": true, "only missed": false, "no room to look": false} {
		bubble(t, name, func(t *testing.T) {
			m := newMany(t, 3, elector.WithValidateInterval(34*time.Second))
			m.opened()
			m.elected(1, 1)
			m.elected(1, 2)
			m.elected(1, 3)
			for range 9 {
				expectHeartbeat(m.mock)
			}
			if name == "no room to look" {
				query(m.mock, "ValidateLocks").WillReturnError(errFull)
			} else {
				query(m.mock, "ValidateLocks").WillReturnRows(rows(values(1, 90), values(3, 95)))
				query(m.mock, "HoldsLock").WithArgs(sessionPID, 2).WillReturnRows(row(!gone, sessionPID))
			}
			var terms []*elector.Term
			for i := range m.all {
				terms = append(terms, m.campaign(t, i))
				settle()
			}
			time.Sleep(34500 * time.Millisecond)
			settle()
			for _, term := range terms {
				if term.Valid() == gone {
					t.Errorf("valid: %t", term.Valid())
				}
				if !gone {
					expectResign(m.mock)
					resign(t, term)
				}
			}
		})
	}
}

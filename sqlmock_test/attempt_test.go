package sqlmock_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// checkOf has the statements of one check of the server: questions to both connections, then these.
func checkOf(turns string) (all []statement) {
	for _, turn := range "ab" + turns {
		all = append(all, statement{"DescribeServer", values(map[rune]int{'a': firstPID, 'b': secondPID}[turn], false, 150000, "PostgreSQL 15", 0, false)})
	}
	return append(all, statement{"BEGIN", nil}, statement{"ApplySettings", values(11)}, statement{"ROLLBACK", nil})
}

// attempt has the statements of an attempt that is granted the lock.
var attempt = slices.Concat(checkOf(turns), []statement{
	{"TryLock", values("granted", true, sessionPID, 0, "")},
	{"Confirm", values(true, sessionPID, timelineOne|745, noEpoch, false, "")},
})

const (
	itsBegin    = 22
	itsSettings = 23
	itsTryLock  = 25
	itsConfirm  = 26
)

// expectAttemptUpTo expects the statements of an attempt up to i, which has the fault f.
func expectAttemptUpTo(mock sqlmock.Sqlmock, i int, f fault) {
	if i >= itsTryLock {
		passed.Store(mock, true)
	}
	expectAll(mock, attempt[:i])
	attempt[i].expect(mock, f)
}

func TestAnyFaultOfAnAttemptFailsItAndTheNextOneStartsAnew(t *testing.T) {
	for i, s := range attempt {
		for _, f := range s.faults() {
			bubble(t, s.name+"/"+f.name, func(t *testing.T) {
				pool, mock := newMock(t)
				e, rec := newElector(t, pool)
				expectAttemptUpTo(mock, i, f)
				term, elected, err := e.TryCampaign(t.Context())
				if term != nil || elected || err == nil {
					t.Fatalf("got %v, %v, %v", term, elected, err)
				}
				switch {
				case f.after == never:
					wantError(t, err, elector.ErrNoAnswer)
				case f.want != nil:
					wantError(t, err, f.want)
				}
				wantFailures(t, rec, hooks.OpCampaign)
				if got := rec.Failures()[0]; got.Attempt != 1 || got.Permanent || got.Err != err {
					t.Errorf("reported %+v", got)
				}
				if c := rec.Campaigns(); len(c) != 1 || c[0].Outcome != hooks.Failed || c[0].Next != 0 {
					t.Errorf("campaigns: %+v", c)
				}
				if n := pool.Stats().Idle; n > 1 && s.name == "TryLock" { // one of the check
					t.Errorf("%d connections went back to the pool, and one may hold the lock", n-1)
				}
				wantInUse(t, pool, 1)
				expectServerCheck(mock)
				if s.name == "Confirm" && f.after == never { // it may have waited at the barrier
					query(mock, "EndOverdue").WithArgs(orders, 10_000).WillReturnRows(row(1, true, ""))
				}
				expectElection(mock, 746)
				expectResign(mock)
				resign(t, campaign(t, e))
			})
		}
	}
}

func TestASlowAnswerInTimeIsNoFault(t *testing.T) {
	for i, s := range attempt {
		bubble(t, s.name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectAttemptUpTo(mock, i, slow)
			expectAll(mock, attempt[i+1:])
			expectResign(mock)
			e, rec := newElector(t, pool)
			resign(t, campaign(t, e))
			wantFailures(t, rec)
			wantDemoted(t, rec, hooks.Resigned)
		})
	}
}

// callOf has, for each statement of an attempt, the one from which it is retried: itself, or the
// beginning of the transaction that failed with it.
var callOf = map[int]int{0: 0, 1: 1, 2: 2, itsBegin - 1: itsBegin - 1, itsSettings: itsBegin, itsSettings + 1: itsBegin, itsTryLock: itsTryLock, itsConfirm: itsConfirm}

// loses expects the first n statements of an attempt, and answers the next with the error of a
// prepared statement that is missing.
func loses(mock sqlmock.Sqlmock, n int, state string) {
	expectAttemptUpTo(mock, n, fault{err: &pgconn.PgError{Code: state}})
	from := callOf[n]
	if attempt[from].name == "BEGIN" && attempt[n].name != "ROLLBACK" {
		mock.ExpectRollback()
	}
	expectAll(mock, attempt[from:n])
}

// alwaysLoses is loses with the same error once more, as through a pooler.
func alwaysLoses(n int, state string) func(sqlmock.Sqlmock) {
	return func(mock sqlmock.Sqlmock) {
		loses(mock, n, state)
		attempt[n].expect(mock, fault{err: &pgconn.PgError{Code: state}})
	}
}

// Other code may have run DISCARD ALL on a connection of the pool.
func TestAStatementThatIsForgottenOnceIsAskedAgain(t *testing.T) {
	for n := range callOf {
		for _, state := range []string{"26000", "42P05"} {
			bubble(t, fmt.Sprint(n, " ", attempt[n].name, " ", state), func(t *testing.T) {
				pool, mock := newMock(t)
				loses(mock, n, state)
				expectAll(mock, attempt[n:])
				expectResign(mock)
				e, rec := newElector(t, pool)
				resign(t, campaign(t, e))
				wantFailures(t, rec)
			})
		}
	}
}

// A candidate that is frozen when its last answer comes reads it when it thaws. Another may lead by
// then. Here the answer comes at the end of the validity, so the driver may return it or an error.
func TestAnAnswerThatIsReadTooLateElectsNobody(t *testing.T) {
	const validity = 7 * time.Second
	for range 30 {
		bubble(t, "alone", func(t *testing.T) {
			pool, mock := newMock(t)
			expectAttemptUpTo(mock, len(attempt)-1, fault{after: validity})
			e, rec := newElector(t, pool)
			_, elected, err := e.TryCampaign(t.Context())
			if wantError(t, err, elector.ErrNoAnswer); elected || len(rec.Elected()) > 0 {
				t.Error("elected by an answer that came too late")
			}
		})
		bubble(t, "on a shared session", func(t *testing.T) {
			pool, mock := newMockInAnyOrder(t) // a heartbeat may be sent at that moment
			m := newManyOn(t, pool, mock, 1)
			m.opened()
			for i, s := range grants(1, 1) {
				s.expect(m.mock, fault{after: validity * time.Duration(i/2)}) // of Tokens
			}
			_, elected, err := m.all[0].TryCampaign(t.Context())
			if elected || err == nil || len(m.rec.Elected()) > 0 {
				t.Errorf("elected by an answer that came too late: %t, %v", elected, err)
			}
		})
	}
}

// capture matches any argument and keeps it.
type capture struct{ value driver.Value }

func (c *capture) Match(v driver.Value) bool { c.value = v; return true }

// sessionSettings returns the names of the settings of a session.
func sessionSettings(t *testing.T) (names []string) {
	pool, mock := newMock(t)
	e, _ := newElector(t, pool)
	var sent capture
	expectAll(mock, attempt[:itsSettings])
	query(mock, "ApplySettings").WithArgs(true, &sent).WillReturnError(errPlain)
	_, _, err := e.TryCampaign(t.Context())
	wantError(t, err, errPlain)
	var settings []struct{ Name string }
	wantError(t, json.Unmarshal([]byte(sent.value.(string)), &settings))
	for _, s := range settings {
		names = append(names, s.Name)
	}
	return names
}

// expectRefusedSettings expects that the server refuses all settings together.
func expectRefusedSettings(mock sqlmock.Sqlmock, refused error) {
	expectAttemptUpTo(mock, itsSettings, fault{err: refused})
	mock.ExpectRollback()
}

// expectEachTried expects that each setting is tried alone, after the server has refused all
// together, and that it refuses one of them.
func expectEachTried(mock sqlmock.Sqlmock, names []string, bad string, refused error) {
	for _, name := range names {
		mock.ExpectBegin()
		q := query(mock, "ApplySettings").WithArgs(true, has(`"`+name+`"`)).WillReturnRows(row(1))
		if name == bad {
			q.WillReturnError(refused)
		}
		mock.ExpectRollback()
	}
}

func TestASettingThatTheServerRefusesIsLeftOutAndReportedOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		const name = "client_connection_check_interval"
		refused := &pgconn.PgError{Code: "22023", Message: name + " must be set to 0 on this platform"}
		names := sessionSettings(t)
		pool, mock := newMock(t)
		e, rec := newElector(t, pool)
		expectRefusedSettings(mock, refused)
		expectEachTried(mock, names, name, refused)
		query(mock, "DescribeServer").WillReturnRows(row(secondPID, false, 150000, "PostgreSQL 15", 0, false)) // a standby's refusal says nothing of settings
		query(mock, "TryLock").WithArgs(true, e.Key(), anything, anything, false, anything, anything, lacks(name)).WillReturnRows(row("granted", true, sessionPID, 0, ""))
		query(mock, "Confirm").WillReturnRows(row(true, sessionPID, timelineOne|745, noEpoch, false, ""))
		expectResign(mock)
		resign(t, campaign(t, e))
		wantFailures(t, rec, hooks.OpSetting)
		wantError(t, rec.Failures()[0].Err, refused)

		expectElection(mock, 746) // the settings are not tried again
		expectResign(mock)
		resign(t, campaign(t, e))
		wantFailures(t, rec, hooks.OpSetting)
	})
}

// The lease is the one setting that cannot be left out. In transaction scope it is another one.
func TestAServerThatRefusesTheLeaseElectsNobody(t *testing.T) {
	refused := &pgconn.PgError{Code: "42501", Message: "permission denied to set parameter"}
	for scope, lease := range map[elector.Scope]string{elector.SessionScope: "idle_session_timeout", elector.TransactionScope: "idle_in_transaction_session_timeout"} {
		bubble(t, lease, func(t *testing.T) {
			names := sessionSettings(t)
			names = names[:slices.Index(names, lease)+1]
			pool, mock := newMock(t)
			e, rec := newElector(t, pool, elector.WithScope(scope))
			if scope == elector.SessionScope {
				expectRefusedSettings(mock, refused)
			} else {
				expectSettingsInside(mock, 0).WithArgs(true, has(`"`+lease+`"`)).WillReturnError(refused)
				mock.ExpectRollback()
			}
			expectEachTried(mock, names, lease, refused)
			_, elected, err := e.TryCampaign(t.Context())
			wantError(t, err, refused)
			if elected || !contains(err, lease) {
				t.Errorf("elected %v, %v", elected, err)
			}
			wantFailures(t, rec, hooks.OpCampaign)
		})
	}
}

// In transaction scope the check tries a transaction: it keeps its backend, has no snapshot between
// two statements, and frees its locks at its end.
func TestATransactionThatCannotKeepThePromiseIsRefused(t *testing.T) {
	const started = "1.5"
	over := &pgconn.PgError{Code: "42704"} // pgelector.transaction is not set
	for name, c := range map[string]struct {
		ping        fault  // of the transaction that holds a lock
		setting     string // that is found in place of the mark
		seen        []driver.Value
		steps       int // of the check
		want, other error
	}{
		"it does not keep its backend":   {ping: fault{err: over}, steps: 1, want: elector.ErrSessionPooled},
		"a stranger has set its mark":    {setting: "open", steps: 1, want: elector.ErrSessionPooled},
		"two have one backend":           {seen: values(firstPID, started, otherMark, false, true), steps: 2, want: elector.ErrSessionPooled},
		"it has a snapshot":              {seen: values(secondPID, started, otherMark, true, true), steps: 2, want: elector.ErrSessionPooled},
		"its lock does not show":         {seen: values(secondPID, started, otherMark, false, true), steps: 3, want: elector.ErrUnsupportedServer},
		"its lock outlives it":           {seen: values(secondPID, started, otherMark, false, true), steps: 4, want: elector.ErrUnsupportedServer},
		"the other is on another server": {seen: values(secondPID, "2.5", otherMark, false, true), steps: 2, other: elector.ErrSessionPooled},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			tries, others := 3, 0
			if c.want == nil {
				tries, others = 1, 2
			}
			for range tries {
				expectSettingsInside(mock, 0)
				expectTransaction(mock)
				query(mock, "ShowsSnapshot").WillReturnRows(row(firstPID, started, mark, false, true))
				query(mock, "TryPair").WillReturnRows(row(true))
				statement{"PingTransaction", values(cmp.Or(c.setting, mark))}.expect(mock, c.ping)
				if c.steps > 1 {
					query(mock, "ShowsSnapshot").WillReturnRows(row(c.seen...))
				}
				for range others { // connections that the first transaction is compared with
					mock.ExpectRollback()
					expectTransaction(mock)
					query(mock, "ShowsSnapshot").WillReturnRows(row(firstPID, started, mark, false, true))
					query(mock, "TryPair").WillReturnRows(row(true))
					query(mock, "PingTransaction").WillReturnRows(row(mark))
					query(mock, "ShowsSnapshot").WillReturnRows(row(c.seen...))
				}
				if c.steps > 2 {
					query(mock, "PairIsFree").WillReturnRows(row(c.steps == 3, secondPID))
				}
				if c.steps == 3 { // the transaction goes on
					query(mock, "PingTransaction").WillReturnRows(row(mark))
				}
				if c.steps > 3 {
					mock.ExpectRollback()
					query(mock, "PairIsFree").WillReturnRows(row(false, secondPID))
				}
				for range 2 - c.steps/4 {
					mock.ExpectRollback()
				}
			}
			e, _ := newElector(t, pool, elector.WithScope(elector.TransactionScope))
			_, elected, err := e.TryCampaign(t.Context())
			if elected || err == nil || c.want != nil && !errors.Is(err, c.want) || c.other != nil && errors.Is(err, c.other) {
				t.Errorf("elected %v, %v", elected, err)
			}
		})
	}
}

func TestAServerThatShutsDownDuringTheCheckRefusesNoSetting(t *testing.T) {
	for name, last := range map[string]func(sqlmock.Sqlmock){
		"in a transaction": func(mock sqlmock.Sqlmock) {
			mock.ExpectBegin()
			query(mock, "ApplySettings").WillReturnError(errTerminated)
		},
		"before it begins": func(mock sqlmock.Sqlmock) { mock.ExpectBegin().WillReturnError(errTerminated) },
	} {
		bubble(t, name, func(t *testing.T) {
			invalid := &pgconn.PgError{Code: "22023", Message: "no such value"}
			pool, mock := newMock(t)
			e, rec := newElector(t, pool)
			expectRefusedSettings(mock, invalid)
			last(mock)
			_, _, err := e.TryCampaign(t.Context())
			wantError(t, err, errTerminated)
			wantFailures(t, rec, hooks.OpCampaign)

			expectServerCheck(mock)
			query(mock, "TryLock").WithArgs(true, e.Key(), anything, anything, false, anything, anything, has(`"application_name","value":"web-1"`)).WillReturnRows(row("busy", false, sessionPID, 0, ""))
			if _, elected, err := e.TryCampaign(t.Context()); elected || err != nil {
				t.Errorf("got %v, %v", elected, err)
			}
		})
	}
}

func TestAServerThatCanJustKeepThePromiseIsAccepted(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		for _, s := range attempt {
			if s.name == "DescribeServer" {
				s.answer = values(s.answer[0], false, 140000, "PostgreSQL", 0, false)
			}
			s.expect(mock, fault{})
		}
		expectResign(mock)
		e, rec := newElector(t, pool)
		resign(t, campaign(t, e))
		wantFailures(t, rec)
	})
}

// upTo expects the first n statements of an attempt, and answers the next as a server does that
// must be refused.
func upTo(n int, answer ...any) func(sqlmock.Sqlmock) {
	return func(mock sqlmock.Sqlmock) {
		f, s := fault{}, attempt[n]
		if err, ok := answer[0].(error); ok {
			f.err = err
		} else {
			s.answer = nil
			for _, v := range answer {
				s.answer = append(s.answer, v)
			}
		}
		expectAll(mock, attempt[:n])
		s.expect(mock, f)
	}
}

// mixesUp are poolers that lose a statement, or have it already. Other code may have caused that once.
var mixesUp = map[string]func(sqlmock.Sqlmock){
	"a pooler that loses a prepared statement of pgx":      alwaysLoses(0, "26000"),
	"a pooler that has a prepared statement already":       alwaysLoses(1, "42P05"),
	"a statement that is lost during a transaction":        alwaysLoses(itsSettings, "26000"),
	"a statement that is there already in a transaction":   alwaysLoses(itsSettings, "42P05"),
	"a statement that is lost at the end of a transaction": alwaysLoses(itsSettings+1, "26000"),
}

// times has each check find the same.
func times(n int, one func(sqlmock.Sqlmock)) func(sqlmock.Sqlmock) {
	return func(mock sqlmock.Sqlmock) {
		for range n {
			one(mock)
		}
	}
}

// shares are the answers of a pooler, as surely as any can be.
var shares = map[string]func(sqlmock.Sqlmock){
	"one backend for two connections":          upTo(1, firstPID, false, 150000, "PostgreSQL 15", 0, false),
	"another backend for the first connection": upTo(2, firstPID+2, false, 150000, "PostgreSQL 15", 0, false),
	"that of the second for it":                upTo(2, secondPID, false, 150000, "PostgreSQL 15", 0, false),
	"another backend for the second":           upTo(3, secondPID+1, false, 150000, "PostgreSQL 15", 0, false),
	"another server for it":                    upTo(3, secondPID, false, 150000, "PostgreSQL 15", 1, false),
	"another backend for the last question":    upTo(itsBegin-1, firstPID+2, false, 150000, "PostgreSQL 15", 0, false),
	"that of the other for the last question":  upTo(itsBegin-1, firstPID, false, 150000, "PostgreSQL 15", 0, false),
	"another server for the last question":     upTo(itsBegin-1, secondPID, false, 150000, "PostgreSQL 15", 1, false),
}

func TestAServerThatCannotKeepThePromiseIsRefusedForGood(t *testing.T) {
	type refusal struct {
		server func(sqlmock.Sqlmock)
		want   error
	}
	refusals := map[string]refusal{
		"hot standbys":                 {times(3, upTo(0, firstPID, true, 150000, "PostgreSQL 15", 0, false)), elector.ErrServerReadOnly},
		"an old server":                {upTo(0, firstPID, false, 139999, "PostgreSQL 13.99", 0, false), elector.ErrUnsupportedServer},
		"an outcome that nobody knows": {upTo(itsTryLock, "perhaps", false, sessionPID, 0, ""), elector.ErrUnsupportedServer},
		"locks that do not show": {func(mock sqlmock.Sqlmock) {
			upTo(itsConfirm, false, sessionPID, 0, noEpoch, false, "")(mock)
			expectTrial(mock, false)
		}, elector.ErrUnsupportedServer},
	}
	for name, server := range shares {
		refusals[name] = refusal{server, elector.ErrSessionPooled}
	}
	for name, server := range mixesUp {
		refusals[name] = refusal{times(3, server), elector.ErrSessionPooled}
	}
	for name, r := range refusals {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			r.server(mock)
			e, rec := newElector(t, pool)
			err := e.Run(patience(t), nil)
			wantError(t, err, r.want)
			wantFailures(t, rec, hooks.OpCampaign)
			if f := rec.Failures()[0]; !f.Permanent || f.Err != err {
				t.Errorf("reported %+v", f)
			}
			if c := rec.Campaigns(); len(c) != 1 || c[0].Outcome != hooks.Failed || c[0].Next != 0 || len(rec.Elected()) != 0 {
				t.Errorf("campaigns %+v, elected %+v", c, rec.Elected())
			}
			wantInUse(t, pool, 1)
		})
	}
}

// In a failover a pool may lead to two servers, whose backends have the same process id.
func TestTwoServersAreNoPooler(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		for _, s := range attempt {
			if s.name == "DescribeServer" && s.answer[0] == driver.Value(secondPID) {
				s.answer = values(firstPID, false, 150000, "PostgreSQL 15", 1, false)
			}
			s.expect(mock, fault{})
		}
		expectResign(mock)
		e, rec := newElector(t, pool)
		resign(t, campaign(t, e))
		wantFailures(t, rec)
	})
}

// away is the driver of lib/pq behind a pooler whose server restarts.
type away struct{ *strict }

func (a away) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := a.strict.Connect(ctx)
	return awayConn{conn.(*strictConn)}, err
}

type awayConn struct{ *strictConn }

func (awayConn) Ping(context.Context) error { return driver.ErrBadConn }

// Only a transaction that fails on a pooler that answers shows that the pooler permits none.
func TestAPoolerThatDoesNotAnswerAfterItWasFoundIsAskedAgain(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		direct, mock := newMock(t)
		conn, err := direct.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var pool *sql.DB
		_ = conn.Raw(func(one any) error {
			pool = sql.OpenDB(away{one.(*strictConn).of})
			return nil
		})
		_ = conn.Close()
		upTo(1, firstPID, false, 150000, "PostgreSQL 15", 0, false)(mock)
		e, rec := newElector(t, pool, elector.WithScope(elector.Auto))
		if _, _, err = e.TryCampaign(t.Context()); err == nil || errors.Is(err, elector.ErrSessionPooled) {
			t.Errorf("got %v", err)
		}
		alone, _ := newElector(t, pool, elector.WithScope(elector.TransactionScope))
		if _, _, err = alone.TryCampaign(t.Context()); !contains(err, "is the server reachable? A pooler may") {
			t.Errorf("without a pooler: %v", err)
		}
		if f := rec.Failures(); len(f) != 1 || f[0].Permanent {
			t.Errorf("reported %+v", f)
		}
		_ = pool.Close()
	})
}

// A server that has passed a check is never refused for good because of a pooler, and statements
// that are mixed up must be on each connection.
func TestAPoolerIsRefusedOnlyIfItShowsBeforeTheServerHasPassed(t *testing.T) {
	for name, server := range mixesUp {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			times(2, server)(mock)
			expectTerm(mock, 1)
			expectResign(mock)
			e, rec := newElector(t, pool)
			resign(t, campaign(t, e))
			wantFailures(t, rec)
		})
	}
	bubble(t, "passed", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		expectAttempt(mock, "granted")
		query(mock, "Confirm").WillReturnRows(row(true, sessionPID+1, timelineOne|745, noEpoch, false, ""))
		expectEviction(mock, sessionPID, orders) // the lock is on a shared backend
		upTo(1, firstPID, false, 150000, "PostgreSQL 15", 0, false)(mock)
		expectTerm(mock, 1)
		expectResign(mock)
		e, rec := newElector(t, pool)
		resign(t, campaign(t, e))
		wantFailures(t, rec, hooks.OpCampaign, hooks.OpCampaign)
		for _, f := range rec.Failures() {
			if wantError(t, f.Err, elector.ErrSessionPooled); f.Permanent {
				t.Errorf("refused permanently: %v", f.Err)
			}
		}
	})
}

// A transaction pooler that is busy with others may give lib/pq's arguments to a statement of
// another client. That is no reason to refuse the server, nor to report a failure once.
func TestACheckInWhichStatementsAreMixedUpIsMadeAgain(t *testing.T) {
	for n, failed := range map[int][]hooks.Op{1: nil, 2: nil, 3: {hooks.OpCampaign}} {
		bubble(t, fmt.Sprint(n), func(t *testing.T) {
			pool, mock := newMock(t)
			for range n {
				upTo(1, &pq.Error{Code: "08P01"})(mock)
			}
			expectTerm(mock, 1)
			expectResign(mock)
			e, rec := newElector(t, pool)
			resign(t, campaign(t, e))
			wantFailures(t, rec, failed...)
			for _, f := range rec.Failures() {
				if f.Permanent {
					t.Errorf("refused permanently: %v", f.Err)
				}
			}
		})
	}
}

// Other code left a transaction open on a connection of the pool.
func TestAGrantInsideATransactionIsLeftForAnotherAtOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 744)
		expectResign(mock)
		expectAttempt(mock, "granted")
		query(mock, "Confirm").WillReturnRows(row(false, sessionPID, 0, noEpoch, true, ""))
		expectElection(mock, 745) // on the same server
		expectResign(mock)
		e, rec := newElector(t, pool)
		resign(t, campaign(t, e))
		start := time.Now()
		resign(t, campaign(t, e))
		wantTook(t, start, 0)
		wantFailures(t, rec)
	})
}

// Each question begins a transaction but on such a connection, so it would look like one that a
// pooler shares.
func TestACheckInsideATransactionOfOtherCodeNamesThatAndNoPooler(t *testing.T) {
	for n, pid := range []int{firstPID, secondPID} {
		bubble(t, fmt.Sprint("connection ", n+1), func(t *testing.T) {
			pool, mock := newMock(t)
			upTo(n, pid, false, 150000, "PostgreSQL 15", 0, true)(mock)
			e, rec := newElector(t, pool)
			_, elected, err := e.TryCampaign(t.Context())
			if elected || !contains(err, "a transaction that other code has left open") || errors.Is(err, elector.ErrSessionPooled) {
				t.Errorf("elected %t, %v", elected, err)
			}
			wantFailures(t, rec, hooks.OpCampaign)
			if rec.Failures()[0].Permanent {
				t.Error("refused permanently")
			}
			expectTerm(mock, 1)
			expectResign(mock)
			resign(t, campaign(t, e))
		})
	}
}

// A primary that is in recovery now is being replaced. The candidate waits for the new primary.
func TestACandidateWhoseServerTurnsStandbyWaitsForThePrimary(t *testing.T) {
	checkOfAStandby := upTo(0, firstPID, true, 150000, "PostgreSQL 15", 0, false) // once for each server that a pool may lead to
	attemptOnAStandby := func(mock sqlmock.Sqlmock) { expectAttempt(mock, "standby") }
	for name, c := range map[string]struct {
		opts   []elector.Option
		expect func(sqlmock.Sqlmock)
		failed []hooks.Op
	}{
		"by a heartbeat": {[]elector.Option{elector.WithBackoff(10*time.Second, 10*time.Second)}, func(mock sqlmock.Sqlmock) {
			expectTerm(mock, 1)
			query(mock, "Ping").WillReturnRows(row(sessionPID, true, false))
			times(3*3, checkOfAStandby)(mock) // two of them are quick attempts
		}, []hooks.Op{hooks.OpHeartbeat, hooks.OpCampaign}},
		"by an attempt": {nil, func(mock sqlmock.Sqlmock) {
			expectServerCheck(mock)
			expectBusy(mock, 300, "web-2")
			attemptOnAStandby(mock)
			times(3, checkOfAStandby)(mock)
		}, []hooks.Op{hooks.OpCampaign, hooks.OpCampaign}},
		"between check and lock": {nil, func(mock sqlmock.Sqlmock) {
			expectServerCheck(mock)
			times(2, attemptOnAStandby)(mock)
		}, []hooks.Op{hooks.OpCampaign}},
		"by a check that failed": {nil, func(mock sqlmock.Sqlmock) {
			expectAttemptUpTo(mock, 1, fault{err: errPlain})
			times(3, checkOfAStandby)(mock)
		}, []hooks.Op{hooks.OpCampaign, hooks.OpCampaign}},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			pool.SetMaxIdleConns(-1) // others would be asked, too
			c.expect(mock)
			expectTerm(mock, 2)
			expectResign(mock)
			e, rec := newElector(t, pool, c.opts...)
			wantError(t, e.Run(patience(t), func(ctx context.Context, term *elector.Term) error {
				if term.Token() == timelineOne|1 {
					<-ctx.Done()
					wantError(t, context.Cause(ctx), elector.ErrSessionLost, elector.ErrServerReadOnly)
				}
				return nil
			}))
			wantFailures(t, rec, c.failed...)
			last := rec.Failures()[len(c.failed)-1]
			if wantError(t, last.Err, elector.ErrServerReadOnly); last.Permanent {
				t.Errorf("reported %+v", last)
			}
		})
	}
}

// hangs is a driver that gives no connection.
type hangs struct{ driver.Connector }

func (hangs) Connect(ctx context.Context) (driver.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hangs) Driver() driver.Driver { return nil }

func TestAnErrorHasThePoolsFiguresOnlyIfThePoolGaveNoConnection(t *testing.T) {
	const named, connects = "MaxOpenConns large enough?", "connect_timeout"
	bubble(t, "busy", func(t *testing.T) {
		pool, _ := newMock(t)
		pool.SetMaxOpenConns(2)
		other, err := pool.Conn(t.Context())
		wantError(t, err)
		defer other.Close()
		e, rec := newElector(t, pool)
		start := time.Now()
		_, _, err = e.TryCampaign(t.Context())
		if took := time.Since(start); took != 7*time.Second || !contains(err, named) || contains(err, connects) || !contains(err, "(2 open, 2 in use, at most 2; 0 is no limit)") {
			t.Errorf("after %v: %v", took, err)
		}
		wantFailures(t, rec, hooks.OpCampaign)
		s, err := elector.NewSession(pool)
		wantError(t, err)
		e, err = s.Elector("orders")
		wantError(t, err)
		time.AfterFunc(time.Second, func() { wantError(t, s.Close(context.Background())) })
		_, err = e.Campaign(patience(t))
		if wantError(t, err, elector.ErrStopped); contains(err, named) {
			t.Errorf("got %v", err)
		}
	})
	bubble(t, "none from the driver", func(t *testing.T) { // whose own pool has no other, or whose server is away
		pool := sql.OpenDB(hangs{})
		e, _ := newElector(t, pool)
		if _, _, err := e.TryCampaign(t.Context()); contains(err, named) || !contains(err, connects) || !contains(err, "(a pgxpool)") {
			t.Errorf("got %v", err)
		}
		_ = pool.Close()
	})
	bubble(t, "closed", func(t *testing.T) {
		pool, _, err := sqlmock.New()
		wantError(t, err)
		e, _ := newElector(t, pool)
		_ = pool.Close()
		if _, _, err = e.TryCampaign(t.Context()); err == nil || contains(err, named) {
			t.Errorf("got %v", err)
		}
	})
}

// A fenced transaction of the last term delays the next one for longer than its lease. The next
// leader, with its own session or a shared one, terminates it.

var (
	errCancelled = &pgconn.PgError{Severity: "ERROR", Code: "57014", Message: "canceling statement due to statement timeout"}
	errForbidden = &pgconn.PgError{Severity: "ERROR", Code: "42501", Message: "permission denied to terminate process"}
)

func TestATransactionThatMayNotBeEndedIsReported(t *testing.T) {
	reported := func(t *testing.T, all []hooks.Failure) {
		t.Helper()
		last := all[len(all)-1]
		wantError(t, last.Err, errForbidden)
		if !contains(last.Err, "role") || last.Permanent {
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
		query(m.mock, "TryLocks").WillReturnRows(rows(values(int64(1), "granted", sessionPID)))
		for range 3 { // it is reported once
			query(m.mock, "HeldLocks").WillReturnRows(rows(values(int64(1))))
			query(m.mock, "Tokens").WillReturnRows(rows(values(int64(1), false, timelineOne|1, noEpoch, sessionPID)))
			query(m.mock, "EndOverdue").WillReturnError(errForbidden)
		}
		expectAll(m.mock, grants(1, 9)[1:])
		term := m.campaign(t, 0)
		expectResign(m.mock)
		resign(t, term)
		wantFailures(t, m.rec, hooks.OpCampaign)
		reported(t, m.rec.Failures())
		if err := m.rec.Failures()[0].Err; !contains(err, fmt.Sprintf("%q", m.all[0].Election())) {
			t.Errorf("of which election? %v", err)
		}
	})
}

// expectTrial expects the trial of a lock after one that was granted does not show.
func expectTrial(mock sqlmock.Sqlmock, shown bool) {
	query(mock, "TrialLock").WillReturnRows(row(shown))
}

// The server's locks show, so another has released the one that was granted: the next attempt follows.
func TestALockThatIsReleasedByOtherCodeIsAskedForAgain(t *testing.T) {
	bubble(t, "on a session of its own", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		upToConfirm := []statement{{"TryLock", values("granted", true, sessionPID, 0, "")}, {"Confirm", values(false, sessionPID, 0, noEpoch, false, "")}}
		expectAll(mock, upToConfirm)
		expectTrial(mock, true)
		expectTerm(mock, 1)
		expectResign(mock)
		e, rec := newElector(t, pool)
		resign(t, campaign(t, e))
		wantFailures(t, rec, hooks.OpCampaign)
	})
	bubble(t, "on a shared session", func(t *testing.T) {
		m := newMany(t, 1)
		m.opened()
		query(m.mock, "TryLocks").WillReturnRows(row(int64(1), "granted", sessionPID))
		query(m.mock, "HeldLocks").WillReturnRows(rows())
		query(m.mock, "HoldsLock").WillReturnRows(row(false, sessionPID))
		expectTrial(m.mock, true)
		m.opened()
		m.elected(746, 1)
		expectResign(m.mock)
		resign(t, m.campaign(t, 0))
		wantFailures(t, m.rec, hooks.OpCampaign)
	})
}

package sqlmock_test

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// attempt is every statement of an attempt that is granted.
var attempt = []statement{
	{"DescribeServer", values(firstPID, false, 150000, "PostgreSQL 15", asked, false)},
	{"DescribeServer", values(firstPID, false, 150000, "PostgreSQL 15", asked, false)},
	{"LastAsked", values(secondPID, asked, false)},
	{"DescribeServer", values(firstPID, false, 150000, "PostgreSQL 15", asked, false)},
	{"LastAsked", values(secondPID, asked, false)},
	{"BEGIN", nil},
	{"DescribeServer", values(firstPID, false, 150000, "PostgreSQL 15", asked, false)},
	{"LastAsked", values(secondPID, asked, false)},
	{"ApplySettings", values(11)},
	{"ROLLBACK", nil},
	{"TryLockOrSee", values("granted", sessionPID, 0, "")},
	{"Confirm", values(true, sessionPID, 745, noEpoch, false)},
}

// expectAttemptUpTo expects an attempt that ends with the statement i, and f.
func expectAttemptUpTo(mock sqlmock.Sqlmock, i int, f fault) {
	for _, s := range attempt[:i] {
		s.expect(mock, fault{})
	}
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
				if n := pool.Stats().InUse; n != 1 { // the mock's own
					t.Errorf("%d connections are in use", n)
				}
				expectServerCheck(mock)
				if s.name == "Confirm" && f.after == never { // perhaps it waited at the barrier
					query(mock, "EndOverdue").WillReturnRows(row(1, true))
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
			for _, s := range attempt[i+1:] {
				s.expect(mock, fault{})
			}
			expectResign(mock)
			e, rec := newElector(t, pool)
			resign(t, campaign(t, e))
			wantFailures(t, rec)
			wantDemoted(t, rec, hooks.Resigned)
		})
	}
}

func TestTheDriversErrorStaysWithinReach(t *testing.T) {
	for _, f := range anyError[1:3] {
		bubble(t, f.name, func(t *testing.T) {
			pool, mock := newMock(t)
			e, _ := newElector(t, pool)
			expectAttemptUpTo(mock, 0, f)
			_, _, err := e.TryCampaign(t.Context())
			var pgxError *pgconn.PgError
			var pqError *pq.Error
			var state interface{ SQLState() string }
			if !errors.As(err, &pgxError) && !errors.As(err, &pqError) || !errors.As(err, &state) || state.SQLState() != "53300" {
				t.Errorf("got %v", err)
			}
		})
	}
}

// capture matches any argument and keeps it.
type capture struct{ value driver.Value }

func (c *capture) Match(v driver.Value) bool { c.value = v; return true }

// sessionSettings are the names of what an elector sets.
func sessionSettings(t *testing.T) (names []string) {
	pool, mock := newMock(t)
	e, _ := newElector(t, pool)
	var sent capture
	for _, s := range attempt[:8] {
		s.expect(mock, fault{})
	}
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

// expectEachTried expects that all settings are refused, and then each is tried alone,
// of which one is refused again.
func expectEachTried(mock sqlmock.Sqlmock, names []string, bad string, refused error) {
	expectAttemptUpTo(mock, 8, fault{err: refused})
	mock.ExpectRollback()
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
		expectEachTried(mock, names, name, refused)
		query(mock, "TryLockOrSee").WithArgs(e.Key(), lacks(name), "web-1").WillReturnRows(row("granted", sessionPID, 0, ""))
		query(mock, "Confirm").WillReturnRows(row(true, sessionPID, 745, noEpoch, false))
		expectResign(mock)
		resign(t, campaign(t, e))
		wantFailures(t, rec, hooks.OpSetting)
		wantError(t, rec.Failures()[0].Err, refused)

		expectElection(mock, 746) // without another look at the settings
		expectResign(mock)
		resign(t, campaign(t, e))
		wantFailures(t, rec, hooks.OpSetting)
	})
}

// Without a lease nobody may lead: the one setting that cannot be left out.
func TestAServerThatRefusesTheLeaseElectsNobody(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		refused := &pgconn.PgError{Code: "42501", Message: "permission denied to set parameter"}
		const lease = "idle_session_timeout"
		names := sessionSettings(t)
		pool, mock := newMock(t)
		e, rec := newElector(t, pool)
		expectEachTried(mock, names[:slices.Index(names, lease)+1], lease, refused)
		_, elected, err := e.TryCampaign(t.Context())
		wantError(t, err, refused)
		if elected || !strings.Contains(err.Error(), lease) {
			t.Errorf("elected %v, %v", elected, err)
		}
		wantFailures(t, rec, hooks.OpCampaign)
	})
}

// The oldest server that is good enough, and one that does not show when another
// backend was asked, are no reason to refuse.
func TestAServerThatCanJustKeepThePromiseIsTaken(t *testing.T) {
	for name, c := range map[string]struct{ version, asked int }{"the oldest": {140000, asked}, "that hides": {150000, 0}} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			for _, s := range attempt {
				switch s.name {
				case "DescribeServer":
					s.answer = values(firstPID, false, c.version, "PostgreSQL", asked, false)
				case "LastAsked":
					s.answer = values(secondPID, c.asked, false)
				}
				s.expect(mock, fault{})
			}
			expectResign(mock)
			e, rec := newElector(t, pool)
			resign(t, campaign(t, e))
			wantFailures(t, rec)
		})
	}
}

func TestAServerThatShutsDownDuringTheCheckRefusesNoSetting(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		shutdown := &pgconn.PgError{Severity: "FATAL", Code: "57P01", Message: "terminating connection due to administrator command"}
		invalid := &pgconn.PgError{Code: "22023", Message: "no such value"}
		pool, mock := newMock(t)
		e, rec := newElector(t, pool)
		expectAttemptUpTo(mock, 8, fault{err: invalid})
		mock.ExpectRollback()
		mock.ExpectBegin()
		query(mock, "ApplySettings").WillReturnError(shutdown)
		_, _, err := e.TryCampaign(t.Context())
		wantError(t, err, shutdown)
		wantFailures(t, rec, hooks.OpCampaign)

		expectServerCheck(mock)
		query(mock, "TryLockOrSee").WithArgs(e.Key(), has(`"application_name","value":"web-1"`), "web-1").WillReturnRows(row("busy", sessionPID, 0, ""))
		if _, elected, err := e.TryCampaign(t.Context()); elected || err != nil {
			t.Errorf("got %v, %v", elected, err)
		}
	})
}

// A session of an election finds no name outside pg_catalog.
func TestASessionOfAnElectionHasASearchPathOfItsOwn(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		e, _ := newElector(t, pool)
		expectServerCheck(mock)
		query(mock, "TryLockOrSee").WithArgs(e.Key(), has(`{"name":"search_path","value":"pg_catalog, pg_temp"}`), "web-1").
			WillReturnRows(row("busy", sessionPID, 0, ""))
		_, elected, err := e.TryCampaign(t.Context())
		if elected || err != nil {
			t.Errorf("got %v, %v", elected, err)
		}
	})
}

func TestStaleIdleConnectionsCostNoWait(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		e, rec := newElector(t, pool)
		expectServerCheck(mock)
		expectBusy(mock, 300, "web-2")
		if _, elected, err := e.TryCampaign(t.Context()); elected || err != nil {
			t.Fatal(elected, err)
		}
		gone := &pgconn.PgError{Severity: "FATAL", Code: "57P01", Message: "terminating connection due to administrator command"}
		expectServerRestarted := func() { // both idle connections are dead by now
			query(mock, "TryLockOrSee").WillReturnError(gone)
			query(mock, "DescribeServer").WillReturnError(gone)
		}
		expectServerRestarted()
		expectTerm(mock, 745)
		expectResign(mock)
		start := time.Now()
		term := campaign(t, e)
		if waited := time.Since(start); waited != 0 {
			t.Errorf("waited %v", waited)
		}
		resign(t, term)
		synctest.Wait()
		wantFailures(t, rec)
	})
}

func TestAnAttemptWithoutAConnectionSaysHowThePoolStands(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, _ := newMock(t)
		pool.SetMaxOpenConns(2)
		other, err := pool.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		e, rec := newElector(t, pool)
		start := time.Now()
		_, _, err = e.TryCampaign(t.Context())
		if err == nil || time.Since(start) != 7*time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		wantFailures(t, rec, hooks.OpCampaign)
		if want := "(2 open, 2 in use, at most 2; 0 is no limit)"; !contains(err, want) {
			t.Errorf("want %q in: %v", want, err)
		}
	})
}

// expectFailedTry is an attempt on a checked server that fails with f.
func expectFailedTry(mock sqlmock.Sqlmock, f fault) { attempt[10].expect(mock, f) }

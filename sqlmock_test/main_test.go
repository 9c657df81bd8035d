package sqlmock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
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
	"github.com/pgelector/pgelector/hooks/hookstest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sendGrace is how long a running call may go on after its session has ended.
const sendGrace = 50 * time.Millisecond

// grace is how long a driver may take to return when its connection is given up.
const grace = time.Second

// bubble runs a test in virtual time.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			test(t)
			time.Sleep(sendGrace) // until running calls have returned
		})
	})
}

// patience returns a context that ends only if the test has failed. In virtual time that takes no
// time.
func patience(t *testing.T) context.Context {
	return within(t, 4*time.Hour)
}

// campaign is Campaign for tests where it must succeed.
func campaign(t *testing.T, e *elector.Elector) *elector.Term {
	t.Helper()
	term, err := e.Campaign(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	// Its work returns at once when the term ends.
	context.AfterFunc(term.Context(), func() { _ = term.Resign(context.Background()) })
	return term
}

// resign is Resign for tests where it must succeed.
func resign(t *testing.T, term *elector.Term) {
	t.Helper()
	if err := term.Resign(t.Context()); err != nil {
		t.Error(err)
	}
}

// within returns a context that ends after d, or with the test.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), d)
	t.Cleanup(stop)
	return ctx
}

// wantError checks that err wraps each of the targets.
func wantError(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("got %v\nwant %v", err, target)
		}
	}
	if len(targets) == 0 && err != nil {
		t.Error(err)
	}
}

// wantFailures checks which operations were reported as failed, in order, and that the text of each
// failure is complete: a nil cause, for instance, is missing.
func wantFailures(t *testing.T, rec *hookstest.Recorder, ops ...hooks.Op) {
	t.Helper()
	synctest.Wait()
	var got []hooks.Op
	for _, f := range rec.Failures() {
		if got = append(got, f.Op); contains(f.Err, "%!") {
			t.Errorf("a failure reads %q", f.Err)
		}
	}
	if !slices.Equal(got, ops) {
		t.Errorf("failures %v, want %v: %+v", got, ops, rec.Failures())
	}
}

// wantTook checks how much virtual time has passed.
func wantTook(t *testing.T, start time.Time, want time.Duration) {
	t.Helper()
	if took := time.Since(start); took != want {
		t.Errorf("took %v, want %v", took, want)
	}
}

// wantDemoted checks for which reasons terms ended, in order.
func wantDemoted(t *testing.T, rec *hookstest.Recorder, reasons ...hooks.Reason) {
	t.Helper()
	synctest.Wait()
	var got []hooks.Reason
	for _, d := range rec.Demoted() {
		got = append(got, d.Reason)
	}
	if !slices.Equal(got, reasons) {
		t.Errorf("demoted %v, want %v", got, reasons)
	}
}

func values(all ...driver.Value) []driver.Value { return all }

// contains reports whether the text of err does.
func contains(err error, text string) bool {
	return err != nil && strings.Contains(err.Error(), text)
}

// lacks matches an argument that does not contain the text.
type lacks string

func (text lacks) Match(v driver.Value) bool { return !has(text).Match(v) }

// settle waits until nothing happens any more at this moment of virtual time.
func settle() { synctest.Wait() }

// anything matches any argument of a statement.
var anything = sqlmock.AnyArg()

// expectEviction expects the termination of a backend that a pooler gives to others, with the lock of that key.
func expectEviction(mock sqlmock.Sqlmock, pid int, key any) {
	mock.ExpectBegin()
	query(mock, "EvictHolder").WithArgs(pid, key, anything).WillReturnRows(row(true))
	mock.ExpectRollback()
}

// wantInUse checks how many connections of the pool are in use, of which one is the mock's.
func wantInUse(t *testing.T, pool *sql.DB, want int) {
	t.Helper()
	if n := pool.Stats().InUse; n != want {
		t.Errorf("%d connections are in use, want %d", n, want)
	}
}

// A fault is a way for a statement to fail.
type fault struct {
	name  string
	err   error         // what the driver returns
	after time.Duration // until it answers, unless its context ends first
	want  error         // what the elector's error wraps
}

// The faults that every statement can have. After each of them the state of the connection is
// unknown.
var (
	errPlain = errors.New("something went wrong")
	errPgx   = &pgconn.PgError{Severity: "FATAL", Code: "53300", Message: "sorry, too many clients already"}
	errPq    = &pq.Error{Severity: "FATAL", Code: "53300", Message: "sorry, too many clients already"}
)

var (
	anyError = []fault{
		{name: "plain error", err: errPlain, want: errPlain},
		{name: "error of pgx with SQLSTATE", err: errPgx, want: errPgx},
		{name: "error of lib/pq with SQLSTATE", err: errPq, want: errPq},
		{name: "late error", err: errPlain, after: 1500 * time.Millisecond, want: errPlain},
		{name: "connection gone", err: driver.ErrBadConn, want: driver.ErrBadConn},
	}
	noAnswer  = fault{name: "no answer", after: never}
	anyFault  = append([]fault{noAnswer}, anyError...)
	slow      = fault{name: "slow answer, but in time", after: time.Second}
	badAnswer = fault{name: "answer of the wrong shape"} // the error is one of package sql
)

// A statement of the elector, with the answer that it needs.
type statement struct {
	name   string
	answer []driver.Value
}

// expect expects the statement with a fault. The zero fault means none.
func (s statement) expect(mock sqlmock.Sqlmock, f fault) {
	switch s.name {
	case "BEGIN":
		mock.ExpectBegin().WillDelayFor(f.after).WillReturnError(f.err)
	case "ROLLBACK":
		mock.ExpectRollback().WillReturnError(f.err)
	case "WaitLock":
		mock.ExpectExec("-- name: WaitLock ").WillDelayFor(f.after).WillReturnResult(sqlmock.NewResult(0, 0)).WillReturnError(f.err)
	case "PREPARE Confirm", "PREPARE Unlock", "PREPARE TryAsDeputy":
		mock.ExpectPrepare("-- name: " + strings.TrimPrefix(s.name, "PREPARE ") + " ").WillDelayFor(f.after).WillReturnError(f.err)
	default:
		answer := s.answer
		if f.name == badAnswer.name {
			answer = values("of", "no", "use", "at", "all", "to", "anybody")
		}
		query(mock, s.name).WillDelayFor(f.after).WillReturnRows(row(answer...)).WillReturnError(f.err)
	}
}

// faults returns the faults that sqlmock can produce: it can neither delay a ROLLBACK nor give its
// answer a wrong shape.
func (s statement) faults() []fault {
	switch s.name {
	case "BEGIN", "WaitLock", "PREPARE Confirm", "PREPARE Unlock", "PREPARE TryAsDeputy":
		return anyFault
	case "ROLLBACK":
		return []fault{anyError[0], anyError[1], anyError[2], anyError[4]}
	default:
		return append([]fault{badAnswer}, anyFault...)
	}
}

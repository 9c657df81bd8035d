// Package sqlmock_test plays every fault of a database to the elector, without a
// database: go-sqlmock answers in its place, and testing/synctest makes time
// virtual, so that an hour of an election takes a moment and no test hopes.
//
// To test your own code in this way, copy this file and begin with copyme_test.go.
package sqlmock_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// The backends behind the connections: two for the server check, and the
// session's.
const (
	firstPID   = 101
	secondPID  = 102
	sessionPID = 200

	asked = 1_000_000 // when the first was asked, which the second is a witness of
)

// newMock makes a database that answers what it is told to expect, in that
// order. Call it inside the synctest bubble, where the elector is to live.
func newMock(t *testing.T) (*sql.DB, sqlmock.Sqlmock) {
	t.Helper()
	return newMockThat(t, func(expected, actual string) error {
		err := sqlmock.QueryMatcherRegexp.Match(expected, actual)
		if err != nil { // of which the elector may tell nobody
			t.Errorf("%.40q was asked, and %q is expected", actual, expected)
		}
		return err
	})
}

// newMockInAnyOrder makes one for that whose order is not known.
func newMockInAnyOrder(t *testing.T) (*sql.DB, sqlmock.Sqlmock) {
	t.Helper()
	pool, mock := newMockThat(t, sqlmock.QueryMatcherRegexp.Match)
	mock.MatchExpectationsInOrder(false)
	return pool, mock
}

func newMockThat(t *testing.T, matches sqlmock.QueryMatcherFunc) (*sql.DB, sqlmock.Sqlmock) {
	t.Helper()
	pool, mock, err := sqlmock.New(sqlmock.QueryMatcherOption(matches))
	if err != nil {
		t.Fatal(err)
	}
	// sqlmock forgets a database once its last connection is closed, and an
	// elector closes its session's. This connection stays.
	keep, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(err)
		}
		_ = errors.Join(keep.Close(), pool.Close()) // sqlmock reports a close that was not expected
	})
	return pool, mock
}

// newElector makes an elector with the default timing: a lease of 10 s, valid
// for 7 s, a heartbeat each 2 s, and an attempt each second or a bit less.
func newElector(t *testing.T, pool *sql.DB, opts ...elector.Option) (*elector.Elector, *hookstest.Recorder) {
	t.Helper()
	rec := hookstest.NewRecorder()
	opts = append([]elector.Option{elector.WithCandidateID("web-1"), elector.WithHooks(rec)}, opts...)
	e, err := elector.New(pool, "orders", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, violation := range rec.Violations() {
			t.Error(violation)
		}
	})
	return e, rec
}

// query expects a statement of package db by its name.
func query(mock sqlmock.Sqlmock, name string) *sqlmock.ExpectedQuery {
	return mock.ExpectQuery("-- name: " + name + " ")
}

// row is an answer of one row; the names of its columns do not matter.
func row(values ...driver.Value) *sqlmock.Rows {
	return sqlmock.NewRows(make([]string, len(values))).AddRow(values...)
}

// expectServerCheck expects the questions that come before the first attempt,
// and again after a failed one.
func expectServerCheck(mock sqlmock.Sqlmock) {
	describe := func() {
		query(mock, "DescribeServer").WillReturnRows(row(firstPID, false, 150000, "PostgreSQL 15", asked))
	}
	compare := func() {
		describe()
		query(mock, "Witness").WillReturnRows(row(secondPID, asked))
	}
	describe()
	compare()
	compare()
	mock.ExpectBegin()
	compare()
	query(mock, "ApplySettings").WillReturnRows(row(11))
	mock.ExpectRollback()
}

// expectElection expects an attempt that is granted.
func expectElection(mock sqlmock.Sqlmock, token int64) {
	expectAttempt(mock, "granted")
	query(mock, "Confirm").WillReturnRows(row(true, sessionPID, token))
}

// expectAttempt expects an attempt with the outcome "busy", "standby" or
// "granted". A recorder wants to be told of every change of leader, so the
// elector asks who leads. Without such a hook the statement is TryLock, and its
// answer ends with the pid.
func expectAttempt(mock sqlmock.Sqlmock, outcome string) *sqlmock.ExpectedQuery {
	return query(mock, "TryLockOrSee").WillReturnRows(row(outcome, sessionPID, 0, ""))
}

// expectBusy expects an attempt that finds another candidate leading.
func expectBusy(mock sqlmock.Sqlmock, pid int32, id string) {
	query(mock, "TryLockOrSee").WillReturnRows(row("busy", sessionPID, pid, id))
}

// expectHeartbeat expects a heartbeat.
func expectHeartbeat(mock sqlmock.Sqlmock) {
	query(mock, "Ping").WillReturnRows(row(sessionPID, false))
}

// expectHeartbeats expects as many.
func expectHeartbeats(mock sqlmock.Sqlmock, n int) {
	for range n {
		expectHeartbeat(mock)
	}
}

// expectResign expects the unlock at the end of a term.
func expectResign(mock sqlmock.Sqlmock) {
	query(mock, "Unlock").WillReturnRows(row(true))
}

// expectTerm expects a first term, up to its beginning.
func expectTerm(mock sqlmock.Sqlmock, token int64) {
	expectServerCheck(mock)
	expectElection(mock, token)
}

// never is longer than any patience: for WillDelayFor.
const never = 1000 * time.Hour

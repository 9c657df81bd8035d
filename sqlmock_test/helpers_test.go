// Package sqlmock_test plays to the elector the faults of a driver that only a mock can make:
// go-sqlmock answers each statement of the library, and testing/synctest makes time virtual.
//
// To test your own code, copy service_test.go, which needs nothing else of this package.
package sqlmock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// The backends of the connections: two for the server check, and the session's.
const (
	firstPID   = 101
	secondPID  = 102
	sessionPID = 200
)

// newMock makes a database that answers the expected statements, in that order, and nothing else.
// Call it inside the synctest bubble of the elector.
func newMock(t *testing.T) (*sql.DB, sqlmock.Sqlmock) {
	t.Helper()
	return newMockThat(t, func(err error) { t.Errorf("%.150s …", err) })
}

// newMockInAnyOrder makes a database for statements in an unknown order. Unexpected statements do not
// fail the test.
func newMockInAnyOrder(t *testing.T) (*sql.DB, sqlmock.Sqlmock) {
	t.Helper()
	pool, mock := newMockThat(t, func(error) {})
	mock.MatchExpectationsInOrder(false)
	return pool, mock
}

func newMockThat(t *testing.T, complains func(error)) (*sql.DB, sqlmock.Sqlmock) {
	t.Helper()
	// sqlmock forgets a database once its last connection is closed, and an elector closes that of
	// its session. These two connections stay open.
	dsn := fmt.Sprintf("%s %d", t.Name(), mocks.Add(1))
	direct, mock, err := sqlmock.NewWithDSN(dsn, sqlmock.QueryMatcherOption(partOf))
	if err != nil {
		t.Fatal(err)
	}
	pool := sql.OpenDB(&strict{direct.Driver(), dsn, complains})
	keep, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(err)
		}
		_ = errors.Join(keep.Close(), pool.Close(), direct.Close()) // sqlmock reports a close that was not expected
	})
	return pool, mock
}

var mocks atomic.Int64

// partOf matches a statement by a part of its text. (The matcher of sqlmock itself, a regular expression
// after the text was stripped by two others, takes most of the time of these tests.)
var partOf = sqlmock.QueryMatcherFunc(func(part, statement string) error {
	if !strings.Contains(statement, part) {
		return fmt.Errorf("could not match %.150q with %q", statement, part)
	}
	return nil
})

// newElector makes an elector with a lease of 10 s, a validity of 7 s, a heartbeat each 2 s, no
// validation, and an attempt about each second. It refuses a standby at once.
func newElector(t *testing.T, pool *sql.DB, opts ...elector.Option) (*elector.Elector, *hookstest.Recorder) {
	t.Helper()
	rec := hookstest.NewRecorder()
	opts = append([]elector.Option{elector.WithCandidateID("web-1"), elector.WithHooks(rec), elector.WithScope(elector.SessionScope), elector.WithReadOnlyTimeout(0), elector.WithTakeover(elector.Poll), elector.WithValidateInterval(0)}, opts...)
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

// inquiry expects a statement beside the session, in a transaction that has begun: its bound is set first.
func inquiry(mock sqlmock.Sqlmock, name string) *sqlmock.ExpectedQuery {
	query(mock, "ApplySettings").WithArgs(true, has("statement_timeout")).WillReturnRows(row(1))
	return query(mock, name)
}

// has matches an argument that contains the text.
type has string

func (text has) Match(v driver.Value) bool { return strings.Contains(fmt.Sprint(v), string(text)) }

// row returns an answer of one row. The names of its columns do not matter.
func row(values ...driver.Value) *sqlmock.Rows {
	return sqlmock.NewRows(make([]string, len(values))).AddRow(values...)
}

// expectServerCheck expects that the one elector of the mock checks the server, before the first
// attempt and after a failed one: with half of the questions once it has passed.
func expectServerCheck(mock sqlmock.Sqlmock) {
	if _, again := passed.LoadOrStore(mock, true); again {
		expectCheck(mock, turns[:len(turns)/2])
	} else {
		expectCheck(mock, turns)
	}
	if _, before := wasGranted.Load(mock); before { // was the server promoted since?
		query(mock, "Identify").WillReturnRows(row(1, 1, "", 0))
	}
}

// passed are the mocks whose server has passed a check, and wasGranted those that have granted a lock.
var passed, wasGranted sync.Map

// turns are the connections that a check asks, after one question to each.
const turns = "abaabbababbbbaabaaab"

// expectCheck expects one check.
func expectCheck(mock sqlmock.Sqlmock, turns string) {
	for _, turn := range "ab" + turns {
		pid := firstPID
		if turn == 'b' {
			pid = secondPID
		}
		query(mock, "DescribeServer").WillReturnRows(row(pid, false, 150000, "PostgreSQL 15", 0, false))
	}
	mock.ExpectBegin()
	query(mock, "ApplySettings").WillReturnRows(row(11))
	mock.ExpectRollback()
}

// noEpoch is the epoch that Confirm and Tokens return with a token if pgelector.epoch is not set.
const noEpoch = "0"

// timelineOne is the timeline 1, in the upper bits of each token that a server returns.
const timelineOne int64 = 1 << 48

// These are the marks of two transactions.
const mark, otherMark = "1767225600.000001", "1767225600.000002"

// expectElection expects an attempt that is granted.
func expectElection(mock sqlmock.Sqlmock, token int64) {
	expectAttempt(mock, "granted")
	query(mock, "Confirm").WillReturnRows(row(true, sessionPID, timelineOne|token, noEpoch, false, ""))
	wasGranted.Store(mock, true)
}

// expectAttempt expects an attempt with the outcome "busy", "standby" or "granted". It also reads
// the leader, because a recorder has a LeaderChanged hook. Without such a hook the statement is
// TryLock, and its answer ends with the pid.
func expectAttempt(mock sqlmock.Sqlmock, outcome string) *sqlmock.ExpectedQuery {
	return query(mock, "TryLock").WillReturnRows(row(outcome, outcome == "granted" || outcome == "deputy", sessionPID, 0, ""))
}

// expectBusy expects an attempt that finds another candidate leading.
func expectBusy(mock sqlmock.Sqlmock, pid int32, id string) {
	query(mock, "TryLock").WillReturnRows(row("busy", false, sessionPID, pid, id))
}

// expectHeartbeat expects a heartbeat.
func expectHeartbeat(mock sqlmock.Sqlmock) {
	query(mock, "Ping").WillReturnRows(row(sessionPID, false, false))
}

// expectHeartbeats expects n heartbeats.
func expectHeartbeats(mock sqlmock.Sqlmock, n int) {
	for range n {
		expectHeartbeat(mock)
	}
}

// expectResign expects the unlock at the end of a term.
func expectResign(mock sqlmock.Sqlmock) {
	query(mock, "Unlock").WillReturnRows(row(true))
}

// ours is the name of each fenced transaction.
const ours = "4711 1700000000.000000"

// expectTerm expects the start of a first term.
func expectTerm(mock sqlmock.Sqlmock, token int64) {
	expectServerCheck(mock)
	expectElection(mock, token)
}

// never is a delay for WillDelayFor that is longer than any test.
const never = 1000 * time.Hour

// strict is the mock's driver. It reports each call that the mock does not expect, since the elector
// may not report the error.
type strict struct {
	driver    driver.Driver
	dsn       string
	complains func(error)
}

func (s *strict) Driver() driver.Driver { return s.driver }

func (s *strict) Connect(context.Context) (driver.Conn, error) {
	conn, err := s.driver.Open(s.dsn)
	return &strictConn{conn, s}, err
}

type strictConn struct {
	driver.Conn
	of *strict
}

func (c *strictConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	return rows, c.of.seen(err)
}

func (c *strictConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if query == "BEGIN" { // the elector closes a connection for good
		return nil, driver.ErrBadConn
	}
	result, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	return result, c.of.seen(err)
}

func (c *strictConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	return stmt, c.of.seen(err)
}

func (c *strictConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	return tx, c.of.seen(err)
}

func (c *strictConn) Ping(ctx context.Context) error {
	return c.of.seen(c.Conn.(driver.Pinger).Ping(ctx))
}

var unexpected = regexp.MustCompile("was not expected|could not match|do not match")

func (s *strict) seen(err error) error {
	if err != nil && unexpected.MatchString(err.Error()) {
		s.complains(err)
	}
	return err
}

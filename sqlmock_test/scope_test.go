package sqlmock_test

import (
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// expectPooler expects the check of the server to find a pooler: two connections have one backend.
func expectPooler(mock sqlmock.Sqlmock) {
	upTo(1, firstPID, false, 150000, "PostgreSQL 15", 0, false)(mock)
}

func expectTransaction(mock sqlmock.Sqlmock) {
	mock.ExpectBegin()
	mock.ExpectExec("-- name: RepeatableRead ").WillReturnResult(sqlmock.NewResult(0, 0))
	mock.ExpectExec("-- name: ReadCommitted ").WillReturnResult(sqlmock.NewResult(0, 0))
}

// expectSettingsInside expects the beginning of the check whether a transaction keeps the promise.
// The driver keeps so many prepared statements with names.
func expectSettingsInside(mock sqlmock.Sqlmock, named int64) *sqlmock.ExpectedQuery {
	expectTransaction(mock)
	query(mock, "DescribeServer").WillReturnRows(row(firstPID, false, 150000, "PostgreSQL 15", 0, false))
	mock.ExpectExec("-- name: NamedStatement ").WillReturnResult(sqlmock.NewResult(0, named))
	return query(mock, "ApplySettings").WillReturnRows(row(11))
}

// expectRestInside expects the rest of that check, which passes.
func expectRestInside(mock sqlmock.Sqlmock) {
	const started = "1.5"
	expectTransaction(mock)
	query(mock, "ShowsSnapshot").WillReturnRows(row(firstPID, started, mark, false, true))
	query(mock, "TryPair").WillReturnRows(row(true))
	query(mock, "PingTransaction").WillReturnRows(row(mark))
	query(mock, "ShowsSnapshot").WillReturnRows(row(secondPID, started, otherMark, false, true))
	query(mock, "PairIsFree").WillReturnRows(row(false, secondPID))
	mock.ExpectRollback()
	query(mock, "PairIsFree").WillReturnRows(row(true, secondPID))
	mock.ExpectRollback()
}

// expectUseInside expects the first transaction after that check. It fails with errPlain.
func expectUseInside(mock sqlmock.Sqlmock) {
	mock.ExpectBegin()
	mock.ExpectExec("-- name: RepeatableRead ").WillReturnError(errPlain)
	mock.ExpectRollback()
}

// With a pooler, a candidate leads inside a transaction if that keeps the promise. Otherwise the
// error says what was found outside and inside.
func TestAPoolerIsRefusedOnlyIfTransactionsCannotKeepThePromise(t *testing.T) {
	const both = "; and inside a transaction: "
	full := &pgconn.PgError{Code: "53300", Message: "too many connections"}
	violated := &pgconn.PgError{Code: "08P01", Message: "protocol violation"}
	for name, c := range map[string]struct {
		scope     elector.Scope
		expect    func(sqlmock.Sqlmock)
		want      []error
		not       error
		says      string
		permanent bool
	}{
		"it keeps it": {elector.Auto, func(mock sqlmock.Sqlmock) {
			expectPooler(mock)
			expectSettingsInside(mock, 0)
			expectRestInside(mock)
			expectUseInside(mock)
		}, []error{errPlain}, elector.ErrSessionPooled, "", false},
		"the server is full": {elector.Auto, func(mock sqlmock.Sqlmock) {
			expectPooler(mock)
			mock.ExpectBegin().WillReturnError(full)
		}, []error{full}, elector.ErrSessionPooled, "(inside a transaction, because a pooler shares backends", false},
		"the server is full, and nobody looked outside": {elector.TransactionScope, func(mock sqlmock.Sqlmock) {
			mock.ExpectBegin().WillReturnError(full)
		}, []error{full}, elector.ErrSessionPooled, "begin a transaction", false},
		"the next server is too old": {elector.Auto, func(mock sqlmock.Sqlmock) {
			expectPooler(mock)
			expectTransaction(mock)
			query(mock, "DescribeServer").WillReturnRows(row(firstPID, false, 139999, "PostgreSQL 13.99", 0, false))
			mock.ExpectRollback()
		}, []error{elector.ErrSessionPooled, elector.ErrUnsupportedServer}, nil, both, true},
		"three transactions are refused, with lib/pq": {elector.Auto, func(mock sqlmock.Sqlmock) {
			expectPooler(mock)
			for range 3 {
				mock.ExpectBegin().WillReturnError(driver.ErrBadConn)
			}
		}, []error{driver.ErrBadConn}, elector.ErrSessionPooled, "(inside a transaction, because a pooler shares backends", false},
		"three transactions are refused": {elector.Auto, func(mock sqlmock.Sqlmock) {
			expectPooler(mock)
			for range 3 {
				mock.ExpectBegin().WillReturnError(violated)
			}
		}, []error{violated}, elector.ErrSessionPooled, "(inside a transaction, because a pooler shares backends", false},
		"it keeps it, and the driver keeps statements": {elector.Auto, func(mock sqlmock.Sqlmock) {
			expectPooler(mock)
			expectSettingsInside(mock, 1)
			expectRestInside(mock)
		}, []error{elector.ErrSessionPooled}, nil, "default_query_exec_mode=exec", true},
		"the driver keeps statements, and there is a pooler": {elector.TransactionScope, func(mock sqlmock.Sqlmock) {
			expectSettingsInside(mock, 1)
			expectRestInside(mock)
			expectPooler(mock)
		}, []error{elector.ErrSessionPooled}, nil, "default_query_exec_mode=exec", true},
		"the driver keeps statements, and there is none": {elector.TransactionScope, func(mock sqlmock.Sqlmock) {
			expectSettingsInside(mock, 1)
			expectRestInside(mock)
			expectCheck(mock, turns)
			expectUseInside(mock)
		}, []error{errPlain}, elector.ErrSessionPooled, "", false},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			c.expect(mock)
			e, rec := newElector(t, pool, elector.WithScope(c.scope))
			_, elected, err := e.TryCampaign(t.Context())
			wantError(t, err, c.want...)
			if elected || c.not != nil && errors.Is(err, c.not) || !contains(err, c.says) || contains(err, "; and inside") != (c.says == both) ||
				contains(err, "because a pooler shares backends") != strings.Contains(c.says, "because a pooler shares backends") {
				t.Errorf("elected %t, %v", elected, err)
			}
			wantFailures(t, rec, hooks.OpCampaign)
			if f := rec.Failures()[0]; f.Permanent != c.permanent {
				t.Errorf("permanent %t: %v", f.Permanent, f.Err)
			}
			wantInUse(t, pool, 1)
		})
	}
}

// Each check of the server would report it otherwise.
func TestASettingThatIsRefusedInsideATransactionIsLeftOutAndReportedOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		names := sessionSettings(t)
		refused := &pgconn.PgError{Code: "22023", Message: "refused"}
		pool, mock := newMock(t)
		e, rec := newElector(t, pool, elector.WithScope(elector.TransactionScope))
		for range 2 {
			expectSettingsInside(mock, 0).WillReturnError(refused)
			mock.ExpectRollback()
			expectEachTried(mock, names, "jit", refused)
			query(mock, "DescribeServer").WillReturnRows(row(secondPID, false, 150000, "PostgreSQL 15", 0, false))
			expectSettingsInside(mock, 0).WithArgs(true, lacks("jit"))
			expectRestInside(mock)
			expectUseInside(mock)
			_, _, err := e.TryCampaign(t.Context())
			wantError(t, err, errPlain)
		}
		wantFailures(t, rec, hooks.OpSetting, hooks.OpCampaign, hooks.OpCampaign)
	})
}

package sqlmock_test

import (
	"database/sql/driver"
	"errors"
	"strings"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
)

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
		begin := mock.ExpectBegin().WillDelayFor(f.after)
		if f.err != nil {
			begin.WillReturnError(f.err)
		}
	case "ROLLBACK":
		rollback := mock.ExpectRollback()
		if f.err != nil {
			rollback.WillReturnError(f.err)
		}
	case "WaitLock":
		wait := mock.ExpectExec("-- name: WaitLock ").WillDelayFor(f.after).WillReturnResult(sqlmock.NewResult(0, 0))
		if f.err != nil {
			wait.WillReturnError(f.err)
		}
	case "PREPARE Confirm", "PREPARE Unlock", "PREPARE TryAsDeputy":
		prepare := mock.ExpectPrepare("-- name: " + strings.TrimPrefix(s.name, "PREPARE ") + " ").WillDelayFor(f.after)
		if f.err != nil {
			prepare.WillReturnError(f.err)
		}
	default:
		q := query(mock, s.name).WillDelayFor(f.after).WillReturnRows(row(s.answer...))
		if f.err != nil {
			q.WillReturnError(f.err)
		}
		if f.name == badAnswer.name {
			q.WillReturnRows(row(values("of", "no", "use", "at", "all", "to", "anybody")...))
		}
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

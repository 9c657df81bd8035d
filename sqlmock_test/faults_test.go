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
	after time.Duration // for how long it does not answer, unless its context ends
	want  error         // what the elector's error wraps
}

// The faults that every statement can have. What they have in common is that
// nothing is known about the connection afterwards.
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
	badAnswer = fault{name: "answer of the wrong shape"} // no error to find: it is of package sql
)

// A statement is one that the elector sends, with the answer that it hopes for.
type statement struct {
	name   string
	answer []driver.Value
}

// expect expects the statement, with a fault; the zero fault is none.
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

// faults are those that the statement can have: sqlmock cannot delay a
// ROLLBACK, nor give it a wrong shape.
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

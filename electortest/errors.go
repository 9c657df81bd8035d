package electortest

import (
	"fmt"
	"io"
)

// An Error is what the server answers instead of a result. Like the errors of
// lib/pq and pgx it has a method SQLState.
type Error struct {
	Code    string // the SQLSTATE
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("electortest: %s (SQLSTATE %s)", e.Message, e.Code)
}

// SQLState is the code of the error (PostgreSQL manual, appendix A).
func (e *Error) SQLState() string { return e.Code }

func newError(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// The codes that this server uses.
const (
	unsupported        = "0A000"
	invalidValue       = "22023"
	internalError      = "XX000"
	failedTransaction  = "25P02"
	idleInTransaction  = "25P03"
	transactionTooLong = "25P04"
	undefinedObject    = "42704"
	outOfMemory        = "53200"
	tooManyConnections = "53300"
	lockNotAvailable   = "55P03"
	queryCanceled      = "57014"
	adminShutdown      = "57P01"
	crashShutdown      = "57P02"
	idleSession        = "57P05"
	clientLost         = "08006"
)

// errCut is what a client reads from a connection whose other end has gone
// without a word.
var errCut = fmt.Errorf("electortest: the connection was closed by the other end: %w", io.ErrUnexpectedEOF)

var errTransactionTooLong = newError(transactionTooLong, "terminating connection due to transaction timeout")

// isFatal reports whether an error has ended the session that it is answered to.
func isFatal(err error) bool {
	e, ok := err.(*Error)
	if !ok {
		return err == errCut
	}
	switch e.Code {
	case idleInTransaction, transactionTooLong, adminShutdown, crashShutdown, idleSession, clientLost:
		return true
	}
	return false
}

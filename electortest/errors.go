package electortest

import (
	"fmt"
	"io"
)

// An Error is an error of the server. Like the errors of lib/pq and pgx it has a method
// SQLState.
type Error struct {
	Code    string // the SQLSTATE
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("electortest: %s (SQLSTATE %s)", e.Message, e.Code)
}

// SQLState returns the SQLSTATE.
func (e *Error) SQLState() string { return e.Code }

func newError(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// The SQLSTATEs of this server.
const (
	unsupported        = "0A000"
	invalidValue       = "22023"
	internalError      = "XX000"
	failedTransaction  = "25P02"
	idleInTransaction  = "25P03"
	undefinedObject    = "42704"
	outOfMemory        = "53200"
	tooManyConnections = "53300"
	lockNotAvailable   = "55P03"
	queryCanceled      = "57014"
	adminShutdown      = "57P01"
	idleSession        = "57P05"
)

// errCut is the client's error if the other end closed the connection without a message.
var errCut = fmt.Errorf("electortest: the connection was closed by the other end: %w", io.ErrUnexpectedEOF)

// isFatal reports whether the error ended the session.
func isFatal(err error) bool {
	e, ok := err.(*Error)
	if !ok {
		return err == errCut
	}
	switch e.Code {
	case idleInTransaction, adminShutdown, idleSession:
		return true
	}
	return false
}

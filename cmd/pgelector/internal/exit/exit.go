// Package exit names the exit codes of the command pgelector. docs/command.md
// has the same table, and a test compares them.
package exit

import (
	"errors"
	"fmt"
)

// The exit codes that are not those of a command that run ran. They are those of
// sysexits.h where one fits, and none that a shell uses.
const (
	OK         = 0
	Failure    = 1  // anything else
	Negative   = 3  // the answer is no: nobody leads, or the operator declined
	Usage      = 64 // bad usage: flags, arguments, or settings that cannot hold together
	Connect    = 69 // no primary could be reached: away, a standby, or it did not let us in
	Lost       = 75 // leadership was lost while the command ran, which was ended for it
	Privilege  = 77 // the role lacks a privilege
	Refused    = 78 // the server cannot keep the promise, today or tomorrow: a pooler, too old
	SignalBase = 128
)

// Error is an error that has an exit code of its own.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// With gives an error an exit code; nil stays nil.
func With(code int, err error) error {
	if err == nil {
		return nil
	}
	return &Error{code, err}
}

// Usagef is an error of bad usage.
func Usagef(format string, args ...any) error {
	return &Error{Usage, fmt.Errorf(format, args...)}
}

// Silently is an exit code without a message.
func Silently(code int) error {
	if code == OK {
		return nil
	}
	return &Error{code, ErrSilent}
}

// ErrSilent says that there is nothing to say.
var ErrSilent = errors.New("")

// CodeOf is the exit code for an error.
func CodeOf(err error) int {
	var e *Error
	switch {
	case err == nil:
		return OK
	case errors.As(err, &e):
		return e.Code
	default:
		return Failure
	}
}

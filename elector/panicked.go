package elector

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// A panicError is the error of a panic in a function of the user's. Its text is one line; the stack is
// apart, so that a log can have it in a field of its own.
type panicError struct {
	what  error // which function panicked
	value any
	stack string
}

// newPanicError is called where the panic is recovered.
func newPanicError(what error, value any) *panicError {
	return &panicError{what, value, string(debug.Stack())}
}

func (e *panicError) Error() string {
	return e.what.Error() + ": " + strings.Join(strings.Fields(fmt.Sprint(e.value)), " ")
}

// Unwrap returns what, and the value if that is an error.
func (e *panicError) Unwrap() []error {
	if err, ok := e.value.(error); ok {
		return []error{e.what, err}
	}
	return []error{e.what}
}

// Stack is that of the goroutine that panicked.
func (e *panicError) Stack() string { return e.stack }

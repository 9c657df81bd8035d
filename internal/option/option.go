// Package option is the error of options that cannot be used. It keeps the options
// apart from what is wrong with them, so that a program that has other names for
// them, such as flags, can name its own.
package option

import (
	"errors"
	"fmt"
	"strings"
)

// Value is an option, by the name that Go programs use, and what it was set to.
type Value struct{ Name, Text string }

// Of is an option that was set to a value.
func Of(name string, value any) Value { return Value{name, fmt.Sprint(value)} }

func (v Value) String() string { return v.Name + "(" + v.Text + ")" }

// Error is of options that cannot be used as they are, or not together.
type Error struct {
	Options []Value // the one to change first comes first
	Want    string  // what does not hold, such as "want drain >= 0"
}

// Bad is the Error of an option that cannot be used at all.
func (v Value) Bad(format string, args ...any) error {
	return &Error{[]Value{v}, fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return e.Name(Value.String) }

// Name writes the error with other names.
func (e *Error) Name(name func(Value) string) string {
	text := ""
	for i, o := range e.Options {
		switch {
		case i == 1:
			text += " with "
		case i > 1:
			text += " and "
		}
		text += name(o)
	}
	return text + ": " + e.Want
}

// In is the Error that err wraps; ok is false if it wraps none.
func In(err error) (e *Error, ok bool) {
	ok = errors.As(err, &e)
	return e, ok
}

// MaxElectionBytes is how long the name of an election may be.
const MaxElectionBytes = 1024

// CheckElection returns an error unless an election may have that name.
func CheckElection(name string) error {
	if name == "" || len(name) > MaxElectionBytes || strings.ContainsRune(name, 0) {
		return fmt.Errorf("election name %q: want 1 to %d bytes without NUL", name, MaxElectionBytes)
	}
	return nil
}

package pgerr

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// ErrUnreadable is returned when the driver cannot parse the connection string of a pool.
var ErrUnreadable = errors.New("the driver cannot parse the connection string: is a value with spaces quoted? " +
	"Is each special character of a URL's password percent-encoded?")

// unparsed are how the texts of lib/pq's errors begin that say so. Some repeat a part of the string.
var unparsed = []string{`missing "=" after `, "missing character after backslash", "unterminated quoted string literal in connection string",
	"invalid connection protocol: "}

// Connecting returns err, which a call returned that may have connected. If the driver cannot parse the connection string, its error
// may repeat a part of the string, such as the password, or all of it. Then Connecting returns ErrUnreadable instead, with what the
// driver found wrong, as far as that repeats no password. This package cannot import the type of pgx's error.
func Connecting(err error) error {
	if err == nil {
		return nil
	}
	if parse, ok := errors.AsType[*url.Error](err); ok && parse.Op == "parse" {
		return ErrUnreadable
	}
	if strings.HasPrefix(err.Error(), `pq: wrong value for "`) { // of a key other than the password
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	for _, begin := range unparsed {
		if strings.HasPrefix(err.Error(), begin) {
			return ErrUnreadable
		}
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if fmt.Sprintf("%T", e) == "*pgconn.ParseConfigError" {
			if why := errors.Unwrap(e); why != nil {
				return fmt.Errorf("%w: %w", ErrUnreadable, why)
			}
			return ErrUnreadable
		}
	}
	return err
}

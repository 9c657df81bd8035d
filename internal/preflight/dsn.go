package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/pgelector/pgelector/internal/pgerr"
)

// errBadDSN is returned when the driver cannot read the connection string of a pool that has never connected.
var errBadDSN = fmt.Errorf("%w: the driver cannot read the connection string: correct it, and start again (docs/runbook.md#gave-up)", pgerr.ErrConfig)

// isBadDSN reports whether the driver cannot read the connection string, so that no attempt reaches a server. Of the drivers, pgx
// says so, by the type of its error, which this package cannot import. A file that the string names may appear later, so
// an error about a file is no such error.
func isBadDSN(err error) bool {
	if _, ofFile := errors.AsType[*fs.PathError](err); ofFile {
		return false
	}
	for err != nil {
		if fmt.Sprintf("%T", err) == "*pgconn.ParseConfigError" {
			return true
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			return slices.ContainsFunc(many.Unwrap(), isBadDSN)
		}
		err = errors.Unwrap(err)
	}
	return false
}

package preflight

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/pgelector/pgelector/internal/pgerr"
)

// errBadDSN is returned when the driver cannot read the connection string of a pool that has never connected.
var errBadDSN = fmt.Errorf("%w: the driver cannot read the connection string: correct it, and start again (docs/runbook.md#gave-up)", pgerr.ErrConfig)

// isBadDSN reports whether the driver cannot read the connection string, so that no attempt reaches a server. A file that the string
// names may appear later, so an error about a file is no such error.
func isBadDSN(err error) bool {
	_, ofFile := errors.AsType[*fs.PathError](err)
	return !ofFile && errors.Is(err, pgerr.ErrUnreadable)
}

package exit

import (
	"errors"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// Classify gives an error of the library its exit code, unless it has one.
func Classify(err error) error {
	var has *Error
	if err = ByFlags(err, nil); err == nil || errors.As(err, &has) {
		return err
	}
	for _, class := range []struct {
		code int
		errs []error
	}{
		{Refused, []error{elector.ErrUnsupportedServer, elector.ErrSessionPooled}},
		{Usage, []error{elector.ErrConfig, connect.ErrUsage}},
		{Connect, []error{connect.ErrConnect, elector.ErrGaveUp, elector.ErrServerReadOnly}},
	} {
		for _, is := range class.errs {
			if errors.Is(err, is) {
				return With(class.code, err)
			}
		}
	}
	if pgerr.State(err) == "42501" {
		return With(Privilege, err)
	}
	return err
}

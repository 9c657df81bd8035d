package preflight

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgelector/pgelector/internal/pgerr"
)

func TestABadConnectionStringIsTold(t *testing.T) {
	for dsn, bad := range map[string]bool{
		"postgres://app:secret@db:port/app": true, "host=db port=x": true, "nonsense": true, "postgres://db/app?sslmode=perhaps": true,
		"postgres://db/app?sslmode=verify-full&sslrootcert=/nowhere/ca.pem": false, // which may be mounted later
	} {
		_, err := pgconn.ParseConfig(dsn)
		if err == nil {
			t.Errorf("pgx reads %s", dsn)
		}
		err = pgerr.Connecting(err) // as where connections come from
		for _, wrapped := range []error{err, fmt.Errorf("wrapped: %w", err), fmt.Errorf("%w: %w", errors.New("some error"), err), errors.Join(errors.New("some error"), err)} {
			if isBadDSN(wrapped) != bad {
				t.Errorf("%s: %v: %v", dsn, wrapped, !bad)
			}
		}
	}
	for _, err := range append(bothDrivers("08006"), nil, io.EOF, errors.New("some error"), &net.OpError{Op: "dial", Err: errors.New("some error")}) {
		if isBadDSN(err) {
			t.Errorf("%v", err)
		}
	}
}

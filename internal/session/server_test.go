package session

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

func TestAnErrorThatNoRetryMendsIsPermanent(t *testing.T) {
	server := func(learned ...func(*Server)) *Server {
		v := &Server{}
		for _, learn := range learned {
			learn(v)
		}
		return v
	}
	primary, passed := func(v *Server) { v.primary.Store(true) }, func(v *Server) { v.passed.Store(true) }
	for _, c := range []struct {
		of   *Server
		err  error
		want bool
	}{
		{server(), ErrSessionPooled, true},
		{server(), ErrNoAdvisoryLocks, true},
		{server(), ErrPoolTooSmall, true},
		{server(), ErrServerTooOld, true},
		{server(), ErrServerReadOnly, true},
		{server(), ErrSessionLost, false},
		{server(), ErrLeaseExpired, false},
		{server(), context.Canceled, false},
		{server(), driver.ErrBadConn, false},
		{server(primary), ErrServerReadOnly, false},
		{server(primary), ErrSessionPooled, true},
		{server(primary, passed), ErrSessionPooled, false},
		{server(primary, passed), ErrNoAdvisoryLocks, true},
		{server(primary, passed), ErrPoolTooSmall, true},
		{server(primary, passed), ErrServerTooOld, true},
	} {
		if got := c.of.Refuses(fmt.Errorf("wrapped: %w", c.err)); got != c.want {
			t.Errorf("refused after %v (was primary: %t, has passed: %t): %t", c.err, c.of.primary.Load(), c.of.passed.Load(), got)
		}
	}
	if server().Refuses(nil) || server().Refuses(errors.New("another")) {
		t.Error("another error is permanent")
	}
}

// bothDrivers returns the errors with which the drivers report an SQLSTATE.
func bothDrivers(state string) []error {
	return []error{&pgconn.PgError{Code: state}, &pq.Error{Code: pqerror.Code(state)}}
}

func TestExplainNamesThePoolerAndKeepsTheDriversError(t *testing.T) {
	for state, pooled := range map[string]bool{"42P05": true, "26000": true, "08P01": false, "57P01": false, "42601": false} {
		for _, err := range bothDrivers(state) {
			got := Explain(err)
			if errors.Is(got, ErrSessionPooled) != pooled || !errors.Is(got, err) {
				t.Errorf("Explain(%v) = %v", err, got)
			}
		}
	}
	if again := Explain(Explain(bothDrivers("26000")[0])); again.Error() != Explain(bothDrivers("26000")[0]).Error() {
		t.Errorf("explained twice: %v", again)
	}
}

func TestExplainNamesTheFullLockTable(t *testing.T) {
	for _, err := range bothDrivers("53200") {
		if got := Explain(err); !errors.Is(got, ErrLockTableFull) || !errors.Is(got, err) {
			t.Errorf("Explain(%v) = %v", err, got)
		}
	}
}

func TestRefusesSettingRecognisesErrorsOfTheSettingOnly(t *testing.T) {
	for state, refused := range map[string]bool{
		"22023": true, "42501": true, "55P02": true, "0A000": true, "42704": true,
		"42P05": false, "26000": false, "08P01": false, "57P01": false, "57014": false, "53300": false, "25006": false,
	} {
		for _, err := range bothDrivers(state) {
			if refusesSetting(err) != refused {
				t.Errorf("refusesSetting(%v) = %v", err, !refused)
			}
		}
	}
}

package elector

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/pgelector/pgelector/hooks"
)

// bothDrivers are the errors with which the drivers report an SQLSTATE.
func bothDrivers(state string) []error {
	return []error{&pgconn.PgError{Code: state}, &pq.Error{Code: pqerror.Code(state)}}
}

func TestTheSQLStateOfBothDriversIsFound(t *testing.T) {
	for _, err := range bothDrivers("57P05") {
		if got := sqlState(fmt.Errorf("elector: something: %w", err)); got != "57P05" {
			t.Errorf("%T: %q", err, got)
		}
	}
	for _, err := range []error{nil, io.EOF, ErrSessionLost} {
		if got := sqlState(err); got != "" {
			t.Errorf("%v: %q", err, got)
		}
	}
}

func TestBrokenMeansThatTheConnectionIsGone(t *testing.T) {
	want := map[error]bool{
		nil: false, ErrGaveUp: false, context.DeadlineExceeded: false,
		driver.ErrBadConn: true, io.EOF: true, io.ErrUnexpectedEOF: true,
		&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}: true,
	}
	for state, gone := range map[string]bool{"57P01": true, "57P02": true, "57P05": true, "57P03": false, "57014": false, "53300": false, "42P05": false} {
		for _, err := range bothDrivers(state) {
			want[err] = gone
		}
	}
	for err, gone := range want {
		if broken(err) != gone || err != nil && broken(fmt.Errorf("wrapped: %w", err)) != gone {
			t.Errorf("broken(%v) = %v", err, broken(err))
		}
	}
}

func TestExplainNamesThePoolerAndKeepsTheDriversError(t *testing.T) {
	for state, pooled := range map[string]bool{"42P05": true, "26000": true, "08P01": false, "57P01": false, "42601": false} {
		for _, err := range bothDrivers(state) {
			got := explain(err)
			if errors.Is(got, ErrSessionPooled) != pooled || !errors.Is(got, err) || refused(got) != pooled {
				t.Errorf("explain(%v) = %v", err, got)
			}
		}
	}
	if again := explain(explain(bothDrivers("26000")[0])); again.Error() != explain(bothDrivers("26000")[0]).Error() {
		t.Errorf("explained twice: %v", again)
	}
}

func TestRefusesSettingIsAboutTheSettingAndNotTheSession(t *testing.T) {
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

func TestEveryRefusalIsPermanent(t *testing.T) {
	for _, err := range []error{ErrSessionPooled, ErrNoAdvisoryLocks, ErrPoolTooSmall, ErrServerTooOld, ErrServerReadOnly} {
		if !refused(fmt.Errorf("wrapped: %w", err)) {
			t.Errorf("%v is not refused", err)
		}
	}
	for _, err := range []error{nil, ErrSessionLost, ErrLeaseExpired, ErrConfig, context.Canceled, driver.ErrBadConn} {
		if refused(err) {
			t.Errorf("%v is refused", err)
		}
	}
}

func TestTheReasonOfACause(t *testing.T) {
	for _, c := range []struct {
		cause error
		want  hooks.Reason
		lost  bool
	}{
		{&ending{hooks.Resigned, ErrResigned}, hooks.Resigned, false},
		{&ending{hooks.Shutdown, ErrStopped}, hooks.Shutdown, false},
		{&ending{hooks.LeadFailed, because(ErrLeadFailed, io.EOF)}, hooks.LeadFailed, false},
		{&ending{hooks.Shutdown, ErrLeaseExpired}, hooks.Shutdown, false}, // what the caller's cause wraps does not count
		{fmt.Errorf("wrapped: %w", &ending{hooks.Unhealthy, ErrUnhealthy}), hooks.Unhealthy, false},
		{fmt.Errorf("%w: no answer", ErrLeaseExpired), hooks.LeaseExpired, true},
		{because(ErrSessionLost, io.EOF), hooks.SessionLost, true},
		{io.EOF, hooks.SessionLost, true},
	} {
		if got := reasonOf(c.cause); got != c.want || lost(c.cause) != c.lost {
			t.Errorf("%v: %s, lost %v", c.cause, got, lost(c.cause))
		}
	}
}

func TestAWrappedErrorStaysWithinReachAndIsNotWrappedTwice(t *testing.T) {
	once := because(ErrSessionLost, io.EOF)
	if twice := because(ErrSessionLost, once); twice != once || !errors.Is(once, ErrSessionLost) || !errors.Is(once, io.EOF) {
		t.Errorf("got %v, %v", once, twice)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	if err := causeOr(ctx, io.EOF); err != io.EOF {
		t.Errorf("got %v", err)
	}
	cancel(ErrStopped)
	if err := causeOr(ctx, io.EOF); !errors.Is(err, ErrStopped) || !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

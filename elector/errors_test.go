package elector

import (
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/pgerr"
)

func TestTheReasonOfACause(t *testing.T) {
	for _, c := range []struct {
		cause error
		want  hooks.Reason
		lost  bool
	}{
		{&ending{hooks.Resigned, ErrResigned}, hooks.Resigned, false},
		{&ending{hooks.Shutdown, ErrStopped}, hooks.Shutdown, false},
		{&ending{hooks.LeadFailed, pgerr.Wrap(ErrLeadFailed, io.EOF)}, hooks.LeadFailed, false},
		{&ending{hooks.Shutdown, ErrLeaseExpired}, hooks.Shutdown, false}, // what the caller's cause wraps is ignored
		{fmt.Errorf("wrapped: %w", &ending{hooks.Unhealthy, ErrUnhealthy}), hooks.Unhealthy, false},
		{fmt.Errorf("%w: no answer", ErrLeaseExpired), hooks.LeaseExpired, true},
		{pgerr.Wrap(ErrSessionLost, io.EOF), hooks.SessionLost, true},
		{io.EOF, hooks.SessionLost, true},
	} {
		if got := reasonOf(c.cause); got != c.want || lost(c.cause) != c.lost {
			t.Errorf("%v: %s, lost %v", c.cause, got, lost(c.cause))
		}
	}
}

func TestOnlyARollbackInsideTheTermIsRetryable(t *testing.T) {
	state := &pgconn.PgError{Code: "40001"}
	rolledBack := pgerr.Wrap(ErrRolledBack, state)
	for _, c := range []struct {
		err  error
		want bool
	}{
		{rolledBack, true},
		{state, false},
		{pgerr.Wrap(ErrOutcomeUnknown, state), false},
		{pgerr.Wrap(ErrNotLeader, rolledBack), false},
		{ErrRolledBack, false},
		{nil, false},
	} {
		if got := Retryable(c.err); got != c.want {
			t.Errorf("Retryable(%v) = %v", c.err, got)
		}
	}
}

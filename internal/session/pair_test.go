package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// answering runs a test with a session whose driver answers by the names of statements.
func answering(t *testing.T, answers map[string]drivertest.Rows, errs map[string]error, test func(t *testing.T, from *Source)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pool := (&drivertest.Driver{
			Exec: func(context.Context, string) (int64, error) { return 0, nil },
			Query: func(_ context.Context, statement string, _ []any) (drivertest.Rows, error) {
				name := drivertest.NameOf(statement)
				return answers[name], errs[name]
			},
		}).Open()
		defer pool.Close()
		test(t, NewSource(pool, Config{Name: "web-1", Scope: SessionScope, Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second},
			Report: func(context.Context, Task, error) {}}))
	})
}

func TestALockOfASessionsOwnIsHeldOrTheErrorSaysWhyNot(t *testing.T) {
	errTaken := errors.New("taken")
	for name, c := range map[string]struct {
		granted bool
		err     error
		want    error
	}{"held": {granted: true}, "taken": {want: errTaken}, "failed": {err: drivertest.State("53200"), want: drivertest.State("53200")}} {
		t.Run(name, func(t *testing.T) {
			answering(t, map[string]drivertest.Rows{"TryPair": {{c.granted}}}, map[string]error{"TryPair": c.err}, func(t *testing.T, from *Source) {
				s, err := from.Borrow(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer s.Discard()
				if err := s.HoldPair(7, errTaken); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			})
		})
	}
}

func TestASessionIsOpenedOnlyOnAPrimaryAndOutsideATransaction(t *testing.T) {
	for name, c := range map[string]struct {
		prepared, inside drivertest.Rows
		want             error
	}{
		"a primary":                {drivertest.Rows{{int64(5), false, "", "then"}}, drivertest.Rows{{false}}, nil},
		"a standby":                {drivertest.Rows{{int64(5), true, "", "then"}}, drivertest.Rows{{false}}, pgerr.ErrServerReadOnly},
		"a transaction of another": {drivertest.Rows{{int64(5), false, "", "then"}}, drivertest.Rows{{true}}, pgerr.ErrOpenTransaction},
	} {
		t.Run(name, func(t *testing.T) {
			answering(t, map[string]drivertest.Rows{"PrepareWait": c.prepared, "InTransaction": c.inside}, nil, func(t *testing.T, from *Source) {
				s, err := from.OpenChecked(t.Context())
				if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if err == nil {
					if s.PID() != 5 || !s.IsBackend(5, "then") || s.IsBackend(6, "then") || s.IsBackend(5, "now") {
						t.Errorf("on backend %d", s.PID())
					}
					s.Discard()
				}
				if n := from.Pool().Stats().InUse; n != 0 {
					t.Errorf("%d connections are in use", n)
				}
			})
		})
	}
}

package transaction

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/session"
)

var _ lock.Owner = &Transaction{}

// Two servers may have backends with one process id.
func TestOnlyATransactionOfTheSessionsServerHoldsItsLocks(t *testing.T) {
	pool := new(drivertest.Driver).Open()
	defer pool.Close()
	from := session.NewSource(pool, session.Config{Scope: session.TransactionScope, Lease: lease.Lease{Length: time.Minute}, Report: func(context.Context, session.Task, error) {}})
	s, err := from.Borrow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Discard()
	owner := own(s, from)
	s.Backend.SetMark("170.5", "171.25")
	for seen, want := range map[string]error{"3/4 170.5": nil, "3/4 180.5": lock.ErrTwoServers, "3/4 1170.5": lock.ErrTwoServers, "": lock.ErrTwoServers} {
		if name, err := owner.Transaction(seen); !errors.Is(err, want) || err == nil && name != seen {
			t.Errorf("%q: got %q, %v", seen, name, err)
		}
	}
	if held, err := owner.Holds(t.Context(), 1, nil); held || !errors.Is(err, ErrOver) {
		t.Errorf("without a transaction: held %t, %v", held, err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

package seat_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/seat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stubs grants a lock that pg_locks does not show, and no trial either, as a server does whose locks of sessions are stubs.
func stubs() *drivertest.Driver {
	return drivertest.ByName(map[string]drivertest.Rows{
		"TryLock":   {{"granted", false, int64(1), int64(0), ""}},
		"Confirm":   {{false, int64(1), int64(0), "0", false, ""}},
		"TrialLock": {{false}},
	}, nil)
}

// The locks of transactions may be real. How the next attempt goes another way, preflight.Scope decides.
func TestWhereLocksOfSessionsAreStubsAutoTriesTransactionsAtOnce(t *testing.T) {
	for auto, want := range map[bool]int{true: 2, false: 1} {
		pool := stubs().Open()
		var reported []error
		lent := 0
		from := election.NewSource(pool, election.SessionConfig{CandidateID: "a", Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second},
			Report: func(_ string, err error) { reported = append(reported, err) },
			Statements: func(*election.Source) election.Statements {
				if lent++; lent == 2 {
					return busy{} // inside a transaction
				}
				return &seat.Statements{Asks: &seat.Asks{}, Auto: auto}
			}})
		e := election.New(from, election.Config{Key: 7, Retry: func() time.Duration { return time.Second }, Backoff: backoff.Backoff{Min: time.Second, Max: time.Second}})
		switch a := e.Attempt(t.Context()); {
		case lent != want:
			t.Errorf("auto %t: %d sessions were lent, want %d", auto, lent, want)
		case auto && (a.Outcome != election.Busy || len(reported) != 1 || !errors.Is(reported[0], seat.ErrStubs)):
			t.Errorf("auto: %+v, reported %v", a, reported)
		case !auto && (a.Outcome != election.Refused || !errors.Is(a.Err, pgerr.ErrNoSessionLocks)):
			t.Errorf("session scope: %+v", a)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	}
}

// busy finds each lock busy.
type busy struct{ election.Direct }

func (busy) Try(_ context.Context, _ *pin.Conn, _ []election.Setting, wants []election.Want) ([]election.Tried, election.Answer, error) {
	return make([]election.Tried, len(wants)), election.Answer{PID: 1}, nil
}

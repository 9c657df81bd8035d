package transaction

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
)

// inSessionScope runs a test with a session in session scope, on a driver that answers by script.
func inSessionScope(t *testing.T, answers map[string]drivertest.Rows, errs map[string]error, test func(t *testing.T, d *drivertest.Driver, s *election.Session)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := drivertest.ByName(answers, errs)
		pool := d.Open()
		defer pool.Close()
		s, err := election.NewSource(pool, election.SessionConfig{Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second}}).Lend(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		test(t, d, s)
		s.Fail(errors.New("enough"))
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
			inSessionScope(t, map[string]drivertest.Rows{"TryPair": {{c.granted}}}, map[string]error{"TryPair": c.err}, func(t *testing.T, _ *drivertest.Driver, s *election.Session) {
				if err := HoldPair(t.Context(), s, key, errTaken); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			})
		})
	}
}

func TestALockThatIsLetGoWasHeld(t *testing.T) {
	for held, want := range map[bool]bool{true: true, false: false} {
		inSessionScope(t, map[string]drivertest.Rows{"UnlockPair": {{held}}}, nil, func(t *testing.T, _ *drivertest.Driver, s *election.Session) {
			if err := LetGo(t.Context(), s, key); (err == nil) != want {
				t.Errorf("held %t: %v", held, err)
			}
		})
	}
}

// Nobody else knows of the lock.
func TestALockThatIsGrantedTooLateIsDropped(t *testing.T) {
	for granted, want := range map[bool]int{true: 1, false: 0} {
		inSessionScope(t, map[string]drivertest.Rows{"TryPair": {{granted}}}, nil, func(t *testing.T, d *drivertest.Driver, s *election.Session) {
			answer := d.Query
			d.Query = func(ctx context.Context, statement string, args []any) (drivertest.Rows, error) {
				time.Sleep(2 * time.Second)
				return answer(ctx, statement, args)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			dropped := 0
			if got, err := TryPairForNow(ctx, s, key, func() { dropped++ }); got || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("granted %t: %v", got, err)
			}
			time.Sleep(2 * time.Second)
			if synctest.Wait(); dropped != want {
				t.Errorf("dropped %d times, want %d", dropped, want)
			}
		})
	}
}

func TestAPairIsFreeIfNobodyHoldsIt(t *testing.T) {
	for _, free := range []bool{true, false} {
		inSessionScope(t, map[string]drivertest.Rows{"PairIsFree": {{free, int64(1)}}}, nil, func(t *testing.T, _ *drivertest.Driver, s *election.Session) {
			if got, err := PairIsFree(t.Context(), s, key); got != free || err != nil {
				t.Errorf("free %t: got %t, %v", free, got, err)
			}
		})
	}
}

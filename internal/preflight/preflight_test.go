package preflight

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/seat"
)

// bothDrivers returns the errors with which the drivers report an SQLSTATE.
func bothDrivers(state string) []error {
	return []error{&pgconn.PgError{Code: state}, &pq.Error{Code: pqerror.Code(state)}}
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

// checks lets n candidates of a pool check the server at the same time. A check takes a second.
// It counts the checks that were made and those that failed.
func checks(n int, check func() (bool, error), leases ...lease.Lease) (made, failed int) {
	var all pooled.Queues
	ended := make(chan error)
	for i := range n {
		go func() {
			_, err := share(context.Background(), &all, nil, leases[i%len(leases)], func() (finding, bool, error) {
				made++ // one at a time
				time.Sleep(time.Second)
				whole, err := check()
				return finding{}, whole, err
			})
			ended <- err
		}()
	}
	for range n {
		if err := <-ended; err != nil {
			failed++
		}
	}
	return made, failed
}

func TestCandidatesThatWaitForTheirTurnShareACheckThatPassedMeanwhile(t *testing.T) {
	one := lease.Lease{Length: 10 * time.Second}
	for name, c := range map[string]struct {
		whole        bool
		err          error
		made, failed int
	}{
		"it passed":                   {true, nil, 2, 0}, // the first made one, and one of those that came after it had begun made the other
		"it failed":                   {true, errors.New("refused"), 40, 40},
		"it passed without a setting": {false, nil, 40, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				made, failed := checks(40, func() (bool, error) { return c.whole, c.err }, one)
				if made != c.made || failed != c.failed {
					t.Errorf("%d checks and %d failures, want %d and %d", made, failed, c.made, c.failed)
				}
			})
		})
	}
}

// A candidate that comes after the first has left waits for the second.
func TestThereIsOneQueueWhileAnybodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all pooled.Queues
		ended := make(chan error)
		checking := 0
		for i := range 3 {
			go func() {
				time.Sleep(time.Duration(i) * 700 * time.Millisecond)
				_, err := share(context.Background(), &all, nil, lease.Lease{}, func() (finding, bool, error) {
					if checking++; checking > 1 {
						t.Errorf("%d checks at a time", checking)
					}
					time.Sleep(time.Second)
					checking--
					return finding{}, false, nil
				})
				ended <- err
			}()
		}
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestACheckWithAnotherLeaseIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made, _ := checks(40, func() (bool, error) { return true, nil }, lease.Lease{Length: 10 * time.Second}, lease.Lease{Length: 20 * time.Second})
		if made < 3 { // the number depends on the order in which candidates come
			t.Errorf("%d checks, with two leases", made)
		}
	})
}

func TestACheckThatBeganBeforeIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all pooled.Queues
		made := 0
		for range 3 {
			_, err := share(t.Context(), &all, nil, lease.Lease{}, func() (finding, bool, error) {
				made++
				time.Sleep(time.Second)
				return finding{}, true, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		if made != 3 {
			t.Errorf("%d of 3 checks were made", made)
		}
	})
}

// A pooler that has begun a transaction permits them, and one that did not answer may be full.
func TestOnlyRefusalsInARowShowThatAPoolerPermitsNoTransactions(t *testing.T) {
	const every = 3 * time.Second
	refusal := bothDrivers("08P01")[0]
	for name, c := range map[string]struct {
		errs    []error // of BEGIN, one every three seconds
		refused bool
	}{
		"four in nine seconds": {[]error{refusal, driver.ErrBadConn, refusal, refusal}, false},
		"five in twelve":       {[]error{driver.ErrBadConn, refusal, refusal, refusal, refusal}, true},
		"one begins":           {[]error{refusal, refusal, nil, refusal, refusal, refusal, refusal}, false},
		"one has no answer":    {[]error{refusal, refusal, pgerr.ErrNoAnswer, refusal, refusal, refusal, refusal}, false},
		"five after one":       {[]error{nil, refusal, refusal, refusal, refusal, refusal}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &Part{}
				var err error
				for _, one := range c.errs {
					if err = v.permits(one); one == nil && err != nil || !errors.Is(err, one) {
						t.Errorf("got %v", err)
					}
					time.Sleep(every)
				}
				if errors.Is(err, pgerr.ErrSessionPooled) != c.refused {
					t.Errorf("got %v", err)
				}
			})
		})
	}
	t.Run("a hundred at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			v := &Part{}
			for range 100 {
				if err := v.permits(refusal); errors.Is(err, pgerr.ErrSessionPooled) {
					t.Fatal(err)
				}
			}
		})
	})
}

// The work of the terms returns before the session ends.
func TestTheTermsOfAPoolThatIsClosedEndBeforeTheirSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		pool := server.Open()
		defer pool.Close()
		from := election.NewSource(pool, election.SessionConfig{CandidateID: "a", Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: time.Second},
			Parts: []election.Part{&Part{Scope: NewScope(holder.Auto), Pins: 1}}})
		a := election.New(from, election.Config{Key: 7}).Attempt(t.Context())
		if a.Outcome != election.Granted {
			t.Fatalf("got %+v", a)
		}
		s := a.Lock.Session()
		if time.Sleep(3 * time.Second); s.TermContext().Err() != nil || from.MayKeep(t.Context(), s) != nil {
			t.Errorf("the terms have ended by %v", context.Cause(s.TermContext()))
		}
		_ = pool.Close()
		time.Sleep(3 * time.Second)
		if cause := context.Cause(s.TermContext()); !errors.Is(cause, pgerr.ErrPoolClosed) || s.EndIfExpired() != nil {
			t.Errorf("the terms have ended by %v, the session by %v", cause, s.EndIfExpired())
		}
		if err := from.MayKeep(t.Context(), s); !errors.Is(err, pgerr.ErrPoolClosed) {
			t.Errorf("the session may be kept: %v", err)
		}
		s.Close()
	})
}

// Where locks of sessions are stubs, and where a session was moved, transactions may do.
func TestWhatSessionScopeDoesNotPermitIsTriedInTransactions(t *testing.T) {
	for name, c := range map[string]struct {
		chosen holder.Scope
		err    error
		want   bool
	}{
		"stubs":                    {holder.Auto, seat.ErrStubs, true},
		"a session was moved":      {holder.Auto, &election.Moved{From: 1, To: 2}, true},
		"statements were mixed up": {holder.Auto, pgerr.ErrMixedUp, false},
		"a session was lost":       {holder.Auto, pgerr.ErrSessionLost, false},
		"stubs, in session scope":  {holder.SessionScope, seat.ErrStubs, false},
		"moved, in session scope":  {holder.SessionScope, pgerr.ErrSessionPooled, false},
	} {
		p := &Part{Scope: NewScope(c.chosen)}
		if p.Ended(nil, c.err); p.Scope.suspected.Load() != c.want {
			t.Errorf("%s: suspected: %t", name, !c.want)
		}
	}
}

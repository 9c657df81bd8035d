package queue_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/pair"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/queue"
	"github.com/pgelector/pgelector/internal/session"
)

// answering runs a test with a session whose driver answers by the names of statements.
func answering(t *testing.T, answers map[string]drivertest.Rows, errs map[string]error, test func(t *testing.T, driver *drivertest.Driver, from *session.Source)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		driver := drivertest.ByName(answers, errs)
		pool := driver.Open()
		defer pool.Close()
		test(t, driver, session.NewSource(pool, session.Config{Name: "web-1", Scope: session.SessionScope, Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second},
			Report: func(context.Context, session.Task, error) {}}))
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
			answering(t, map[string]drivertest.Rows{"TryPair": {{c.granted}}}, map[string]error{"TryPair": c.err}, func(t *testing.T, _ *drivertest.Driver, from *session.Source) {
				s, err := from.Borrow(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer s.Discard()
				if err := pair.Hold(s, 7, errTaken); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
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
			answering(t, map[string]drivertest.Rows{"PrepareWait": c.prepared, "InTransaction": c.inside}, nil, func(t *testing.T, _ *drivertest.Driver, from *session.Source) {
				s, err := queue.OpenChecked(t.Context(), from)
				if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if err == nil {
					if s.PID() != 5 || !s.Backend.Is(5, "then") || s.Backend.Is(6, "then") || s.Backend.Is(5, "now") {
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

const (
	pid   = 1
	token = 1<<48 | 745
)

// An attempter is a Dedicated on a driver that answers by script.
type attempter struct {
	*lock.Dedicated
	driver  *drivertest.Driver
	answers map[string]drivertest.Rows // by the name of the statement; one row, or none
	errs    map[string]error
}

// attempting runs a test in virtual time with an attempter, and a session that it has borrowed.
func attempting(t *testing.T, test func(t *testing.T, a *attempter, s *session.Session)) {
	t.Helper()
	a := &attempter{errs: map[string]error{}, answers: map[string]drivertest.Rows{
		"Confirm": {{true, int64(pid), int64(token), "0", false, ""}}, "EvictHolder": {{true}}, "TryAsDeputy": {{true, int64(pid)}},
	}}
	answering(t, a.answers, a.errs, func(t *testing.T, driver *drivertest.Driver, from *session.Source) {
		a.driver = driver
		a.Dedicated = &lock.Dedicated{Config: lock.Config{Key: 7, ReportHolder: func() bool { return false }}, Source: from}
		s, err := from.Borrow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.Backend.SetPID(pid)
		a.driver.Calls()
		test(t, a, s)
	})
}

// ended fails the test unless the session has ended with an error that wraps the target.
func ended(t *testing.T, s *session.Session, target error) {
	t.Helper()
	if err := s.EndIfExpired(); !errors.Is(err, target) {
		t.Errorf("the session has ended by %v, want %v", err, target)
	}
}

func TestASecondTryKeepsItsSessionUnlessItsAnswerIsInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		answer drivertest.Rows
		err    error
		want   error
		evicts bool
	}{
		"granted":                        {answer: drivertest.Rows{{true, int64(pid)}}},
		"busy":                           {answer: drivertest.Rows{{false, int64(pid)}}},
		"granted to another backend":     {answer: drivertest.Rows{{true, int64(9)}}, want: pgerr.ErrSessionPooled, evicts: true},
		"busy, says another backend":     {answer: drivertest.Rows{{false, int64(9)}}, want: pgerr.ErrSessionPooled},
		"an error, of a statement or so": {err: drivertest.State("57P01"), want: drivertest.State("57P01")},
	} {
		t.Run(name, func(t *testing.T) {
			attempting(t, func(t *testing.T, a *attempter, s *session.Session) {
				a.answers["TryAsDeputy"], a.errs["TryAsDeputy"] = c.answer, c.err
				got, err := queue.TryAgain(t.Context(), a.Dedicated, s)
				if evicted := slices.Contains(a.driver.Calls(), "query EvictHolder"); evicted != c.evicts {
					t.Errorf("evicted: %t", evicted)
				}
				switch {
				case c.want != nil:
					if !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "elector: try the lock: ") {
						t.Errorf("got %v", err)
					}
					ended(t, s, c.want)
				case name == "busy":
					if err != nil || got.Outcome != lock.Busy || !s.Valid() {
						t.Errorf("got %+v, %v", got, err)
					}
					s.GiveBack()
				default:
					if err != nil || got.Outcome != lock.Granted {
						t.Fatalf("got %+v, %v", got, err)
					}
					got.Lock.WorkReturned()
					got.Lock.Discard()
				}
			})
		})
	}
}

func TestAWaitWhoseParametersAreUnknownWasOnAnotherBackend(t *testing.T) {
	for state, pooled := range map[drivertest.State]bool{"42704": true, "57014": false} {
		attempting(t, func(t *testing.T, a *attempter, s *session.Session) {
			a.errs["WaitLock"] = state
			if _, err := queue.Wait(t.Context(), a.Dedicated, s); !errors.Is(err, state) || errors.Is(err, pgerr.ErrSessionPooled) != pooled {
				t.Errorf("%s: %v", state, err)
			}
			ended(t, s, state)
		})
	}
	attempting(t, func(t *testing.T, a *attempter, s *session.Session) {
		got, err := queue.Wait(t.Context(), a.Dedicated, s)
		if err != nil || got.Outcome != lock.Granted {
			t.Fatalf("got %+v, %v", got, err)
		}
		got.Lock.Discard()
	})
}

func TestAWarmUpShowsWhetherLocksAreReal(t *testing.T) {
	for name, c := range map[string]struct {
		trial drivertest.Rows
		err   error
		want  error
	}{
		"real":   {trial: drivertest.Rows{{true}}},
		"stubs":  {trial: drivertest.Rows{{false}}, want: pgerr.ErrNoSessionLocks},
		"failed": {err: drivertest.State("57P01"), want: drivertest.State("57P01")},
	} {
		t.Run(name, func(t *testing.T) {
			attempting(t, func(t *testing.T, a *attempter, s *session.Session) {
				a.answers["TrialLock"], a.errs["TrialLock"] = c.trial, c.err
				a.answers["Confirm"] = drivertest.Rows{{false, int64(pid), int64(token), "0", false, ""}}
				if err := queue.WarmUp(t.Context(), s, db.Unlock); c.want == nil && err != nil || !errors.Is(err, c.want) {
					t.Errorf("got %v", err)
				}
				want := []string{"prepare Unlock", "query TrialLock", "query Confirm"}
				if c.want != nil {
					want = want[:2]
				}
				if calls := a.driver.Calls(); !slices.Equal(calls, want) {
					t.Errorf("asked %q", calls)
				}
				s.GiveBack()
			})
		})
	}
}

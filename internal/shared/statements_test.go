package shared

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/transaction"
)

const (
	pid   = int64(5)
	token = int64(1<<48 | 745)
)

// scripted runs a test with a source of shared sessions, on a driver that answers by script. The locks are 1 and 2.
func scripted(t *testing.T, test func(t *testing.T, answers map[string]drivertest.Rows, errs map[string]error, from *election.Source)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		answers, errs := map[string]drivertest.Rows{
			"PrepareWait": {{pid, false, "", "then"}}, "InTransaction": {{false}}, "TryPair": {{true}}, "Ping": {{pid, false, false}},
			"TryLocks": {{int64(1), "granted", pid}, {int64(2), "granted", pid}}, "HeldLocks": {{int64(1)}, {int64(2)}},
			"Tokens": {{int64(1), true, token, "0", pid}, {int64(2), true, token + 1, "0", pid}}, "TrialLock": {{true}}, "HoldsLock": {{false, pid}},
			"UnlockMany": {{int64(1), true}, {int64(2), true}}, "Unlock": {{true}},
		}, map[string]error{}
		pool := drivertest.ByName(answers, errs).Open()
		defer pool.Close()
		shared := New(t.Context(), time.Second, 0)
		shared.On(election.NewSource(pool, election.SessionConfig{CandidateID: "web-1", Statements: shared.Statements,
			Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second}}))
		test(t, answers, errs, shared.Source())
		if n := pool.Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use", n)
		}
	})
}

func TestASharedSessionIsOpenedOnlyOnAPrimaryAndOutsideATransaction(t *testing.T) {
	for name, c := range map[string]struct {
		prepared, inside, life drivertest.Rows
		want                   error
	}{
		"a primary":                {drivertest.Rows{{pid, false, "", "then"}}, drivertest.Rows{{false}}, drivertest.Rows{{true}}, nil},
		"a standby":                {drivertest.Rows{{pid, true, "", "then"}}, drivertest.Rows{{false}}, drivertest.Rows{{true}}, pgerr.ErrServerReadOnly},
		"a transaction of another": {drivertest.Rows{{pid, false, "", "then"}}, drivertest.Rows{{true}}, drivertest.Rows{{true}}, pgerr.ErrOpenTransaction},
		"its life lock is taken":   {drivertest.Rows{{pid, false, "", "then"}}, drivertest.Rows{{false}}, drivertest.Rows{{false}}, transaction.ErrNameTaken},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, answers map[string]drivertest.Rows, _ map[string]error, from *election.Source) {
				answers["PrepareWait"], answers["InTransaction"], answers["TryPair"] = c.prepared, c.inside, c.life
				s, err := from.Open(t.Context())
				if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if err == nil {
					if s.PID() != int32(pid) || !s.IsStarted() {
						t.Errorf("on backend %d", s.PID())
					}
					s.Close()
				}
			})
		})
	}
}

// opened runs a test with a session that is kept alive.
func opened(t *testing.T, test func(t *testing.T, answers map[string]drivertest.Rows, errs map[string]error, s *election.Session)) {
	t.Helper()
	scripted(t, func(t *testing.T, answers map[string]drivertest.Rows, errs map[string]error, from *election.Source) {
		s, err := from.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		test(t, answers, errs, s)
		s.Close()
	})
}

var wants = []election.Want{{Key: 1}, {Key: 2}}

// A statement that takes many locks may fail half-way, as when the lock table is full. The session keeps those that it has.
func TestATryThatFailsHalfWayKeepsWhatWasGranted(t *testing.T) {
	opened(t, func(t *testing.T, answers map[string]drivertest.Rows, errs map[string]error, s *election.Session) {
		errs["TryLocks"], answers["HeldLocks"] = drivertest.State("53200"), drivertest.Rows{{int64(2)}}
		locks, tried, err := s.Try(t.Context(), wants...)
		if err != nil || locks[0] != nil || locks[1] == nil || !errors.Is(tried[0].Err, drivertest.State("53200")) || tried[1].Err != nil {
			t.Fatalf("got %+v, %+v, %v", locks, tried, err)
		}
		errs["TryLocks"] = nil
		if again, _, err := s.Try(t.Context(), wants[0]); err != nil || again[0] == nil { // it is not held
			t.Errorf("the other: got %+v, %v", again, err)
		}
	})
	for name, c := range map[string]struct {
		err  error
		pid  int64
		want error
	}{
		"the connection breaks": {driver.ErrBadConn, pid, driver.ErrBadConn},
		"another backend":       {nil, 9, pgerr.ErrSessionPooled},
	} {
		t.Run(name, func(t *testing.T) {
			opened(t, func(t *testing.T, answers map[string]drivertest.Rows, errs map[string]error, s *election.Session) {
				errs["TryLocks"], answers["TryLocks"] = c.err, drivertest.Rows{{int64(1), "granted", c.pid}, {int64(2), "busy", c.pid}}
				if _, _, err := s.Try(t.Context(), wants...); !errors.Is(err, c.want) || !errors.Is(context.Cause(s.Context()), pgerr.ErrSessionLost) {
					t.Errorf("got %v; ended by %v", err, context.Cause(s.Context()))
				}
			})
		})
	}
}

// What is found of one lock is no reason to give up the others.
func TestEachLockOfABatchIsConfirmedOrRefusedAlone(t *testing.T) {
	for name, c := range map[string]struct {
		tokens  drivertest.Rows
		err     error // of the tokens
		waiting bool  // the first lock, at its barrier
		refused error
	}{
		"confirmed":        {tokens: drivertest.Rows{{int64(1), true, token, "0", pid}, {int64(2), true, token + 1, "0", pid}}},
		"one at a barrier": {tokens: drivertest.Rows{{int64(1), false, int64(0), "0", pid}, {int64(2), true, token + 1, "0", pid}}, waiting: true},
		"one without a token": {tokens: drivertest.Rows{{int64(1), true, int64(0), "0", pid}, {int64(2), true, token + 1, "0", pid}},
			refused: election.ErrNoToken},
	} {
		t.Run(name, func(t *testing.T) {
			opened(t, func(t *testing.T, answers map[string]drivertest.Rows, _ map[string]error, s *election.Session) {
				locks, _, err := s.Try(t.Context(), wants...)
				if err != nil {
					t.Fatal(err)
				}
				answers["Tokens"] = c.tokens
				refused, err := s.Confirm(t.Context(), locks...)
				if err != nil || !errors.Is(refused[locks[0]], c.refused) || refused[locks[1]] != nil || locks[1].IsWaiting() || (locks[0].IsWaiting()) != (c.waiting || c.refused != nil) {
					t.Errorf("refused %v: %v; waiting: %t", refused, err, locks[0].IsWaiting())
				}
				election.GiveUp(locks...)
				if err := context.Cause(s.Context()); err != nil {
					t.Errorf("ended by %v", err)
				}
			})
		})
	}
}

// A lock that is missing puts all in doubt.
func TestALockThatIsMissingEndsTheSession(t *testing.T) {
	for name, c := range map[string]struct {
		holds drivertest.Rows
		trial drivertest.Rows
		want  error
	}{
		"released":                       {drivertest.Rows{{false, pid}}, drivertest.Rows{{true}}, pgerr.ErrSessionLost},
		"locks are stubs":                {drivertest.Rows{{false, pid}}, drivertest.Rows{{false}}, pgerr.ErrNoSessionLocks},
		"another backend answers":        {drivertest.Rows{{false, int64(9)}}, drivertest.Rows{{true}}, pgerr.ErrSessionPooled},
		"it is back: another backend's?": {drivertest.Rows{{true, pid}}, drivertest.Rows{{true}}, pgerr.ErrSessionPooled},
	} {
		t.Run(name, func(t *testing.T) {
			opened(t, func(t *testing.T, answers map[string]drivertest.Rows, _ map[string]error, s *election.Session) {
				locks, _, err := s.Try(t.Context(), wants...)
				if err != nil {
					t.Fatal(err)
				}
				answers["HeldLocks"], answers["HoldsLock"], answers["TrialLock"] = drivertest.Rows{{int64(2)}}, c.holds, c.trial
				if _, err := s.Confirm(t.Context(), locks...); !errors.Is(err, c.want) || !errors.Is(context.Cause(s.Context()), pgerr.ErrSessionLost) {
					t.Errorf("got %v; ended by %v", err, context.Cause(s.Context()))
				}
			})
		})
	}
}

// Each barrier takes room in the lock table. If that is full, half of the locks are refused, which makes room for the others: they
// wait. Another error refuses all.
func TestAFullLockTableRefusesHalfOfTheBarriers(t *testing.T) {
	opened(t, func(t *testing.T, _ map[string]drivertest.Rows, errs map[string]error, s *election.Session) {
		locks, _, err := s.Try(t.Context(), wants...)
		if err != nil {
			t.Fatal(err)
		}
		for state, all := range map[drivertest.State]bool{"53200": false, "57014": true} {
			errs["Tokens"] = state
			refused, err := s.Confirm(t.Context(), locks...)
			if err != nil || !errors.Is(refused[locks[0]], state) || (refused[locks[1]] != nil) != all || !locks[1].IsWaiting() {
				t.Errorf("%s: refused %v: %v", state, refused, err)
			}
		}
		errs["Tokens"] = driver.ErrBadConn
		if _, err := s.Confirm(t.Context(), locks...); err == nil || s.Context().Err() == nil {
			t.Errorf("got %v", err)
		}
	})
}

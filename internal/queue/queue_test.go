package queue_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/queue"
	"github.com/pgelector/pgelector/internal/seat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	pid   = int64(1)
	token = int64(1<<48 | 745)
)

// A lent is a session of session scope that was lent, on a driver that answers by script.
type lent struct {
	*drivertest.Driver
	on      *election.Election
	session *election.Session
	answers map[string]drivertest.Rows // by the name of the statement; one row, or none
	errs    map[string]error
	ended   error // why the session has ended; nil while it goes on
}

// lending runs a test in virtual time with a session that was lent, and that has a backend.
func lending(t *testing.T, test func(t *testing.T, l *lent)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lent{errs: map[string]error{}, answers: map[string]drivertest.Rows{
			"TryLock": {{"deputy", true, pid, int64(2), "leader"}}, "TryAsDeputy": {{true, pid}}, "Confirm": {{true, pid, token, "0", false, ""}},
			"TrialLock": {{true}}, "Ping": {{pid, false, false}}, "PrepareWait": {{pid, false, "", "then"}},
		}}
		l.Driver = drivertest.ByName(l.answers, l.errs)
		pool := l.Open()
		defer pool.Close()
		asks := &seat.Asks{Sit: true}
		from := election.NewSource(pool, election.SessionConfig{CandidateID: "web-1", Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second},
			Statements: func(*election.Source) election.Statements { return &seat.Statements{Asks: asks} }, Parts: []election.Part{l}})
		l.on = election.New(from, election.Config{Key: 7})
		a := l.on.Attempt(t.Context())
		if a.Kept == nil || a.Kept.PID() != int32(pid) || !asks.Seated {
			t.Fatalf("got %+v", a)
		}
		l.session = a.Kept
		l.Calls()
		test(t, l)
		l.session.Fail(errors.New("enough"))
		l.session.Close()
		if n := pool.Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use", n)
		}
	})
}

func (l *lent) Check(context.Context, *election.Source) error                    { return nil }
func (l *lent) Lent(context.Context, *election.Session) error                    { return nil }
func (l *lent) Kept(context.Context, *election.Session) error                    { return nil }
func (l *lent) Granted(context.Context, *election.Session, election.Grant) error { return nil }
func (l *lent) Started(*election.Session)                                        {}
func (l *lent) Beat(*election.Session, election.Beat) error                      { return nil }
func (l *lent) Ended(_ *election.Session, cause error)                           { l.ended = cause }

// wait is how the sessions of the tests wait.
var wait = seat.Wait{Role: "deputy", Key: 7, For: time.Second}

func TestASessionThatWaitsIsPreparedOnItsBackendOfAPrimary(t *testing.T) {
	for name, c := range map[string]struct {
		row  drivertest.Rows
		err  error
		want error
	}{
		"a primary":       {row: drivertest.Rows{{pid, false, "", "then"}}},
		"a standby":       {row: drivertest.Rows{{pid, true, "", "then"}}, want: pgerr.ErrServerReadOnly},
		"another backend": {row: drivertest.Rows{{int64(9), false, "", "then"}}, want: pgerr.ErrSessionPooled},
		"failed":          {err: drivertest.State("57P01"), want: drivertest.State("57P01")},
	} {
		t.Run(name, func(t *testing.T) {
			lending(t, func(t *testing.T, l *lent) {
				l.answers["PrepareWait"], l.errs["PrepareWait"] = c.row, c.err
				if err := queue.Prepare(t.Context(), l.session, wait); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				a := l.on.Again(t.Context(), l.session)
				if waited := slices.Contains(l.Calls(), "exec WaitLock"); waited != (c.want == nil) || a.Outcome != election.Granted {
					t.Errorf("waited: %t; got %+v", waited, a)
				}
			})
		})
	}
}

func TestASecondTryKeepsItsSessionUnlessItsAnswerIsInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		answer drivertest.Rows
		err    error
		want   error
	}{
		"granted":                        {answer: drivertest.Rows{{true, pid}}},
		"busy":                           {answer: drivertest.Rows{{false, pid}}},
		"granted to another backend":     {answer: drivertest.Rows{{true, int64(9)}}, want: pgerr.ErrSessionPooled},
		"busy, says another backend":     {answer: drivertest.Rows{{false, int64(9)}}, want: pgerr.ErrSessionPooled},
		"an error, of a statement or so": {err: drivertest.State("57P01"), want: drivertest.State("57P01")},
	} {
		t.Run(name, func(t *testing.T) {
			lending(t, func(t *testing.T, l *lent) {
				l.answers["TryAsDeputy"], l.errs["TryAsDeputy"] = c.answer, c.err
				a := l.on.Again(t.Context(), l.session)
				switch {
				case c.want != nil:
					if !errors.Is(a.Err, c.want) || !errors.Is(l.ended, c.want) || a.Kept != nil {
						t.Errorf("ended by %v; got %+v", l.ended, a)
					}
					moved, isMoved := errors.AsType[*election.Moved](l.ended)
					if isMoved != errors.Is(c.want, pgerr.ErrSessionPooled) || isMoved && (moved.From != 1 || moved.To != 9) {
						t.Errorf("moved: %+v", moved)
					}
				case name == "busy":
					if a.Err != nil || a.Outcome != election.Busy || a.Kept != l.session || l.ended != nil {
						t.Errorf("got %+v", a)
					}
				default:
					if a.Err != nil || a.Outcome != election.Granted || a.Kept != nil {
						t.Errorf("got %+v", a)
					}
				}
			})
		})
	}
}

func TestAWaitWhoseParametersAreUnknownWasOnAnotherBackend(t *testing.T) {
	for state, pooled := range map[drivertest.State]bool{"42704": true, "57014": false} {
		lending(t, func(t *testing.T, l *lent) {
			if err := queue.Prepare(t.Context(), l.session, wait); err != nil {
				t.Fatal(err)
			}
			l.errs["WaitLock"] = state
			if a := l.on.Again(t.Context(), l.session); !errors.Is(a.Err, state) || errors.Is(a.Err, pgerr.ErrSessionPooled) != pooled || !errors.Is(l.ended, state) {
				t.Errorf("%s: ended by %v; got %+v", state, l.ended, a)
			}
		})
	}
}

// Only the confirmation tells whether a wait was granted the lock.
func TestAWaitThatIsNotGrantedTheLockKeepsItsSession(t *testing.T) {
	for held, want := range map[bool]election.Outcome{true: election.Granted, false: election.Busy} {
		lending(t, func(t *testing.T, l *lent) {
			if err := queue.Prepare(t.Context(), l.session, wait); err != nil {
				t.Fatal(err)
			}
			l.answers["Confirm"] = drivertest.Rows{{held, pid, token, "0", false, ""}}
			for range 2 {
				a := l.on.Again(t.Context(), l.session)
				if a.Err != nil || a.Outcome != want || (a.Kept == l.session) != (want == election.Busy) || l.ended != nil {
					t.Fatalf("held %t: got %+v", held, a)
				}
				if held {
					break
				}
			}
			if calls := l.Calls(); slices.Contains(calls, "query TrialLock") {
				t.Errorf("a lock that is busy is no stub: asked %q", calls)
			}
		})
	}
}

func TestAWarmUpShowsWhetherLocksAreReal(t *testing.T) {
	for name, c := range map[string]struct {
		trial   drivertest.Rows
		confirm drivertest.Rows
		err     error
		want    error
		asked   int // statements
	}{
		"real":            {trial: drivertest.Rows{{true}}, confirm: drivertest.Rows{{false, pid, token, "0", false, ""}}, asked: 3},
		"stubs":           {trial: drivertest.Rows{{false}}, want: pgerr.ErrNoSessionLocks, asked: 2},
		"failed":          {err: drivertest.State("57P01"), want: drivertest.State("57P01"), asked: 2},
		"another backend": {trial: drivertest.Rows{{true}}, confirm: drivertest.Rows{{false, int64(9), token, "0", false, ""}}, want: pgerr.ErrSessionPooled, asked: 3},
		"in a transaction of other code": {trial: drivertest.Rows{{true}}, confirm: drivertest.Rows{{false, pid, token, "0", true, ""}},
			want: pgerr.ErrOpenTransaction, asked: 3},
	} {
		t.Run(name, func(t *testing.T) {
			lending(t, func(t *testing.T, l *lent) {
				l.answers["TrialLock"], l.errs["TrialLock"], l.answers["Confirm"] = c.trial, c.err, c.confirm
				if err := queue.WarmUp(t.Context(), l.session, db.Unlock); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("got %v", err)
				}
				if calls := l.Calls(); !slices.Equal(calls, []string{"prepare Unlock", "query TrialLock", "query Confirm"}[:c.asked]) {
					t.Errorf("asked %q", calls)
				}
			})
		})
	}
}

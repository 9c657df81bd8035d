package lock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	aKey   = 7
	pid    = 1
	aToken = 1<<TimelineShift | 745
)

// An attempter is a Dedicated on a driver that answers by script.
type attempter struct {
	*Dedicated
	driver  *drivertest.Driver
	answers map[string]drivertest.Rows // by the name of the statement; one row, or none
	errs    map[string]error
	reports []error
	shift   time.Duration // of the clocks
	frozen  time.Duration // for how long the process stands still once Confirm is answered
}

// A process has clocks of its own.
type process struct {
	driver.Connector
	a *attempter
}

func (p process) Driver() driver.Driver          { return p }
func (p process) ClockShift() time.Duration      { return p.a.shift }
func (process) Open(string) (driver.Conn, error) { return nil, errors.ErrUnsupported }

// A refusing part lets no term begin.
type refusing struct {
	session.NoPart
	why error
}

func (r refusing) Enter(context.Context, *session.Source, *session.Session, session.Grant) error {
	return r.why
}

// attempting runs a test in virtual time with an attempter, and a session that it has borrowed.
func attempting(t *testing.T, test func(t *testing.T, a *attempter, s *session.Session), parts ...session.Part) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &attempter{errs: map[string]error{}, answers: map[string]drivertest.Rows{
			"Confirm": {{true, int64(pid), int64(aToken), "0", false, ""}}, "TrialLock": {{true}}, "Ping": {{int64(pid), false, false}},
			"Unlock": {{true}}, "HoldsLock": {{true, int64(pid)}}, "EvictHolder": {{true}}, "TryAsDeputy": {{true, int64(pid)}},
		}}
		a.driver = drivertest.ByName(a.answers, a.errs)
		answer := a.driver.Query
		a.driver.Query = func(ctx context.Context, statement string, args []any) (drivertest.Rows, error) {
			if drivertest.NameOf(statement) == "Confirm" {
				a.shift += a.frozen
			}
			return answer(ctx, statement, args)
		}
		pool := sql.OpenDB(process{a.driver, a})
		defer pool.Close()
		a.Dedicated = &Dedicated{Config: Config{Key: aKey, ReportHolder: func() bool { return false }}, Source: session.NewSource(pool, session.Config{
			Name: "web-1", Scope: session.SessionScope, Parts: parts, OnBeat: func(session.Beat) {},
			Lease:  lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second},
			Report: func(_ context.Context, _ session.Task, err error) { a.reports = append(a.reports, err) },
		})}
		s, err := a.Source.Borrow(t.Context())
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

func TestOnlyALockThatIsConfirmedInEveryRespectElects(t *testing.T) {
	errPart := errors.New("a part objects")
	for name, c := range map[string]struct {
		confirm drivertest.Rows
		trial   drivertest.Rows
		err     error // of Confirm
		part    error
		want    error
	}{
		"confirmed":                      {confirm: drivertest.Rows{{true, int64(pid), int64(aToken), "0", false, ""}}},
		"in a transaction of other code": {confirm: drivertest.Rows{{true, int64(pid), int64(aToken), "0", true, ""}}, want: pgerr.ErrOpenTransaction},
		"the same on another backend":    {confirm: drivertest.Rows{{true, int64(9), int64(aToken), "0", true, ""}}, want: pgerr.ErrOpenTransaction},
		"on another backend":             {confirm: drivertest.Rows{{true, int64(9), int64(aToken), "0", false, ""}}, want: pgerr.ErrSessionPooled},
		"with another candidate on it":   {confirm: drivertest.Rows{{false, int64(pid), int64(aToken), "0", false, "x"}}, want: errSharedBackend},
		"without a token":                {confirm: drivertest.Rows{{true, int64(pid), int64(0), "0", false, ""}}, want: ErrNoToken},
		"with an epoch that is none":     {confirm: drivertest.Rows{{true, int64(pid), int64(aToken), "x", false, ""}}, want: ErrTokenEpoch},
		"gone":                           {confirm: drivertest.Rows{{false, int64(pid), int64(aToken), "x", false, ""}}, want: errReleased},
		"gone, where locks are stubs":    {confirm: drivertest.Rows{{false, int64(pid), int64(aToken), "0", false, ""}}, trial: drivertest.Rows{{false}}, want: pgerr.ErrNoSessionLocks},
		"gone, and the trial has no row": {confirm: drivertest.Rows{{false, int64(pid), int64(aToken), "0", false, ""}}, trial: drivertest.Rows{}, want: errNoRow},
		"not answered":                   {err: drivertest.State("57014"), want: drivertest.State("57014")},
		"refused by a part":              {confirm: drivertest.Rows{{true, int64(pid), int64(aToken), "0", false, ""}}, part: errPart, want: errPart},
	} {
		t.Run(name, func(t *testing.T) {
			attempting(t, func(t *testing.T, a *attempter, s *session.Session) {
				a.answers["Confirm"], a.errs["Confirm"] = c.confirm, c.err
				if c.trial != nil {
					a.answers["TrialLock"] = c.trial
				}
				granted := 0
				a.OnGrant = func(*session.Session) { granted++ }
				got, err := a.Confirm(t.Context(), s, true)
				if c.want != nil {
					if !errors.Is(err, c.want) || errors.Is(err, errSharedBackend) != (c.want == errSharedBackend) || got.Lock != nil || granted != 0 {
						t.Errorf("got %+v, %v", got, err)
					}
					if a.blocked != (c.err != nil) {
						t.Errorf("may have waited at the barrier: %t", a.blocked)
					}
					ended(t, s, c.want)
					return
				}
				if err != nil || got.Outcome != Granted || got.Lock.Token() != aToken || got.Lock.Key() != aKey || got.Lock.Transaction() != "" || got.Lock.IsShared() || granted != 1 || !s.IsStarted() {
					t.Fatalf("got %+v, %v", got, err)
				}
				got.Lock.WorkReturned()
				got.Lock.Discard()
				if s.Valid() {
					t.Error("the session goes on")
				}
			}, refusing{why: c.part})
		})
	}
	attempting(t, func(t *testing.T, a *attempter, s *session.Session) {
		a.answers["Confirm"] = drivertest.Rows{{false, int64(pid), int64(aToken), "0", false, ""}}
		if got, err := a.Confirm(t.Context(), s, false); err != nil || got.Outcome != Busy || !s.Valid() {
			t.Errorf("after a wait without a grant: %+v, %v", got, err)
		}
		s.GiveBack()
	})
}

var errNoRow = sql.ErrNoRows

// After an attempt that may have waited too long, what is overdue is ended once, before the next.
func TestWhatBlocksTheNextTermIsEndedBeforeTheNextAttempt(t *testing.T) {
	errTry := errors.New("tried")
	for name, c := range map[string]struct {
		endless  error
		err      error
		tried    bool
		reported int
		blocked  bool
	}{
		"ended, or none":     {tried: true},
		"a prepared one":     {endless: errors.New("prepared"), blocked: true},
		"it may not be done": {err: drivertest.State("42501"), tried: true, reported: 1},
	} {
		t.Run(name, func(t *testing.T) {
			attempting(t, func(t *testing.T, a *attempter, s *session.Session) {
				s.GiveBack()
				asked := 0
				a.Unblock = func(context.Context, *session.Session, int64, lease.Lease) (error, error) {
					asked++
					return c.endless, c.err
				}
				a.blocked = true
				for range 2 {
					tried := false
					_, err := a.OnChecked(t.Context(), func() (Attempt, error) { tried = true; return Attempt{}, errTry })
					if tried != c.tried || err == nil || errors.Is(err, errTry) != c.tried || a.blocked != c.blocked || len(a.reports) != c.reported {
						t.Errorf("tried %t, blocked %t, reported %v: %v", tried, a.blocked, a.reports, err)
					}
				}
				if want := map[bool]int{true: 2, false: 1}[c.blocked]; asked != want {
					t.Errorf("asked %d times, want %d", asked, want)
				}
				for _, err := range a.reports {
					if !errors.Is(err, c.err) {
						t.Errorf("reported %v", err)
					}
				}
			})
		})
	}
}

// leading runs a test with a lock that is held.
func leading(t *testing.T, test func(t *testing.T, a *attempter, l *Lock)) {
	t.Helper()
	attempting(t, func(t *testing.T, a *attempter, s *session.Session) {
		got, err := a.Confirm(t.Context(), s, true)
		if err != nil {
			t.Fatal(err)
		}
		test(t, a, got.Lock)
		got.Lock.WorkReturned()
		got.Lock.Discard()
	})
}

func TestVerifyEndsTheSessionOnlyOfALockThatIsGone(t *testing.T) {
	stopped, stop := context.WithCancelCause(context.Background())
	errStop := errors.New("enough")
	stop(errStop)
	for name, c := range map[string]struct {
		answer   drivertest.Rows
		err      error
		released bool
		ctx      context.Context
		want     error
		lost     bool
	}{
		"held":                        {answer: drivertest.Rows{{true, int64(pid)}}},
		"held, and to be released":    {answer: drivertest.Rows{{true, int64(pid)}}, released: true},
		"released meanwhile":          {answer: drivertest.Rows{{false, int64(pid)}}, released: true, want: pgerr.ErrNotLeader},
		"gone":                        {answer: drivertest.Rows{{false, int64(pid)}}, want: pgerr.ErrSessionLost, lost: true},
		"another backend":             {answer: drivertest.Rows{{true, int64(9)}}, want: pgerr.ErrSessionPooled, lost: true},
		"another, and it is released": {answer: drivertest.Rows{{true, int64(9)}}, released: true, want: pgerr.ErrSessionLost, lost: true},
		"cancelled by the server":     {err: drivertest.State("57014"), want: drivertest.State("57014")},
		"failed":                      {err: drivertest.State("57P01"), want: pgerr.ErrSessionLost, lost: true},
		"nobody waits":                {ctx: stopped, want: errStop},
	} {
		t.Run(name, func(t *testing.T) {
			leading(t, func(t *testing.T, a *attempter, l *Lock) {
				a.answers["HoldsLock"], a.errs["HoldsLock"] = c.answer, c.err
				if c.released {
					l.Releasing()
				}
				ctx := t.Context()
				if c.ctx != nil {
					ctx = c.ctx
				}
				err := l.Verify(ctx)
				if c.want == nil && err != nil || !errors.Is(err, c.want) || errors.Is(err, pgerr.ErrNotLeader) != (c.want == pgerr.ErrNotLeader) {
					t.Errorf("got %v", err)
				}
				if l.Lost() != c.lost || l.Session.Valid() == c.lost {
					t.Errorf("lost: %t, session valid: %t", l.Lost(), l.Session.Valid())
				}
			})
		})
	}
}

// The answer has renewed the validity.
func TestALateAnswerThatTheLockIsGoneEndsTheSession(t *testing.T) {
	for name, c := range map[string]struct {
		held, released, lost bool
	}{"held": {held: true}, "gone": {lost: true}, "released": {released: true}} {
		t.Run(name, func(t *testing.T) {
			leading(t, func(t *testing.T, a *attempter, l *Lock) {
				answer := a.driver.Query
				a.driver.Query = func(ctx context.Context, statement string, args []any) (drivertest.Rows, error) {
					if drivertest.NameOf(statement) == "HoldsLock" {
						time.Sleep(2 * time.Second)
					}
					return answer(ctx, statement, args)
				}
				a.answers["HoldsLock"] = drivertest.Rows{{c.held, int64(pid)}}
				if c.released {
					l.Releasing()
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := l.Verify(ctx); !errors.Is(err, context.DeadlineExceeded) || l.Lost() {
					t.Errorf("lost %t: %v", l.Lost(), err)
				}
				time.Sleep(2 * time.Second)
				if l.Lost() != c.lost {
					t.Errorf("lost: %t", l.Lost())
				}
			})
		})
	}
}

// A justEnded context has ended, and nobody has heard of it yet.
type justEnded struct{ context.Context }

func (justEnded) Err() error { return context.Canceled }

func TestAnAnswerCountsAlthoughItsContextHasJustEnded(t *testing.T) {
	leading(t, func(t *testing.T, a *attempter, l *Lock) {
		a.answers["HoldsLock"] = drivertest.Rows{{false, int64(pid)}}
		if err := l.Verify(justEnded{context.Background()}); !errors.Is(err, pgerr.ErrSessionLost) || !l.Lost() {
			t.Errorf("lost %t: %v", l.Lost(), err)
		}
	})
}

func TestAReleaseReturnsNilOnlyIfTheSessionHeldTheLock(t *testing.T) {
	for name, c := range map[string]struct {
		unlock, holds drivertest.Rows
		err           error
		want          error
		says          string
	}{
		"held":                     {unlock: drivertest.Rows{{true}}},
		"not held":                 {unlock: drivertest.Rows{{false}}, holds: drivertest.Rows{{false, int64(pid)}}, want: pgerr.ErrSessionLost, says: "did not hold the lock"},
		"not held, and held again": {unlock: drivertest.Rows{{false}}, holds: drivertest.Rows{{true, int64(pid)}}, want: pgerr.ErrSessionPooled},
		"not held by another":      {unlock: drivertest.Rows{{false}}, holds: drivertest.Rows{{false, int64(9)}}, want: pgerr.ErrSessionPooled},
		"failed":                   {err: drivertest.State("57P01"), want: drivertest.State("57P01")},
	} {
		for _, later := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				leading(t, func(t *testing.T, a *attempter, l *Lock) {
					a.answers["Unlock"], a.errs["Unlock"] = c.unlock, c.err
					if c.holds != nil {
						a.answers["HoldsLock"] = c.holds
					}
					if later {
						l.CloseLater()
					}
					began := time.Now()
					err := l.Release()
					if c.want == nil && err != nil || !errors.Is(err, c.want) || err != nil && (!errors.Is(err, pgerr.ErrSessionLost) || !strings.Contains(err.Error(), c.says)) {
						t.Errorf("got %v", err)
					}
					want := time.Duration(0)
					if later && err == nil {
						want = CloseDelay
					}
					if took := time.Since(began); took != want || l.Lost() != (err != nil) {
						t.Errorf("it took %v, want %v; lost: %t", took, want, l.Lost())
					}
				})
			})
		}
	}
}

// A theirs releases the locks of a session with others.
type theirs struct {
	released int64
	err      error
}

func (o *theirs) Release(_ *session.Session, key int64) error { o.released = key; return o.err }

func TestALockOfASharedSessionLeavesTheSessionToTheOthers(t *testing.T) {
	leading(t, func(t *testing.T, a *attempter, l *Lock) {
		others := &theirs{err: errors.New("theirs")}
		shared := NewShared(aKey+1, l.Session, aToken+1, others)
		a.driver.Calls()
		if err := shared.Release(); err != others.err || others.released != aKey+1 || !shared.IsShared() || shared.Token() != aToken+1 {
			t.Errorf("released %d: %v", others.released, err)
		}
		shared.WorkReturned()
		shared.WorkReturned()
		shared.Discard()
		if calls := a.driver.Calls(); !l.Session.Valid() || len(calls) > 0 || shared.Lost() {
			t.Errorf("the session has ended, or was asked %q", calls)
		}
	})
}

func TestTheOwnerOfASessionThatIsClosedHasLostNothing(t *testing.T) {
	for _, c := range []struct {
		why  error
		lost bool
	}{{pgerr.ErrSessionLost, true}, {pgerr.ErrLeaseExpired, true}, {pgerr.ErrNotSynchronous, true}, {pgerr.ErrPoolClosed, false}} {
		leading(t, func(t *testing.T, _ *attempter, l *Lock) {
			if l.Lost() {
				t.Error("lost at once")
			}
			l.Session.EndTerms(c.why)
			if l.Lost() != c.lost {
				t.Errorf("%v: lost %t", c.why, l.Lost())
			}
		})
	}
}

// A scripted owner holds the lock by a transaction, as its fields say.
type scripted struct {
	session.Owner
	connection
	name string
	err  error
}

func (o scripted) Transaction(string) (string, error) { return o.name, o.err }

func (o scripted) Holds(context.Context, int64, func(bool)) (bool, error) { return o.err == nil, o.err }

func TestTheOwnerOfTheLocksSaysByWhichTransactionTheyAreHeld(t *testing.T) {
	for name, c := range map[string]struct {
		owner scripted
		want  error
	}{
		"its own":           {owner: scripted{name: "3/4 170"}},
		"on another server": {owner: scripted{err: ErrTwoServers}, want: ErrTwoServers},
	} {
		t.Run(name, func(t *testing.T) {
			attempting(t, func(t *testing.T, a *attempter, s *session.Session) {
				c.owner.Owner, c.owner.connection = s.Owner(), connection{s}
				s.SetOwner(c.owner)
				a.answers["Confirm"] = drivertest.Rows{{true, int64(pid), int64(aToken), "0", false, "3/4 170"}}
				got, err := a.Confirm(t.Context(), s, true)
				if c.want != nil {
					if !errors.Is(err, c.want) || got.Lock != nil {
						t.Errorf("got %+v, %v", got, err)
					}
					ended(t, s, c.want)
					return
				}
				if err != nil || got.Lock.Transaction() != c.owner.name {
					t.Fatalf("got %+v, %v", got, err)
				}
				if err := got.Lock.Verify(t.Context()); err != nil {
					t.Error(err)
				}
				got.Lock.WorkReturned()
				got.Lock.Discard()
			})
		})
	}
}

// Another may lead by then.
func TestALockThatIsConfirmedTooLateElectsNobody(t *testing.T) {
	for frozen, elected := range map[time.Duration]bool{6 * time.Second: true, 7 * time.Second: false} {
		attempting(t, func(t *testing.T, a *attempter, s *session.Session) {
			a.frozen = frozen
			got, err := a.Confirm(t.Context(), s, true)
			if (err == nil) != elected || err != nil && !errors.Is(err, pgerr.ErrNoAnswer) {
				t.Errorf("after %v: got %+v, %v", frozen, got, err)
			}
			if got.Lock != nil {
				got.Lock.WorkReturned()
				got.Lock.Discard()
			}
		})
	}
}

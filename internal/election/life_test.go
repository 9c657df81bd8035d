package election_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// The life of a session, by what a driver answers that does what the test says.

const (
	backend = int64(7)
	aToken  = int64(1<<48 | 745)
	lateBy  = 250 * time.Millisecond // how late at most the end of the validity is seen
)

// A script is a driver that answers by name, and counts the heartbeats.
type script struct {
	*drivertest.Driver
	heartbeats atomic.Int32
	shift      atomic.Int64 // of the clocks

	mu      sync.Mutex
	answers map[string]drivertest.Rows
	errs    map[string]error
	takes   map[string]time.Duration
	freezes map[string]time.Duration // the process stands still once the statement is answered
}

// says changes the answer to a statement.
func (s *script) says(statement string, rows drivertest.Rows, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[statement], s.errs[statement] = rows, err
}

// taking has a statement take a while.
func (s *script) taking(statement string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes[statement] = d
}

func (s *script) answer(_ context.Context, statement string, _ []any) (drivertest.Rows, error) {
	name := drivertest.NameOf(statement)
	s.mu.Lock()
	rows, err, takes, freezes := s.answers[name], s.errs[name], s.takes[name], s.freezes[name]
	s.mu.Unlock()
	if name == "Ping" {
		s.heartbeats.Add(1)
	}
	time.Sleep(takes)
	s.shift.Add(int64(freezes))
	return rows, err
}

// A machine has clocks of its own.
type machine struct {
	driver.Connector
	s *script
}

func (m machine) Driver() driver.Driver          { return m }
func (m machine) ClockShift() time.Duration      { return time.Duration(m.s.shift.Load()) }
func (machine) Open(string) (driver.Conn, error) { return nil, errors.ErrUnsupported }

// scripted runs a test in virtual time with an election on a driver that answers by script.
func scripted(t *testing.T, test func(t *testing.T, s *script, e *election.Election), parts ...election.Part) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &script{errs: map[string]error{}, takes: map[string]time.Duration{}, freezes: map[string]time.Duration{}, answers: map[string]drivertest.Rows{
			"TryElection": {{"granted", backend, int64(0), ""}}, "ConfirmElection": {{true, backend, false, aToken, "0"}}, "Ping": {{backend, false, false}},
			"WhoAnswers": {{backend, false}}, "HoldsElection": {{true, backend}}, "Unlock": {{true}}, "TrialLock": {{true}}, "ServerStart": {{"then"}},
		}}
		s.Driver = &drivertest.Driver{Query: s.answer, Exec: func(context.Context, string) (int64, error) { return 0, nil }}
		s.Driver.Ping = func(context.Context) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.errs["an empty statement"]
		}
		pool := sql.OpenDB(machine{s.Driver, s})
		defer pool.Close()
		c := sessions("a")
		c.Parts = parts
		test(t, s, election.New(election.NewSource(pool, c), config(42)))
		synctest.Wait()
		if n := pool.Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use", n)
		}
	})
}

// alive runs a test with a session that is kept alive.
func alive(t *testing.T, test func(t *testing.T, s *script, l *election.Lock)) {
	t.Helper()
	scripted(t, func(t *testing.T, s *script, e *election.Election) {
		a := e.Attempt(t.Context())
		if a.Outcome != election.Granted {
			t.Fatalf("got %+v", a)
		}
		s.Calls()
		test(t, s, a.Lock)
		a.Lock.Session().Close()
	})
}

// endedBy is why the session has ended; nil while it goes on.
func endedBy(l *election.Lock) error { return l.Session().EndIfExpired() }

func TestAHeartbeatThatTheServerRefusesIsTriedAgainWhileTheValidityLasts(t *testing.T) {
	alive(t, func(t *testing.T, s *script, l *election.Lock) {
		ping, failing := s.answers["Ping"], drivertest.State("XX000")
		for _, err := range []error{drivertest.State("53200"), failing} {
			s.says("Ping", ping, err)
			time.Sleep(3 * time.Second)
			s.says("Ping", ping, nil)
			time.Sleep(3 * time.Second)
			if err := endedBy(l); err != nil {
				t.Fatalf("it has ended by %v", err)
			}
		}
		before := s.heartbeats.Load()
		s.says("Ping", ping, failing)
		began := time.Now()
		<-l.Session().Context().Done()
		if cause := context.Cause(l.Session().Context()); !errors.Is(cause, pgerr.ErrLeaseExpired) || !errors.Is(cause, failing) {
			t.Errorf("ended by %v", cause)
		}
		if took := time.Since(began); took > 7*time.Second+lateBy {
			t.Errorf("ended after %v", took)
		}
		if n := s.heartbeats.Load() - before; n < 10 || n > 30 {
			t.Errorf("%d heartbeats were tried", n)
		}
		before = s.heartbeats.Load()
		time.Sleep(time.Minute)
		if n := s.heartbeats.Load() - before; n > 0 {
			t.Errorf("%d heartbeats of a session that has expired", n)
		}
	})
}

func TestTheEndOfASessionSaysWhatTheServerRefusedBefore(t *testing.T) {
	alive(t, func(t *testing.T, s *script, l *election.Lock) {
		s.says("Ping", nil, drivertest.State("XX000"))
		s.taking("Ping", time.Second)
		time.Sleep(2500 * time.Millisecond) // while the heartbeat is under way
		s.says("Ping", nil, driver.ErrBadConn)
		<-l.Session().Context().Done()
		cause := context.Cause(l.Session().Context())
		if !errors.Is(cause, pgerr.ErrSessionLost) || !errors.Is(cause, driver.ErrBadConn) || !errors.Is(cause, drivertest.State("XX000")) {
			t.Errorf("ended by %v", cause)
		}
	})
}

func TestAHeartbeatThatIsLostIsNotTriedAgain(t *testing.T) {
	alive(t, func(t *testing.T, s *script, l *election.Lock) {
		s.says("Ping", nil, driver.ErrBadConn)
		<-l.Session().Context().Done()
		if cause := context.Cause(l.Session().Context()); !errors.Is(cause, pgerr.ErrSessionLost) || s.heartbeats.Load() != 1 {
			t.Errorf("ended after %d heartbeats by %v", s.heartbeats.Load(), cause)
		}
	})
}

// It may be cancelled, as by pg_cancel_backend, or fail for want of memory.
func TestALossIsLookedForByTheErrorsOfTheConnection(t *testing.T) {
	alive(t, func(t *testing.T, s *script, l *election.Lock) {
		s.says("an empty statement", nil, drivertest.State("57014"))
		time.Sleep(5*time.Second + lateBy/2)
		if err := endedBy(l); err != nil {
			t.Errorf("ended by %v", err)
		}
		s.says("an empty statement", nil, drivertest.State("57P01"))
		time.Sleep(2 * lateBy)
		if cause := endedBy(l); !errors.Is(cause, pgerr.ErrSessionLost) || !errors.Is(cause, drivertest.State("57P01")) {
			t.Errorf("ended by %v", cause)
		}
	})
}

// A call that was abandoned goes on, and may be answered on a connection that somebody else has by then.
func TestAConnectionOnWhichACallWasAbandonedIsNotGivenBack(t *testing.T) {
	for _, takes := range []time.Duration{0, time.Minute} {
		scripted(t, func(t *testing.T, s *script, e *election.Election) {
			lent, err := e.Source().Lend(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s.taking("ServerStart", takes)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = election.Do(ctx, lent, (*db.Queries).ServerStart)
			if (err == nil) != (takes == 0) {
				t.Errorf("got %v", err)
			}
			lent.GiveBack()
			if n, want := e.Source().Pool().Stats().Idle, map[bool]int{true: 1, false: 0}[takes == 0]; n != want {
				t.Errorf("after a call of %v: %d connections are idle, want %d", takes, n, want)
			}
			time.Sleep(2 * time.Minute) // the driver returns
		})
	}
}

// The end of the session may have come just before: what hears of it does so on another goroutine.
func TestNothingIsAskedOnASessionThatHasEnded(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, e *election.Election) {
		for range 100 {
			a := e.Attempt(t.Context())
			if a.Lock == nil {
				t.Fatalf("got %+v", a)
			}
			on := a.Lock.Session()
			_ = on.Lose(errors.New("it is not the one that counts"))
			_, err := election.Do(t.Context(), on, (*db.Queries).ServerStart)
			if !errors.Is(err, pgerr.ErrSessionLost) {
				t.Fatalf("got %v", err)
			}
			on.Close()
			for _, call := range s.Calls() {
				if call == "query ServerStart" {
					t.Fatal("it was asked")
				}
			}
		}
	})
}

// What a part asks proves nothing, however long it takes: the kernel judges only its own questions.
func TestTheAnswerOfAQuestionOfAPartRenewsNothing(t *testing.T) {
	alive(t, func(t *testing.T, s *script, l *election.Lock) {
		on := l.Session()
		time.Sleep(time.Second) // the next heartbeat comes a second later
		for _, took := range []time.Duration{0, lease.ClockCheckEvery, lease.ClockCheckEvery + 1} {
			s.taking("ServerStart", took)
			before := on.Left()
			if _, err := election.Do(t.Context(), on, (*db.Queries).ServerStart); err != nil {
				t.Error(err)
			}
			if got, want := on.Left(), before-took; got != want {
				t.Errorf("after a call of %v: %v left, want %v", took, got, want)
			}
		}
		before := on.Left()
		if err := l.Verify(t.Context()); err != nil || on.Left() <= before {
			t.Errorf("a question of the kernel: %v left, %v before; %v", on.Left(), before, err)
		}
	})
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
		"confirmed":                      {confirm: drivertest.Rows{{true, backend, false, aToken, "0"}}},
		"in a transaction of other code": {confirm: drivertest.Rows{{true, backend, true, aToken, "0"}}, want: pgerr.ErrOpenTransaction},
		"the same on another backend":    {confirm: drivertest.Rows{{true, int64(9), true, aToken, "0"}}, want: pgerr.ErrOpenTransaction},
		"on another backend":             {confirm: drivertest.Rows{{true, int64(9), false, aToken, "0"}}, want: pgerr.ErrSessionPooled},
		"without a token":                {confirm: drivertest.Rows{{true, backend, false, int64(0), "0"}}, want: election.ErrNoToken},
		"with an epoch that is none":     {confirm: drivertest.Rows{{true, backend, false, aToken, "x"}}, want: election.ErrTokenEpoch},
		"gone, where locks are stubs":    {confirm: drivertest.Rows{{false, backend, false, aToken, "0"}}, trial: drivertest.Rows{{false}}, want: pgerr.ErrNoSessionLocks},
		"gone, and the trial has no row": {confirm: drivertest.Rows{{false, backend, false, aToken, "0"}}, trial: drivertest.Rows{}, want: sql.ErrNoRows},
		"not answered":                   {err: drivertest.State("57014"), want: drivertest.State("57014")},
		"refused by a part":              {confirm: drivertest.Rows{{true, backend, false, aToken, "0"}}, part: errPart, want: errPart},
	} {
		t.Run(name, func(t *testing.T) {
			part := &ender{}
			scripted(t, func(t *testing.T, s *script, e *election.Election) {
				part.pool = e.Source().Pool()
				s.says("ConfirmElection", c.confirm, c.err)
				if c.trial != nil {
					s.says("TrialLock", c.trial, nil)
				}
				a := e.Attempt(t.Context())
				if c.want != nil {
					if !errors.Is(a.Err, c.want) || a.Lock != nil || !errors.Is(part.why, c.want) {
						t.Errorf("the session has ended by %v; got %+v", part.why, a)
					}
					if atBarrier := errors.Is(a.Err, election.ErrAtBarrier); c.err != nil && !atBarrier {
						t.Errorf("it does not say that the attempt may have waited at the barrier: %v", a.Err)
					}
					return
				}
				if a.Outcome != election.Granted || a.Lock.Key() != 42 || !a.Lock.IsOwn() || !a.Lock.Session().IsStarted() {
					t.Fatalf("got %+v", a)
				}
				a.Lock.Session().Close()
			}, part, refusing{c.part})
		})
	}
}

// A refusing part lets no term begin.
type refusing struct{ why error }

func (refusing) Check(context.Context, *election.Source) error { return nil }
func (refusing) Lent(context.Context, *election.Session) error { return nil }
func (refusing) Kept(context.Context, *election.Session) error { return nil }
func (refusing) Started(*election.Session)                     {}
func (refusing) Beat(*election.Session, election.Beat) error   { return nil }
func (refusing) Ended(*election.Session, error)                {}
func (r refusing) Granted(context.Context, *election.Session, election.Grant) error {
	return r.why
}

// Another may lead by then.
func TestALockThatIsConfirmedTooLateElectsNobody(t *testing.T) {
	for frozen, elected := range map[time.Duration]bool{6 * time.Second: true, 7 * time.Second: false} {
		scripted(t, func(t *testing.T, s *script, e *election.Election) {
			s.freezes["ConfirmElection"] = frozen
			a := e.Attempt(t.Context())
			if (a.Err == nil) != elected || a.Err != nil && !errors.Is(a.Err, pgerr.ErrNoAnswer) {
				t.Errorf("after %v: got %+v", frozen, a)
			}
			if a.Lock != nil {
				a.Lock.Session().Close()
			}
		})
	}
}

// A justEnded context has ended, and nobody has heard of it yet.
type justEnded struct{ context.Context }

func (justEnded) Err() error { return context.Canceled }

func TestVerifyEndsTheSessionOnlyOfALockThatIsGone(t *testing.T) {
	stopped, stop := context.WithCancelCause(context.Background())
	errStop := errors.New("enough")
	stop(errStop)
	for name, c := range map[string]struct {
		answer drivertest.Rows
		err    error
		ctx    context.Context
		want   error
		lost   bool
	}{
		"held":                            {answer: drivertest.Rows{{true, backend}}},
		"gone":                            {answer: drivertest.Rows{{false, backend}}, want: pgerr.ErrSessionLost, lost: true},
		"another backend":                 {answer: drivertest.Rows{{true, int64(9)}}, want: pgerr.ErrSessionPooled, lost: true},
		"another, and it is gone":         {answer: drivertest.Rows{{false, int64(9)}}, want: pgerr.ErrSessionPooled, lost: true},
		"cancelled by the server":         {err: drivertest.State("57014"), want: drivertest.State("57014")},
		"failed":                          {err: drivertest.State("57P01"), want: pgerr.ErrSessionLost, lost: true},
		"nobody waits":                    {ctx: stopped, want: errStop},
		"gone, and nobody waits any more": {answer: drivertest.Rows{{false, backend}}, ctx: justEnded{context.Background()}, want: pgerr.ErrSessionLost, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, e *election.Election) {
				term, err := e.TryCampaign(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				s.says("HoldsElection", c.answer, c.err)
				ctx := t.Context()
				if c.ctx != nil {
					ctx = c.ctx
				}
				if err := term.Verify(ctx); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || errors.Is(err, pgerr.ErrNotLeader) != c.lost {
					t.Errorf("got %v", err)
				}
				if lost := endedBy(term.Lock()) != nil; lost != c.lost || term.Valid() == c.lost {
					t.Errorf("lost: %t, valid: %t", lost, term.Valid())
				}
				_ = term.Resign(t.Context())
			})
		})
	}
}

// The question may reach the server when the lock was released.
func TestALockThatWasReleasedMeanwhileIsNotLost(t *testing.T) {
	for name, c := range map[string]struct {
		answer drivertest.Rows
		want   error
		lost   bool
	}{
		"held":    {drivertest.Rows{{true, backend}}, nil, false},
		"gone":    {drivertest.Rows{{false, backend}}, pgerr.ErrNotLeader, false},
		"another": {drivertest.Rows{{false, int64(9)}}, pgerr.ErrSessionLost, true},
	} {
		t.Run(name, func(t *testing.T) {
			alive(t, func(t *testing.T, s *script, l *election.Lock) { // nobody leads with it
				s.says("HoldsElection", c.answer, nil)
				if err := l.Verify(t.Context()); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("got %v", err)
				}
				if lost := endedBy(l) != nil; lost != c.lost {
					t.Errorf("lost: %t", lost)
				}
			})
		})
	}
}

func TestAReleaseReturnsNilOnlyIfTheSessionHeldTheLock(t *testing.T) {
	for name, c := range map[string]struct {
		unlock, holds drivertest.Rows
		err           error
		want          error
		says          string
	}{
		"held":                     {unlock: drivertest.Rows{{true}}},
		"not held":                 {unlock: drivertest.Rows{{false}}, holds: drivertest.Rows{{false, backend}}, want: pgerr.ErrSessionLost, says: "did not hold the lock"},
		"not held, and held again": {unlock: drivertest.Rows{{false}}, holds: drivertest.Rows{{true, backend}}, want: pgerr.ErrSessionPooled},
		"not held by another":      {unlock: drivertest.Rows{{false}}, holds: drivertest.Rows{{false, int64(9)}}, want: pgerr.ErrSessionPooled},
		"failed":                   {err: drivertest.State("57P01"), want: drivertest.State("57P01")},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, e *election.Election) {
				var failed []error
				e.Observer = told{failed: &failed}
				term, err := e.TryCampaign(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				s.says("Unlock", c.unlock, c.err)
				s.says("HoldsElection", c.holds, nil)
				err = term.Resign(t.Context())
				if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || err != nil && (!errors.Is(err, pgerr.ErrSessionLost) || !strings.Contains(err.Error(), c.says)) {
					t.Errorf("got %v", err)
				}
				if (len(failed) > 0) != (c.want != nil) {
					t.Errorf("told %v", failed)
				}
			})
		})
	}
}

// told hears of failures.
type told struct {
	quiet
	failed *[]error
}

func (o told) Failed(_ string, err error) { *o.failed = append(*o.failed, err) }

// A session of one lock lingers after its release: the server serves the next leader first.
func TestASessionLingersAfterItsRelease(t *testing.T) {
	for _, linger := range []time.Duration{0, 10 * time.Millisecond} {
		onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
			from := sessions("a")
			from.Linger = linger
			term, err := election.New(election.NewSource(pool, from), config(42)).TryCampaign(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := term.Resign(t.Context()); err != nil || time.Since(began) != linger {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
	}
}

// The contract of Session says so. The race detector checks it.
func TestAnyGoroutineMayUseASessionThatIsStarted(t *testing.T) {
	server := electortest.NewServer()
	defer server.Close()
	pool := server.Open()
	defer pool.Close()
	c := sessions("a")
	c.Lease = lease.Lease{Length: time.Minute, Heartbeat: 5 * time.Millisecond, Drain: time.Second}
	a := election.New(election.NewSource(pool, c), config(42)).Attempt(t.Context())
	if a.Lock == nil {
		t.Fatalf("got %+v", a)
	}
	s, ctx := a.Lock.Session(), t.Context()
	var kept election.PerSession[atomic.Int32]
	uses := []func(){
		func() { _, _ = election.Do(ctx, s, (*db.Queries).Identify) },
		func() { _ = s.Prepare(ctx, db.Unlock) },
		func() { _ = s.Heartbeat(ctx) },
		func() { _ = a.Lock.Verify(ctx) },
		func() { a.Lock.ReleaseBy(nil) },
		func() { _, _ = s.EndIfExpired(), s.CheckInTime() },
		func() { _, _, _ = s.Left(), s.Overdue(), s.DrainLeft() },
		func() { _, _, _ = s.Deadline(), s.RenewedAt(), s.Now() },
		func() { _, _, _ = s.PID(), s.IsStarted(), s.Lease() },
		func() { _, _, _, _ = s.Context(), s.TermContext(), s.Source(), s.Answerer() },
		func() { s.AddBound(forever{}) },
		func() { s.Go(func() {}) },
		func() { kept.Of(s).Add(1) },
		func() {
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			s.Listen(short, pin.Wait(func(ctx context.Context, _ any) error { <-ctx.Done(); return nil }))
		},
		s.HeartbeatNow, s.GiveBack,
	}
	var all sync.WaitGroup
	for _, use := range uses {
		for range 4 {
			all.Go(func() {
				for range 10 {
					use()
				}
			})
		}
	}
	all.Wait()
	if err := s.EndIfExpired(); err != nil || kept.Of(s).Load() != 40 {
		t.Errorf("it has ended: %v", err)
	}
	for range 4 {
		all.Go(s.Close)
	}
	all.Wait()
}

// If only the clock of this process jumped, the server keeps the locks, and closing the connection would free them while the work
// goes on. It does so no longer than the drain.
func TestASessionThatHasExpiredKeepsItsLocksForItsWork(t *testing.T) {
	for works, keeps := range map[time.Duration]time.Duration{time.Second: time.Second, 5 * time.Second: 2 * time.Second} {
		onServer(t, func(t *testing.T, server *electortest.Server, process *electortest.Process, pool *sql.DB) {
			ctx, cancel := context.WithCancel(t.Context())
			canceled(t, plain(pool, "a").Run(ctx, func(ctx context.Context, _ *election.Term) error {
				process.ShiftClock(time.Minute)
				<-ctx.Done()
				cancel()
				if cause := context.Cause(ctx); !errors.Is(cause, pgerr.ErrLeaseExpired) {
					t.Errorf("ended by %v", cause)
				}
				time.Sleep(keeps - time.Millisecond)
				if n := len(server.Locks()); n != 1 {
					t.Errorf("%d locks are held while the work goes on", n)
				}
				time.Sleep(works - keeps + time.Millisecond)
				if n := len(server.Locks()); works > keeps && n != 0 {
					t.Errorf("%d locks are held after the drain", n)
				}
				return nil
			}))
		})
	}
}

package transaction

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/seat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	key   = 7
	pid   = 4711
	token = 1<<48 | 745
	named = "3/4 170.5" // a transaction of the server that started at 170.5
)

// A stage is a source in transaction scope on a driver that answers by script.
type stage struct {
	*testing.T
	*drivertest.Driver
	from *election.Source

	mu      sync.Mutex
	answers map[string]drivertest.Rows
	errs    map[string]error
}

func staged(t *testing.T, test func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, errs: map[string]error{}, answers: map[string]drivertest.Rows{
			"TryTransactionLock": {{"granted", false, int64(pid), "170.5", "171.25"}}, "PingTransaction": {{"171.25"}}, "ApplySettings": {{int64(2)}},
			"Confirm": {{true, int64(pid), int64(token), "0", false, named}}, "TrialLock": {{true}}, "TryPair": {{true}}, "ServerStart": {{"170.5"}}, "WhoAnswers": {{int64(pid), false}},
		}}
		s.Driver = &drivertest.Driver{
			Exec: func(_ context.Context, statement string) (int64, error) { return 0, s.err(statement) },
			Query: func(_ context.Context, statement string, _ []any) (drivertest.Rows, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.answers[drivertest.NameOf(statement)], s.errs[drivertest.NameOf(statement)]
			},
		}
		pool := s.Open()
		defer pool.Close()
		s.from = election.NewSource(pool, election.SessionConfig{Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second},
			Statements: func(from *election.Source) election.Statements {
				return New(from, &seat.Asks{}, func() bool { return false })
			}, Parts: []election.Part{Part{}}})
		test(s)
		synctest.Wait()
		if n := pool.Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use", n)
		}
	})
}

func (s *stage) err(statement string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errs[drivertest.NameOf(statement)]
}

// says changes the answer to a statement.
func (s *stage) says(statement string, rows drivertest.Rows, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[statement], s.errs[statement] = rows, err
}

func (s *stage) attempt() election.Attempt {
	return election.New(s.from, election.Config{Key: key}).Attempt(s.Context())
}

// leads returns a session that is elected.
func (s *stage) leads() *election.Lock {
	s.Helper()
	a := s.attempt()
	if a.Outcome != election.Granted {
		s.Fatalf("got %+v", a)
	}
	s.Calls()
	return a.Lock
}

// Two servers may have backends with one process id.
func TestOnlyATransactionOfTheSessionsServerHoldsItsLocks(t *testing.T) {
	for name, c := range map[string]struct {
		held  bool
		seen  string
		trial bool
		want  error
	}{
		"its own":                           {true, named, true, nil},
		"of another server":                 {true, "3/4 180.5", true, ErrTwoServers},
		"of one whose start ends alike":     {true, "3/4 1170.5", true, ErrTwoServers},
		"none is seen":                      {false, "", true, ErrTwoServers},
		"none is seen, and locks are stubs": {false, "", false, pgerr.ErrNoAdvisoryLocks},
		"its backend has another's lock":    {false, named, true, seat.ErrSharedBackend},
	} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(s *stage) {
				s.says("Confirm", drivertest.Rows{{c.held, int64(pid), int64(token), "0", false, c.seen}}, nil)
				s.says("TrialLock", drivertest.Rows{{c.trial}}, nil)
				a := s.attempt()
				if c.want != nil {
					if !errors.Is(a.Err, c.want) || errors.Is(a.Err, seat.ErrSharedBackend) != (c.want == seat.ErrSharedBackend) || a.Lock != nil {
						t.Errorf("got %+v", a)
					}
					return
				}
				if a.Outcome != election.Granted || Name(a.Lock.Session()) != c.seen || !IsOf(a.Lock.Session()) || a.Lock.Session().PID() != pid {
					t.Fatalf("got %+v", a)
				}
				if err := a.Lock.Verify(s.Context()); err != nil {
					t.Errorf("it is not held: %v", err)
				}
				election.GiveUp(a.Lock)
			})
		})
	}
}

// The transaction is kept alive while another connection confirms the lock, and must be the same one afterwards.
func TestATransactionThatEndsWhileItsLockIsConfirmedElectsNobody(t *testing.T) {
	for name, c := range map[string]struct {
		rows drivertest.Rows
		err  error
	}{"it has ended": {nil, drivertest.State("42704")}, "another one answers": {drivertest.Rows{{"181.5"}}, nil}, "it is not marked": {drivertest.Rows{{""}}, nil}} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(s *stage) {
				s.says("PingTransaction", c.rows, c.err)
				if a := s.attempt(); a.Lock != nil || !errors.Is(a.Err, ErrOver) || !errors.Is(a.Err, pgerr.ErrSessionLost) {
					t.Errorf("got %+v", a)
				}
			})
		})
	}
	staged(t, func(s *stage) {
		confirmed := make(chan struct{})
		answer := s.Query
		s.Query = func(ctx context.Context, statement string, args []any) (drivertest.Rows, error) {
			if drivertest.NameOf(statement) == "Confirm" {
				<-confirmed
			}
			return answer(ctx, statement, args)
		}
		time.AfterFunc(5*time.Second, func() { close(confirmed) })
		l := s.attempt().Lock
		if l == nil {
			t.Fatal("not elected after a barrier of 5 s, with a validity of 7")
		}
		pings := 0
		for _, call := range s.Calls() {
			if call == "query PingTransaction" {
				pings++
			}
		}
		if pings < 4 { // at first, each 2 s, and at last
			t.Errorf("%d times asked while the lock was confirmed", pings)
		}
		election.GiveUp(l)
	})
}

// What a part asks is asked behind a savepoint.
func TestARefusalCostsTheTransactionNothing(t *testing.T) {
	ask := func(s *election.Session) error {
		_, err := election.Do(context.Background(), s, (*db.Queries).ServerStart)
		return err
	}
	staged(t, func(s *stage) {
		l := s.leads()
		want := []string{"exec Savepoint", "query ServerStart", "exec ReleaseIt", "query PingTransaction"}
		if err := ask(l.Session()); err != nil {
			t.Error(err)
		}
		if calls := s.Calls(); !slices.Equal(calls, want) {
			t.Errorf("asked %q", calls)
		}
		s.says("ServerStart", nil, drivertest.State("42501"))
		want = []string{"exec Savepoint", "query ServerStart", "exec RollBackToIt", "exec ReleaseIt", "query PingTransaction"}
		if err := ask(l.Session()); !errors.Is(err, drivertest.State("42501")) || l.Session().EndIfExpired() != nil {
			t.Errorf("got %v; ended by %v", err, context.Cause(l.Session().Context()))
		}
		if calls := s.Calls(); !slices.Equal(calls, want) {
			t.Errorf("asked %q", calls)
		}
		election.GiveUp(l)
	})
	for name, breaks := range map[string]func(s *stage){
		"the connection has ended":  func(s *stage) { s.says("ServerStart", nil, driver.ErrBadConn) },
		"the transaction has ended": func(s *stage) { s.says("PingTransaction", nil, drivertest.State("42704")) },
		"it cannot be asked":        func(s *stage) { s.says("Savepoint", nil, drivertest.State("25P02")) },
		"the savepoint is gone":     func(s *stage) { s.says("ReleaseIt", nil, drivertest.State("3B001")) },
		"it cannot go back to it": func(s *stage) {
			s.says("ServerStart", nil, drivertest.State("42501"))
			s.says("RollBackToIt", nil, drivertest.State("3B001"))
		},
		"another transaction answers": func(s *stage) { s.says("PingTransaction", drivertest.Rows{{"181.5"}}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(s *stage) {
				l := s.leads()
				breaks(s)
				if err := ask(l.Session()); err == nil || !errors.Is(context.Cause(l.Session().Context()), pgerr.ErrSessionLost) {
					t.Errorf("got %v; ended by %v", err, context.Cause(l.Session().Context()))
				}
				l.Session().Close()
			})
		})
	}
}

// Before its first try a transaction has no mark, and the server refuses to show one.
func TestAPartMayAskATransactionBeforeItsFirstTry(t *testing.T) {
	staged(t, func(s *stage) {
		s.says("PingTransaction", nil, drivertest.State("42704"))
		lent, err := s.from.Lend(s.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := election.Do(s.Context(), lent, (*db.Queries).ServerStart); got != "170.5" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		lent.GiveBack()
	})
}

// Only ROLLBACK TO releases a lock of two integers, with all that were taken after it.
func TestALockForNowIsLetGoAndThereIsOneAtATime(t *testing.T) {
	staged(t, func(s *stage) {
		l := s.leads()
		on := l.Session()
		if granted, err := TryPairForNow(s.Context(), on, 1, func() { t.Error("nobody waits") }); !granted || err != nil {
			t.Errorf("granted %t: %v", granted, err)
		}
		if calls := s.Calls(); !slices.Equal(calls, []string{"exec Savepoint", "query TryPair", "query PingTransaction"}) {
			t.Errorf("asked %q", calls)
		}
		if granted, err := TryPair(s.Context(), on, 2); granted || err != nil {
			t.Errorf("another: granted %t: %v", granted, err)
		}
		s.Calls()
		if err := LetGo(s.Context(), on, 1); err != nil {
			t.Error(err)
		}
		if calls := s.Calls(); !slices.Equal(calls, []string{"exec RollBackToIt", "exec ReleaseIt", "query PingTransaction"}) {
			t.Errorf("asked %q", calls)
		}
		if err := LetGo(s.Context(), on, 1); err != nil || slices.Contains(s.Calls(), "exec RollBackToIt") {
			t.Errorf("twice: %v", err)
		}
		if granted, err := TryPair(s.Context(), on, 2); !granted || err != nil {
			t.Errorf("granted %t: %v", granted, err)
		}
		election.GiveUp(l)
		if err := LetGo(s.Context(), on, 1); err == nil {
			t.Error("on a session that has ended")
		}
	})
}

// The locks end with the transaction: COMMIT releases the election's, or the release is in doubt.
func TestAReleaseCommitsTheTransactionThatHoldsTheLock(t *testing.T) {
	for name, c := range map[string]struct {
		ping   error
		commit error
		want   error
	}{"released": {}, "it had ended": {ping: drivertest.State("42704"), want: ErrOver}, "in doubt": {commit: driver.ErrBadConn, want: driver.ErrBadConn}} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(s *stage) {
				s.Committing = func() error { return s.err("commit") }
				quiet := observer{}
				term, err := election.New(s.from, election.Config{Key: key, Retry: func() time.Duration { return time.Second }, Observer: quiet}).TryCampaign(s.Context())
				if err != nil {
					t.Fatal(err)
				}
				s.says("PingTransaction", s.answers["PingTransaction"], c.ping)
				s.says("commit", nil, c.commit)
				s.Calls()
				if err := term.Resign(s.Context()); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("got %v", err)
				}
				if commits := slices.Contains(s.Calls(), "commit"); commits != (c.ping == nil) {
					t.Errorf("committed: %t", commits)
				}
			})
		})
	}
}

type observer struct{}

func (observer) Attempted(election.Attempt)    {}
func (observer) Elected(*election.Term)        {}
func (observer) Ended(*election.Term, error)   {}
func (observer) Demoted(*election.Term, error) {}
func (observer) Released(*election.Term)       {}
func (observer) Failed(string, error)          {}

// A busy lock, or a transaction that does not begin, costs no connection that is still of use.
func TestASessionThatIsNotElectedReturnsBothConnections(t *testing.T) {
	staged(t, func(s *stage) {
		s.says("TryTransactionLock", drivertest.Rows{{"busy", false, int64(pid), "170.5", "171.25"}}, nil)
		if a := s.attempt(); a.Outcome != election.Busy {
			t.Errorf("got %+v", a)
		}
		if n := s.from.Pool().Stats().Idle; n != 2 {
			t.Errorf("%d connections are idle", n)
		}
	})
	for state, want := range map[drivertest.State]error{"25001": pgerr.ErrOpenTransaction, "25P02": pgerr.ErrOpenTransaction, "0A000": pgerr.ErrServerReadOnly, "08P01": drivertest.State("08P01")} {
		staged(t, func(s *stage) {
			s.says("RepeatableRead", nil, state)
			if a := s.attempt(); !errors.Is(a.Err, want) || !errors.Is(a.Err, state) {
				t.Errorf("%s: got %+v", state, a)
			}
		})
	}
}

// The second connection is the pool's again while the session leads.
func TestALeaderHasOneConnection(t *testing.T) {
	staged(t, func(s *stage) {
		l := s.leads()
		if n := s.from.Pool().Stats().InUse; n != 1 {
			t.Errorf("%d connections are in use", n)
		}
		got, err := BesideThenStay(s.Context(), l.Session(), func(q *db.Queries, ctx context.Context, _ any) (string, error) { return q.ServerStart(ctx) }, nil)
		if got != "170.5" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		want := []string{"begin", "exec RepeatableRead", "exec ReadCommitted", "query ApplySettings", "query ServerStart", "commit", "query PingTransaction"}
		if calls := s.Calls(); !slices.Equal(calls, want) {
			t.Errorf("asked %q", calls)
		}
		s.says("PingTransaction", nil, drivertest.State("42704"))
		if _, err := BesideThenStay(s.Context(), l.Session(), func(q *db.Queries, ctx context.Context, _ any) (string, error) { return q.ServerStart(ctx) }, nil); !errors.Is(err, ErrOver) {
			t.Errorf("when its locks are gone: %v", err)
		}
		l.Session().Close()
	})
}

func TestOneCandidateAtATimeTakesTwoConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := new(drivertest.Driver).Open()
		defer pool.Close()
		leave, err := TakeTurn(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := TakeTurn(short, pool); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("two at a time: %v", err)
		}
		leave()
		again, err := TakeTurn(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		again()
	})
}

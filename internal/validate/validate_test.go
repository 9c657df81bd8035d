package validate

import (
	"context"
	"database/sql/driver"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/seat"
	"github.com/pgelector/pgelector/internal/transaction"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pid = 4711

// A server answers validations.
type server struct {
	*drivertest.Driver
	mu          sync.Mutex
	held        drivertest.Rows             // the keys, and what the server has spent
	validations atomic.Int32                // that were asked for
	heartbeats  atomic.Int32                // in session scope
	answer      func(context.Context) error // of a validation
}

func newServer() *server {
	s := &server{held: drivertest.Rows{{int64(7), int64(100)}}, answer: func(context.Context) error { return nil }}
	s.Driver = drivertest.ByName(map[string]drivertest.Rows{
		"TryElection": {{"granted", int64(pid), int64(0), ""}}, "ConfirmElection": {{true, int64(pid), false, int64(1<<48 | 745), "0"}},
		"Ping": {{int64(pid), false, false}}, "TryTransactionLock": {{"granted", false, int64(pid), "then", "mark"}}, "PingTransaction": {{"mark"}}, "ApplySettings": {{int64(2)}},
		"Confirm": {{true, int64(pid), int64(1<<48 | 745), "0", false, "3/4 then"}},
	}, map[string]error{})
	answer := s.Query
	s.Query = func(ctx context.Context, statement string, args []any) (drivertest.Rows, error) {
		switch drivertest.NameOf(statement) {
		case "ValidateLocks":
			s.validations.Add(1)
			s.mu.Lock()
			held, answer := s.held, s.answer
			s.mu.Unlock()
			return held, answer(ctx)
		case "Ping":
			s.heartbeats.Add(1)
		}
		return answer(ctx, statement, args)
	}
	return s
}

// answers has the next validations answered in another way.
func (s *server) answers(held drivertest.Rows, answer func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.answer = held, answer
}

func after(d time.Duration, err error) func(context.Context) error {
	return func(context.Context) error { time.Sleep(d); return err }
}

// validating runs a test with a session that leads, and is validated.
func validating(t *testing.T, every time.Duration, checks func(*election.Session) []Check, test func(t *testing.T, server *server, p *Part, s *election.Session), inside ...bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		pool := server.Open()
		defer pool.Close()
		p := New(every, checks)
		c := election.SessionConfig{Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second}, Parts: []election.Part{p}}
		if len(inside) > 0 {
			c.Statements = func(from *election.Source) election.Statements {
				return transaction.New(from, &seat.Asks{}, func() bool { return false })
			}
		}
		a := election.New(election.NewSource(pool, c), election.Config{Key: 7}).Attempt(t.Context())
		if a.Outcome != election.Granted {
			t.Fatalf("got %+v", a)
		}
		defer a.Lock.Session().Close()
		test(t, server, p, a.Lock.Session())
	})
}

func TestTheLocksOfASessionAreComparedAtEachInterval(t *testing.T) {
	var got []map[int64]bool
	checks := func(*election.Session) []Check { return []Check{func(held map[int64]bool) { got = append(got, held) }} }
	validating(t, time.Second, checks, func(t *testing.T, server *server, p *Part, s *election.Session) {
		time.Sleep(1500 * time.Millisecond)
		server.answers(drivertest.Rows{{int64(8), int64(100)}, {int64(9), int64(200)}}, after(0, nil))
		time.Sleep(time.Second)
		synctest.Wait()
		want := []map[int64]bool{{7: true}, {8: true, 9: true}}
		if len(got) != 2 || !maps.Equal(got[0], want[0]) || !maps.Equal(got[1], want[1]) {
			t.Errorf("got %v, want %v", got, want)
		}
		if s.EndIfExpired() != nil || p.InForce(2*time.Second) != time.Second {
			t.Errorf("every %v; the session has ended by %v", p.InForce(2*time.Second), context.Cause(s.Context()))
		}
	})
}

func TestNothingIsAskedWhereNothingCanBeLearned(t *testing.T) {
	check := []Check{func(map[int64]bool) {}}
	for name, c := range map[string]struct {
		every  time.Duration
		checks []Check
		inside []bool
		asked  bool
	}{
		"a term":               {time.Second, check, nil, true},
		"no term":              {time.Second, nil, nil, false},
		"never":                {0, check, nil, false},
		"inside a transaction": {time.Second, check, []bool{true}, false}, // each heartbeat proves that the lock is held
	} {
		t.Run(name, func(t *testing.T) {
			validating(t, c.every, func(*election.Session) []Check { return c.checks }, func(t *testing.T, server *server, p *Part, s *election.Session) {
				time.Sleep(time.Minute)
				if n := server.validations.Load(); n > 0 != c.asked {
					t.Errorf("asked %d times", n)
				}
				if got := p.InForce(2 * time.Second); got != c.every {
					t.Errorf("every %v", got)
				}
			}, c.inside...)
		})
	}
}

// pg_locks costs more the more locks there are.
func TestAValidationTakesItsShareOfTheServersTime(t *testing.T) {
	checks := func(*election.Session) []Check { return []Check{func(map[int64]bool) {}} }
	validating(t, time.Second, checks, func(t *testing.T, server *server, p *Part, _ *election.Session) {
		server.answers(drivertest.Rows{{int64(7), int64(2000)}}, after(3*time.Millisecond, nil))
		time.Sleep(3 * time.Second)
		if got := p.InForce(time.Minute); got != 4*time.Second {
			t.Errorf("every %v, want 2,000 times what the server has spent", got)
		}
		if got := p.InForce(100 * time.Millisecond); got != time.Second {
			t.Errorf("every %v, want the bound of ten heartbeats", got)
		}
		server.answers(drivertest.Rows{{int64(7), int64(1_000_000)}}, after(time.Second, nil))
		time.Sleep(30 * time.Second) // three answers, of which the least counts
		before := server.validations.Load()
		time.Sleep(45 * time.Second)
		if n := server.validations.Load() - before; n < 2 || n > 3 { // not one in 2,000 s
			t.Errorf("%d validations in 45 s, with a heartbeat each 2 s", n)
		}
	})
}

func TestAValidationThatFailsEndsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		suspect bool
	}{"of the statement": {drivertest.State("57014"), false}, "of the server": {drivertest.State("57P03"), true}} {
		t.Run(name, func(t *testing.T) {
			checked := 0
			checks := func(*election.Session) []Check { return []Check{func(map[int64]bool) { checked++ }} }
			validating(t, 500*time.Millisecond, checks, func(t *testing.T, server *server, _ *Part, s *election.Session) {
				server.answers(nil, after(0, c.err))
				time.Sleep(600 * time.Millisecond) // no heartbeat is due before 2 s
				synctest.Wait()
				if n := server.heartbeats.Load(); n > 0 != c.suspect || s.Context().Err() != nil || checked > 0 {
					t.Errorf("%d heartbeats, %d checks; ended by %v", n, checked, context.Cause(s.Context()))
				}
			})
		})
	}
	validating(t, 500*time.Millisecond, func(*election.Session) []Check { return []Check{func(map[int64]bool) {}} }, func(t *testing.T, server *server, _ *Part, s *election.Session) {
		server.answers(nil, after(0, driver.ErrBadConn))
		<-s.Context().Done()
		if !errors.Is(context.Cause(s.Context()), pgerr.ErrSessionLost) {
			t.Errorf("ended by %v", context.Cause(s.Context()))
		}
	})
}

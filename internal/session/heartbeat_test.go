package session

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// keeping runs a test with a session that is kept alive, whose heartbeats answer is asked for. nothing, if
// there is one, answers empty statements.
func keeping(t *testing.T, answer func() error, test func(t *testing.T, from *Source, s *Session, heartbeats *atomic.Int32), nothing ...func(context.Context) error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var heartbeats atomic.Int32
		d := &drivertest.Driver{
			Exec: func(context.Context, string) (int64, error) { return 0, nil },
			Query: func(_ context.Context, statement string, _ []any) (drivertest.Rows, error) {
				heartbeats.Add(1)
				if err := answer(); err != nil {
					return nil, err
				}
				if drivertest.NameOf(statement) == "DescribeServer" { // after a heartbeat that was refused
					return drivertest.One(int64(7), false, int64(150000), "", "", false)
				}
				return drivertest.One(int64(7), false, false)
			},
		}
		for _, answer := range nothing {
			d.Ping = answer
		}
		pool := d.Open()
		defer pool.Close()
		from := NewSource(pool, Config{Scope: SessionScope, Lease: leaseOf(10*time.Second, 2*time.Second, 2*time.Second),
			OnBeat: func(Beat) {}, Report: func(context.Context, Task, error) {}})
		s, err := from.Borrow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.Backend.SetPID(7)
		from.Start(s)
		defer s.Close()
		test(t, from, s, &heartbeats)
	})
}

func TestAHeartbeatThatTheServerRefusesIsTriedAgainWhileTheValidityLasts(t *testing.T) {
	var refused atomic.Pointer[error]
	answer := func() error {
		if err := refused.Load(); err != nil {
			return *err
		}
		return nil
	}
	keeping(t, answer, func(t *testing.T, _ *Source, s *Session, heartbeats *atomic.Int32) {
		full := error(drivertest.State("53200"))
		failing := error(drivertest.State("XX000"))
		for _, err := range []error{full, failing} {
			refused.Store(&err)
			time.Sleep(3 * time.Second)
			refused.Store(nil)
			time.Sleep(3 * time.Second)
			if err := s.EndIfExpired(); err != nil {
				t.Fatalf("it has ended by %v", err)
			}
		}
		before := heartbeats.Load()
		refused.Store(&failing)
		began := time.Now()
		<-s.Context().Done()
		if cause := context.Cause(s.Context()); !errors.Is(cause, pgerr.ErrLeaseExpired) || !errors.Is(cause, failing) {
			t.Errorf("ended by %v", cause)
		}
		if took := time.Since(began); took > 7*time.Second+lookEvery {
			t.Errorf("ended after %v", took)
		}
		if n := heartbeats.Load() - before; n < 10 || n > 30 {
			t.Errorf("%d heartbeats were tried", n)
		}
		before = heartbeats.Load()
		time.Sleep(time.Minute)
		if n := heartbeats.Load() - before; n > 0 {
			t.Errorf("%d heartbeats of a session that has expired", n)
		}
	})
}

// No heartbeat could be sent beside a call that took long.
func TestTheAnswerOfAQuietCallCountsIfItTookLong(t *testing.T) {
	keeping(t, func() error { return nil }, func(t *testing.T, _ *Source, s *Session, heartbeats *atomic.Int32) {
		time.Sleep(time.Second) // the next heartbeat comes a second later
		for _, took := range []time.Duration{0, lease.ClockCheckEvery} {
			before := s.Proof.Left()
			quiet(t, s, took)
			if got, want := s.Proof.Left(), before-took; got != want {
				t.Errorf("after a call of %v: %v left, want %v", took, got, want)
			}
		}
		quiet(t, s, lease.ClockCheckEvery+1)
		if got, want := s.Proof.Left(), s.Proof.Lease.Validity()-lease.ClockCheckEvery-1; got != want {
			t.Errorf("after a long call: %v left, want %v", got, want)
		}
		if n := heartbeats.Load(); n != 0 {
			t.Errorf("%d heartbeats", n)
		}
	})
}

func quiet(t *testing.T, s *Session, took time.Duration) {
	t.Helper()
	if _, err := Quiet(s).Call(t.Context(), func(context.Context, *db.Queries) error { time.Sleep(took); return nil }, nil); err != nil {
		t.Error(err)
	}
}

// lookEvery is how late at most the end of the validity is seen.
const lookEvery = 250 * time.Millisecond

func TestTheEndOfASessionSaysWhatTheServerRefusedBefore(t *testing.T) {
	errs := []error{drivertest.State("XX000"), driver.ErrBadConn}
	var n atomic.Int32
	keeping(t, func() error { return errs[min(int(n.Add(1)), len(errs))-1] }, func(t *testing.T, _ *Source, s *Session, _ *atomic.Int32) {
		<-s.Context().Done()
		cause := context.Cause(s.Context())
		if !errors.Is(cause, pgerr.ErrSessionLost) || !errors.Is(cause, driver.ErrBadConn) || !errors.Is(cause, errs[0]) {
			t.Errorf("ended by %v", cause)
		}
	})
}

func TestAHeartbeatThatIsLostIsNotTriedAgain(t *testing.T) {
	keeping(t, func() error { return driver.ErrBadConn }, func(t *testing.T, _ *Source, s *Session, heartbeats *atomic.Int32) {
		<-s.Context().Done()
		if cause := context.Cause(s.Context()); !errors.Is(cause, pgerr.ErrSessionLost) || heartbeats.Load() != 1 {
			t.Errorf("ended after %d heartbeats by %v", heartbeats.Load(), cause)
		}
	})
}

func TestAnAnswerOfAnotherBackendProvesNothing(t *testing.T) {
	keeping(t, func() error { return nil }, func(t *testing.T, from *Source, _ *Session, _ *atomic.Int32) {
		moved, err := from.Borrow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer moved.Discard()
		moved.Backend.SetPID(8)
		time.Sleep(time.Second)
		if _, err = moved.heartbeat(); !errors.Is(err, pgerr.ErrSessionPooled) || moved.Proof.SinceAnswered() != time.Second {
			t.Errorf("answered %v ago: %v", moved.Proof.SinceAnswered(), err)
		}
		for inRecovery, want := range map[bool]error{false: nil, true: pgerr.ErrServerReadOnly} {
			if err := wrong(moved, db.PingRow{Pid: 8, InRecovery: inRecovery}); !errors.Is(err, want) {
				t.Errorf("in recovery %t: %v", inRecovery, err)
			}
		}
	})
}

// It may be cancelled, as by pg_cancel_backend, or fail for want of memory.
func TestALossIsLookedForByTheErrorsOfTheConnection(t *testing.T) {
	var err atomic.Pointer[error]
	cancelled, ended := error(drivertest.State("57014")), error(drivertest.State("57P01"))
	err.Store(&cancelled)
	keeping(t, func() error { return nil }, func(t *testing.T, _ *Source, s *Session, _ *atomic.Int32) {
		time.Sleep(5*time.Second + lookEvery/2)
		if s.Context().Err() != nil {
			t.Errorf("ended by %v", context.Cause(s.Context()))
		}
		err.Store(&ended)
		time.Sleep(2 * lookEvery)
		if cause := context.Cause(s.Context()); !errors.Is(cause, pgerr.ErrSessionLost) || !errors.Is(cause, ended) {
			t.Errorf("ended by %v", cause)
		}
	}, func(context.Context) error { return *err.Load() })
}

func TestAConnectionOnWhichACallWasAbandonedIsNotGivenBack(t *testing.T) {
	keeping(t, func() error { return nil }, func(t *testing.T, from *Source, _ *Session, _ *atomic.Int32) {
		for _, took := range []time.Duration{0, time.Minute} {
			s, err := from.Borrow(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = s.Call(ctx, func(context.Context, *db.Queries) error { time.Sleep(took); return nil }, nil)
			cancel()
			before, began := from.Pool().Stats().Idle, time.Now()
			s.GiveBack()
			if time.Since(began) > pin.CloseGrace || s.Context().Err() == nil {
				t.Errorf("given back after %v: %v", time.Since(began), context.Cause(s.Context()))
			}
			time.Sleep(2 * took)
			if back := from.Pool().Stats().Idle - before; (back == 1) != (took == 0) {
				t.Errorf("after a call of %v %d connections came back", took, back)
			}
		}
	})
}

// An inside owns the locks of a session in transaction scope, whose heartbeats end as the test says.
type inside struct {
	connection
	pings *atomic.Int32
}

func (inside) Scope() Scope { return TransactionScope }

func (i inside) Ping(context.Context, *db.Queries) (db.PingRow, error) {
	i.pings.Add(1)
	return db.PingRow{}, drivertest.State("XX000")
}

func TestAHeartbeatThatIsRefusedInsideATransactionHasReleasedTheLocks(t *testing.T) {
	keeping(t, func() error { return nil }, func(t *testing.T, from *Source, _ *Session, _ *atomic.Int32) {
		s, err := from.Borrow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var pings atomic.Int32
		s.SetOwner(inside{connection{s}, &pings})
		from.Start(s)
		<-s.Context().Done()
		if cause := context.Cause(s.Context()); !errors.Is(cause, pgerr.ErrSessionLost) || pings.Load() != 1 {
			t.Errorf("ended after %d heartbeats by %v", pings.Load(), cause)
		}
		s.Close()
	})
}

func TestTheTermsOfAPoolThatIsClosedEndBeforeTheirSession(t *testing.T) {
	keeping(t, func() error { return nil }, func(t *testing.T, from *Source, s *Session, _ *atomic.Int32) {
		time.Sleep(3 * time.Second)
		if s.TermContext().Err() != nil {
			t.Fatalf("the terms have ended by %v", context.Cause(s.TermContext()))
		}
		_ = from.Pool().Close()
		time.Sleep(3 * time.Second)
		if cause := context.Cause(s.TermContext()); !errors.Is(cause, pgerr.ErrPoolClosed) || s.EndIfExpired() != nil {
			t.Errorf("the terms have ended by %v, the session by %v", cause, s.EndIfExpired())
		}
	})
}

// The end of the session may have come just before: what hears of it does so on another goroutine.
func TestNothingIsAskedOnASessionThatHasEnded(t *testing.T) {
	keeping(t, func() error { return nil }, func(t *testing.T, from *Source, _ *Session, heartbeats *atomic.Int32) {
		for range 100 {
			s, err := from.Borrow(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			before := heartbeats.Load()
			s.life.cancel(pgerr.ErrSessionLost)
			answered, err := s.Simple().Call(t.Context(), func(ctx context.Context, q *db.Queries) error {
				_, err := q.Ping(ctx)
				return err
			}, nil)
			if answered || !errors.Is(err, pgerr.ErrSessionLost) || heartbeats.Load() != before {
				t.Fatalf("answered %t, %d statements: %v", answered, heartbeats.Load()-before, err)
			}
			s.Discard()
		}
	})
}

func TestOnlyASessionThatWasMovedHasItsBackendTerminated(t *testing.T) {
	keeping(t, func() error { return nil }, func(t *testing.T, from *Source, _ *Session, _ *atomic.Int32) {
		for cause, want := range map[error]int{pgerr.ErrSessionPooled: 1, pgerr.ErrSessionLost: 0} {
			s, err := from.Borrow(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			evicted := 0
			s.EvictBy(func() { evicted++ })
			if s.Fail(cause); evicted != want {
				t.Errorf("after %v: %d times", cause, evicted)
			}
		}
	})
}

func TestATransactionIsOfOtherCodeUnlessTheSessionHasItsLocksInside(t *testing.T) {
	keeping(t, func() error { return nil }, func(t *testing.T, from *Source, _ *Session, _ *atomic.Int32) {
		s, err := from.Borrow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Discard()
		if err := s.CheckOutside(false); err != nil {
			t.Error(err)
		}
		if err := s.CheckOutside(true); !errors.Is(err, pgerr.ErrOpenTransaction) {
			t.Errorf("in session scope: %v", err)
		}
		s.SetOwner(inside{connection: connection{s}})
		if err := s.CheckOutside(true); err != nil {
			t.Errorf("in transaction scope: %v", err)
		}
	})
}

func TestACopyOfASourceUsesTheScopeThatWasFound(t *testing.T) {
	for _, found := range []bool{false, true} {
		from := NewSource(new(drivertest.Driver).Open(), Config{Lease: leaseOf(time.Minute, time.Second, 0)})
		from.Passed(Finding{InTransaction: found})
		if own := from.Copy(); own.InTransaction() != found {
			t.Errorf("found %t, the copy has %t", found, own.InTransaction())
		}
		_ = from.Pool().Close()
	}
}

package shared_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/handover"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/session"
	"github.com/pgelector/pgelector/internal/shared"
	"github.com/pgelector/pgelector/internal/wakeup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const retry = time.Second

// A member is a shared session, and the acquirers of three locks on it.
type member struct {
	*shared.Shared
	pool      *sql.DB
	stop      context.CancelCauseFunc
	acquirers map[int64]lock.Acquirer
}

var keys = []int64{1, 2, 3}

func join(t *testing.T, server *electortest.Server, id string) *member {
	t.Helper()
	return joinEvery(t, server, id, retry)
}

func joinEvery(t *testing.T, server *electortest.Server, id string, retry time.Duration) *member {
	t.Helper()
	process := server.NewProcess()
	process.SetLatency(func() time.Duration { return time.Millisecond })
	m := &member{pool: process.Open(), acquirers: map[int64]lock.Acquirer{}}
	config := session.Config{Name: id, Scope: session.SessionScope, OnBeat: func(session.Beat) {},
		Lease:  lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second},
		Report: func(_ context.Context, _ session.Task, err error) { t.Errorf("%s: %v", id, err) }}
	ctx, stop := context.WithCancelCause(context.Background())
	m.stop = stop
	m.Shared = shared.New(ctx, session.NewSource(m.pool, config), retry, 0, 0, func(key int64) int64 { return handover.OfferKey(id, key) })
	for _, key := range keys {
		own := &lock.Dedicated{Config: lock.Config{Key: key, ReportHolder: func() bool { return true }}, Source: session.NewSource(m.pool, config)}
		m.acquirers[key] = m.Acquirer(own, handover.Succeed)
	}
	return m
}

// leave closes the session.
func (m *member) leave() {
	m.stop(errors.New("it leaves"))
	m.Close()
	_ = m.pool.Close()
}

func (m *member) tries(key int64) lock.Attempt {
	return m.acquirers[key].Acquire(context.Background(), lock.Try{Woken: wakeup.New()})
}

// triesAll makes an attempt for each lock at the same time.
func (m *member) triesAll() map[int64]lock.Attempt {
	type one struct {
		key int64
		got lock.Attempt
	}
	all := make(chan one)
	for _, key := range keys {
		go func() { all <- one{key, m.tries(key)} }()
	}
	got := map[int64]lock.Attempt{}
	for range keys {
		o := <-all
		got[o.key] = o.got
	}
	return got
}

func TestAllLocksAreHeldByOneSessionAndEachIsReleasedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		one, two := join(t, server, "one"), join(t, server, "two")
		locks := map[int64]*lock.Lock{}
		for key, got := range one.triesAll() {
			if got.Outcome != lock.Granted || !got.Lock.IsShared() || got.Lock.Key() != key || got.Lock.Token() == 0 {
				t.Fatalf("%d: %+v", key, got)
			}
			locks[key] = got.Lock
		}
		if a, b := locks[1].Session, locks[3].Session; a != b {
			t.Error("two sessions hold the locks")
		}
		for key, got := range two.triesAll() {
			if got.Outcome != lock.Busy || got.Holder.CandidateID != "one" || got.Err != nil {
				t.Errorf("%d: %+v", key, got)
			}
		}
		if err := locks[2].Release(); err != nil {
			t.Error(err)
		}
		locks[2].WorkReturned()
		locks[2].Discard()
		got := two.tries(2)
		if got.Outcome != lock.Granted || got.Lock.Token() <= locks[2].Token() {
			t.Fatalf("the lock that was released: %+v", got)
		}
		for _, key := range []int64{1, 3} {
			if err := locks[key].Verify(t.Context()); err != nil {
				t.Errorf("%d: %v", key, err)
			}
		}
		one.leave()
		for _, key := range []int64{1, 3} {
			if got := two.tries(key); got.Outcome != lock.Granted {
				t.Errorf("%d, when its session was closed: %+v", key, got)
			}
		}
		two.leave()
		if time.Sleep(time.Second); len(server.Locks()) > 0 {
			t.Errorf("left: %+v", server.Locks())
		}
	})
}

func TestLocksThatAreReleasedTogetherAreReleasedByOneStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		one := join(t, server, "one")
		statements := map[string]int{}
		got := one.triesAll()
		server.Trace(func(e electortest.Event) {
			if !e.Done {
				statements[e.What]++
			}
		})
		released := make(chan error)
		for _, key := range keys {
			go func() { released <- got[key].Lock.Release() }()
		}
		for range keys {
			if err := <-released; err != nil {
				t.Error(err)
			}
		}
		if n := statements["Unlock"] + statements["UnlockMany"]; n > 2 { // the first may go alone
			t.Errorf("%d statements: %v", n, statements)
		}
		server.Trace(nil)
		one.leave()
	})
}

func TestALockThatIsNotHeldCannotBeReleasedAndEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		one := join(t, server, "one")
		got := one.triesAll()
		if err := got[1].Lock.Release(); err != nil {
			t.Error(err)
		}
		if err := got[1].Lock.Release(); err == nil || !got[2].Lock.Lost() {
			t.Errorf("released again: %v; the session is lost: %t", err, got[2].Lock.Lost())
		}
		if err := got[2].Lock.Release(); err == nil {
			t.Error("a lock of a lost session was released")
		}
		<-got[3].Lock.Session.Context().Done()
		for _, key := range []int64{1, 3} {
			got[key].Lock.WorkReturned()
		}
		got[2].Lock.WorkReturned()
		if again := one.tries(1); again.Outcome != lock.Granted || again.Lock.Session == got[1].Lock.Session {
			t.Errorf("a new session: %+v", again)
		}
		one.leave()
	})
}

// The server may still hold the locks of the session that was lost: who asks for them at once finds
// them busy, and would wait for a retry interval.
func TestAfterALostSessionTheLocksAreAskedForAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		one, two := joinEvery(t, server, "one", time.Hour), join(t, server, "two")
		got := one.tries(1)
		if err := errors.Join(got.Lock.Release(), got.Lock.Release()); err == nil {
			t.Fatal("a lock that is not held was released")
		}
		got.Lock.WorkReturned()
		inTheWay := two.tries(1)
		began := time.Now()
		if again := one.tries(1); again.Outcome != lock.Busy {
			t.Fatalf("the first attempt of the new session: %+v", again)
		}
		if err := inTheWay.Lock.Release(); err != nil {
			t.Error(err)
		}
		if again := one.tries(1); again.Outcome != lock.Granted || time.Since(began) > time.Second {
			t.Errorf("after %v: %+v", time.Since(began), again)
		}
		one.leave()
		two.leave()
	})
}

func TestAnAttemptOnAClosedSessionSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		one := join(t, server, "one")
		errLeft := errors.New("left")
		one.stop(errLeft)
		if got := one.tries(1); got.Outcome != lock.Failed || !errors.Is(got.Err, errLeft) {
			t.Errorf("got %+v", got)
		}
		one.leave()
		if server.Connections() != 0 {
			t.Errorf("%d connections", server.Connections())
		}
	})
}

func TestAnAttemptEndsWithItsContextAndKeepsNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		one := join(t, server, "one")
		server.Stall()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got := one.acquirers[1].Acquire(ctx, lock.Try{Woken: wakeup.New()}); !errors.Is(got.Err, context.DeadlineExceeded) {
			t.Errorf("got %+v", got)
		}
		server.Resume()
		time.Sleep(time.Second)
		for _, l := range server.Locks() {
			if l.Key == 1 {
				t.Errorf("nobody asks for it: %+v", l)
			}
		}
		one.leave()
	})
}

package shared_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/deputy"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/shared"
	"github.com/pgelector/pgelector/internal/wakeup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const retry = time.Second

// A member is a shared session, and three elections on it.
type member struct {
	*shared.Shared
	pool      *sql.DB
	stop      context.CancelCauseFunc
	acquirers map[int64]*shared.Acquirer
	elections map[int64]*election.Election
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
	m := &member{pool: process.Open(), acquirers: map[int64]*shared.Acquirer{}, elections: map[int64]*election.Election{}}
	config := election.SessionConfig{CandidateID: id,
		Lease:  lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second},
		Report: func(doing string, err error) { t.Errorf("%s: %s: %v", id, doing, err) }}
	ctx, stop := context.WithCancelCause(context.Background())
	m.stop = stop
	m.Shared = shared.New(ctx, retry, 0)
	config.Statements = m.Shared.Statements
	source := election.NewSource(m.pool, config)
	m.On(source)
	for _, key := range keys {
		own := config
		own.Statements = deputy.New(deputy.Config{CandidateID: id, Key: key, Inside: func() bool { return false }}).Statements
		e := election.Config{Key: key, Look: func() bool { return true }, Retry: func() time.Duration { return retry }, Observer: quiet{}}
		m.acquirers[key] = &shared.Acquirer{Shared: m.Shared, Name: id, Waker: func() shared.Waker { return wakeup.New() }, Own: election.New(election.NewSource(m.pool, own), e)}
		e.Acquirer = m.acquirers[key]
		m.elections[key] = election.New(source, e)
	}
	return m
}

type quiet struct{}

func (quiet) Attempted(election.Attempt)    {}
func (quiet) Elected(*election.Term)        {}
func (quiet) Ended(*election.Term, error)   {}
func (quiet) Demoted(*election.Term, error) {}
func (quiet) Released(*election.Term)       {}
func (quiet) Failed(string, error)          {}

// leave closes the session.
func (m *member) leave() {
	m.stop(errors.New("it leaves"))
	m.Close()
	_ = m.pool.Close()
}

func (m *member) tries(key int64) election.Attempt {
	return m.acquirers[key].Acquire(context.Background(), m.elections[key])
}

// leads fails the test unless the member is elected.
func (m *member) leads(t *testing.T, key int64) *election.Term {
	t.Helper()
	term, err := m.elections[key].TryCampaign(t.Context())
	if err != nil || term == nil {
		t.Fatalf("%d: got %v, %v", key, term, err)
	}
	return term
}

// leadsAll has the member elected for each lock at the same time.
func (m *member) leadsAll(t *testing.T) map[int64]*election.Term {
	t.Helper()
	terms := make(chan *election.Term)
	for _, key := range keys {
		go func() {
			term, err := m.elections[key].TryCampaign(t.Context())
			if err != nil {
				t.Error(err)
			}
			terms <- term
		}()
	}
	got := map[int64]*election.Term{}
	for range keys {
		term := <-terms
		if term == nil {
			t.Fatal("not elected")
		}
		got[term.Lock().Key()] = term
	}
	return got
}

// abandon ends a term whose session was lost.
func abandon(t *testing.T, terms ...*election.Term) {
	t.Helper()
	for _, term := range terms {
		if err := term.Resign(t.Context()); err == nil {
			t.Error("a lock of a lost session was released")
		}
	}
}

func TestAllLocksAreHeldByOneSessionAndEachIsReleasedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		one, two := join(t, server, "one"), join(t, server, "two")
		terms := one.leadsAll(t)
		for key, term := range terms {
			if term.Lock().IsOwn() || term.Token() == 0 {
				t.Errorf("%d: %+v", key, term)
			}
		}
		if a, b := terms[1].Lock().Session(), terms[3].Lock().Session(); a != b {
			t.Error("two sessions hold the locks")
		}
		for _, key := range keys {
			if got := two.tries(key); got.Outcome != election.Busy || got.Holder.CandidateID != "one" || got.Err != nil || !got.Paced || got.BusyAt.IsZero() {
				t.Errorf("%d: %+v", key, got)
			}
		}
		if err := terms[2].Resign(t.Context()); err != nil {
			t.Error(err)
		}
		next := two.leads(t, 2)
		if next.Token() <= terms[2].Token() {
			t.Errorf("token %d after %d", next.Token(), terms[2].Token())
		}
		for _, key := range []int64{1, 3} {
			if err := terms[key].Verify(t.Context()); err != nil {
				t.Errorf("%d: %v", key, err)
			}
		}
		for _, key := range []int64{1, 3} {
			terms[key].End(election.Shutdown, errors.New("it leaves"))
			terms[key].WorkReturned()
		}
		one.leave()
		others := []*election.Term{next}
		for _, key := range []int64{1, 3} {
			others = append(others, two.leads(t, key))
		}
		for _, term := range others {
			if err := term.Resign(t.Context()); err != nil {
				t.Error(err)
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
		got := one.leadsAll(t)
		server.Trace(func(e electortest.Event) {
			if !e.Done {
				statements[e.What]++
			}
		})
		released := make(chan error)
		for _, key := range keys {
			go func() { released <- got[key].Resign(t.Context()) }()
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

// unlocked has other code release the lock of a session, as by pg_advisory_unlock_all.
func unlocked(t *testing.T, term *election.Term) {
	t.Helper()
	if _, err := election.Ask(t.Context(), term.Lock().Session(), (*db.Queries).Unlock, term.Lock().Key()); err != nil {
		t.Error(err)
	}
}

func TestALockThatIsNotHeldCannotBeReleasedAndEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		one := join(t, server, "one")
		got := one.leadsAll(t)
		unlocked(t, got[1])
		if err := got[1].Resign(t.Context()); !errors.Is(err, pgerr.ErrSessionLost) || got[2].Valid() {
			t.Errorf("released: %v; the session is lost: %t", err, !got[2].Valid())
		}
		abandon(t, got[2], got[3])
		again := one.leads(t, 1)
		if again.Lock().Session() == got[1].Lock().Session() {
			t.Error("the session is the same")
		}
		if err := again.Resign(t.Context()); err != nil {
			t.Error(err)
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
		got := one.leads(t, 1)
		unlocked(t, got)
		abandon(t, got)
		inTheWay := two.leads(t, 1)
		began := time.Now()
		if again := one.tries(1); again.Outcome != election.Busy {
			t.Fatalf("the first attempt of the new session: %+v", again)
		}
		if err := inTheWay.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		again := one.tries(1)
		if again.Outcome != election.Granted || time.Since(began) > time.Second {
			t.Errorf("after %v: %+v", time.Since(began), again)
		}
		election.GiveUp(again.Lock)
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
		if got := one.tries(1); got.Outcome != election.Failed || !errors.Is(got.Err, errLeft) {
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
		if got := one.acquirers[1].Acquire(ctx, one.elections[1]); !errors.Is(got.Err, context.DeadlineExceeded) {
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

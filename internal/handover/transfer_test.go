package handover_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/deputy"
	"github.com/pgelector/pgelector/internal/handover"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/pair"
	"github.com/pgelector/pgelector/internal/session"
	"github.com/pgelector/pgelector/internal/wakeup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = 7

// A stage is a server in memory, a lock that "one" holds, and an acquirer of "two".
type stage struct {
	*testing.T
	*electortest.Server
	held *lock.Lock
	two  lock.Acquirer
}

func staged(t *testing.T, test func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, Server: electortest.NewServer()}
		defer s.Close()
		acquirer := func(id string) lock.Acquirer {
			pool := s.Open()
			t.Cleanup(func() { _ = pool.Close() })
			source := session.NewSource(pool, session.Config{Name: id, Scope: session.SessionScope, OnBeat: func(session.Beat) {},
				Lease:  lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second},
				Report: func(_ context.Context, _ session.Task, err error) { t.Errorf("%s: %v", id, err) }})
			d := &lock.Dedicated{Config: lock.Config{Key: key, ReportHolder: func() bool { return false }}, Source: source}
			return deputy.New(d, deputy.Config{Offer: handover.OfferKey(id, key), Succeed: handover.Succeed, Interval: time.Second, Retry: func() time.Duration { return time.Second }})
		}
		s.two = acquirer("two")
		got := acquirer("one").Acquire(t.Context(), lock.Try{Woken: wakeup.New()})
		if got.Outcome != lock.Granted {
			t.Fatalf("got %+v", got)
		}
		s.held = got.Lock
		defer s.held.Discard()
		test(s)
	})
}

// attempts has "two" attempt each second until it is elected or ctx ends.
func (s *stage) attempts(ctx context.Context) <-chan *lock.Lock {
	elected := make(chan *lock.Lock, 1)
	go func() {
		defer close(elected)
		for ctx.Err() == nil {
			if got := s.two.Acquire(ctx, lock.Try{Woken: wakeup.New()}); got.Outcome == lock.Granted {
				elected <- got.Lock
				return
			}
			time.Sleep(time.Second)
		}
	}()
	return elected
}

func (s *stage) offers() (n int) {
	for _, l := range s.Locks() {
		if l.Guard && l.Key == handover.OfferKey("two", key) {
			n++
		}
	}
	return n
}

func TestTheLockGoesToTheSuccessorThatWaits(t *testing.T) {
	staged(t, func(s *stage) {
		elected := s.attempts(s.Context())
		transfer, offered := handover.New(s.held, "two"), 0
		if err := transfer.Prepare(s.Context(), func() { offered++ }); err != nil || offered != 1 || s.offers() != 1 || !s.held.Session.Valid() {
			s.Fatalf("offered %d times: %v", offered, err)
		}
		select {
		case <-elected:
			s.Fatal("two lead")
		default:
		}
		released, heir := transfer.Release(2 * time.Second)
		if !released || heir != "two" {
			s.Errorf("released %t to %q", released, heir)
		}
		transfer.Withdraw()
		l := <-elected
		if s.offers() != 0 || l.Token() <= s.held.Token() {
			s.Errorf("%d offers, token %d after %d", s.offers(), l.Token(), s.held.Token())
		}
		l.Discard()
	})
}

func TestAnOfferThatNobodyTakesIsWithdrawn(t *testing.T) {
	errEnough := errors.New("enough")
	staged(t, func(s *stage) {
		ctx, cancel := context.WithTimeoutCause(s.Context(), 3*time.Second, errEnough)
		defer cancel()
		transfer, offered := handover.New(s.held, "two"), 0
		if err := transfer.Prepare(ctx, func() { offered++ }); !errors.Is(err, errEnough) || offered != 1 {
			s.Errorf("offered %d times: %v", offered, err)
		}
		if s.offers() != 1 {
			s.Errorf("%d offers", s.offers())
		}
		transfer.Withdraw()
		if err := s.held.Verify(s.Context()); err != nil || s.offers() != 0 {
			s.Errorf("%d offers: %v", s.offers(), err)
		}
		handover.New(s.held, "two").Withdraw() // which was never offered
		if !s.held.Session.Valid() {
			s.Error("the session was lost")
		}
	})
}

// The work has returned, so nobody leads meanwhile.
func TestALockIsKeptForAnAbsentSuccessorForAHeartbeatIntervalOrASecond(t *testing.T) {
	for heartbeat, want := range map[time.Duration]time.Duration{2 * time.Second: 2 * time.Second, time.Millisecond: time.Second} {
		staged(t, func(s *stage) {
			began := time.Now()
			released, heir := handover.New(s.held, "two").Release(heartbeat)
			if took := time.Since(began); released || heir != "" || took < want || took > want+100*time.Millisecond {
				s.Errorf("released %t to %q after %v", released, heir, took)
			}
			if held, err := s.held.Holds(s.Context()); !held || err != nil {
				s.Errorf("held %t: %v", held, err)
			}
		})
	}
}

func TestAnAnswerIsThereUntilItIsStoppedOrForALease(t *testing.T) {
	for name, after := range map[string]time.Duration{"stopped": 3 * time.Second, "never stopped": time.Hour} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(s *stage) {
				ctx, cancel := context.WithTimeout(s.Context(), after)
				defer cancel()
				began := time.Now()
				done := make(chan struct{})
				go func() {
					defer close(done)
					handover.Answer(s.held, handover.OfferKey("two", key), ctx)
				}()
				synctest.Wait()
				if s.offers() != 1 {
					s.Errorf("%d answers", s.offers())
				}
				<-done
				if took := time.Since(began); took != min(after, 10*time.Second) || s.offers() != 0 {
					s.Errorf("after %v: %d answers", took, s.offers())
				}
			})
		})
	}
}

func TestAnOfferThatAStrangerMakesIsNotWaitedFor(t *testing.T) {
	staged(t, func(s *stage) {
		pool := s.Open()
		defer pool.Close()
		stranger, err := session.NewSource(pool, session.Config{Name: "stranger", Scope: session.SessionScope, Lease: lease.Lease{Length: time.Minute}}).Borrow(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		defer stranger.Discard()
		if granted, err := pair.Try(stranger, handover.OfferKey("two", key)); !granted || err != nil {
			s.Fatalf("granted %t: %v", granted, err)
		}
		began := time.Now()
		if got := s.two.Acquire(s.Context(), lock.Try{Woken: wakeup.New()}); got.Outcome != lock.Busy || got.Err != nil || time.Since(began) > time.Second {
			s.Errorf("after %v: %+v", time.Since(began), got)
		}
	})
}

func TestTheOfferIsToOneCandidateOfOneElection(t *testing.T) {
	seen := map[int64]bool{}
	for _, k := range []int64{handover.OfferKey("a", 1), handover.OfferKey("b", 1), handover.OfferKey("a", 2)} {
		if seen[k] {
			t.Error("two offers have one key")
		}
		seen[k] = true
	}
}

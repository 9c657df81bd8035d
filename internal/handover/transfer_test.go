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
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/handover"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/seat"
	"github.com/pgelector/pgelector/internal/transaction"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = 7

// A stage is a server in memory, a lock that "one" leads with, and an acquirer of "two".
type stage struct {
	*testing.T
	*electortest.Server
	term *election.Term
	held *election.Lock // of the term
	two  *deputy.Acquirer
	on   *election.Election // of "two"
}

func staged(t *testing.T, test func(s *stage)) {
	t.Helper()
	stagedWith(t, 2*time.Second, test)
}

func stagedWith(t *testing.T, heartbeat time.Duration, test func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, Server: electortest.NewServer()}
		defer s.Close()
		candidate := func(id string) (*deputy.Acquirer, *election.Election) {
			pool := s.Open()
			t.Cleanup(func() { _ = pool.Close() })
			d := deputy.New(deputy.Config{CandidateID: id, Key: key, Interval: time.Second, Inside: func() bool { return false }})
			from := election.NewSource(pool, election.SessionConfig{CandidateID: id, Statements: d.Statements, Parts: []election.Part{d},
				Lease:  lease.Lease{Length: 10 * time.Second, Heartbeat: heartbeat, Drain: 2 * time.Second},
				Report: func(doing string, err error) { t.Errorf("%s: %s: %v", id, doing, err) }})
			return d, election.New(from, election.Config{Key: key, Retry: func() time.Duration { return time.Second }, Acquirer: d, Observer: quiet{}})
		}
		var one *election.Election
		s.two, s.on = candidate("two")
		_, one = candidate("one")
		var err error
		if s.term, err = one.TryCampaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.held = s.term.Lock()
		test(s)
		_ = s.term.Resign(t.Context())
		<-s.term.Done()
	})
}

type quiet struct{}

func (quiet) Attempted(election.Attempt)    {}
func (quiet) Elected(*election.Term)        {}
func (quiet) Ended(*election.Term, error)   {}
func (quiet) Demoted(*election.Term, error) {}
func (quiet) Released(*election.Term)       {}
func (quiet) Failed(string, error)          {}

// attempts has "two" attempt each second until it is elected or ctx ends.
func (s *stage) attempts(ctx context.Context) <-chan election.Attempt {
	elected := make(chan election.Attempt, 1)
	go func() {
		defer close(elected)
		for ctx.Err() == nil {
			if got := s.two.Acquire(ctx, s.on); got.Outcome == election.Granted {
				elected <- got
				return
			}
			time.Sleep(time.Second)
		}
	}()
	return elected
}

func (s *stage) offers() (n int) {
	for _, l := range s.Locks() {
		if l.Guard && l.Key == seat.OfferKey("two", key) {
			n++
		}
	}
	return n
}

// end ends the term, with the transfer's release, and returns once the lock is given up.
func (s *stage) end(t *handover.Transfer) error {
	s.held.ReleaseBy(t.Release)
	return s.term.Resign(s.Context())
}

func TestTheLockGoesToTheSuccessorThatWaits(t *testing.T) {
	staged(t, func(s *stage) {
		elected := s.attempts(s.Context())
		transfer, offered := handover.New(s.held, "two"), 0
		if err := transfer.Prepare(s.Context(), func() { offered++ }); err != nil || offered != 1 || s.offers() != 1 || !s.term.Valid() {
			s.Fatalf("offered %d times: %v", offered, err)
		}
		select {
		case <-elected:
			s.Fatal("two lead")
		default:
		}
		if err := s.end(transfer); err != nil || transfer.Heir() != "two" {
			s.Errorf("released to %q: %v", transfer.Heir(), err)
		}
		transfer.Withdraw() // with its session the offer has gone
		got := <-elected
		if synctest.Wait(); s.offers() != 0 || !got.Named {
			s.Errorf("%d offers, %+v", s.offers(), got)
		}
		got.Lock.Session().Close()
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
		if err := s.term.Verify(s.Context()); err != nil || s.offers() != 0 {
			s.Errorf("%d offers: %v", s.offers(), err)
		}
		handover.New(s.held, "two").Withdraw() // which was never offered
		if !s.term.Valid() {
			s.Error("the session was lost")
		}
	})
}

// The work has returned, so nobody leads meanwhile. Then the kernel releases the lock.
func TestALockIsKeptForAnAbsentSuccessorForAHeartbeatIntervalOrASecond(t *testing.T) {
	for heartbeat, want := range map[time.Duration]time.Duration{2 * time.Second: 2 * time.Second, time.Millisecond: time.Second} {
		stagedWith(t, heartbeat, func(s *stage) {
			began := time.Now()
			released, err := handover.New(s.held, "two").Release(s.Context(), s.held.Session())
			if took := time.Since(began); released || err != nil || took < want || took > want+100*time.Millisecond {
				s.Errorf("released %t after %v: %v", released, took, err)
			}
			if err := s.held.Verify(s.Context()); err != nil {
				s.Errorf("held: %v", err)
			}
			transfer := handover.New(s.held, "two")
			if err := s.end(transfer); err != nil || transfer.Heir() != "" {
				s.Errorf("released to %q: %v", transfer.Heir(), err)
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
					handover.Answer(s.held, seat.OfferKey("two", key), ctx)
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
		stranger, err := election.NewSource(pool, election.SessionConfig{CandidateID: "stranger", Lease: lease.Lease{Length: time.Minute}}).Lend(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		defer stranger.Fail(errors.New("enough"))
		if granted, err := transaction.TryPair(s.Context(), stranger, seat.OfferKey("two", key)); !granted || err != nil {
			s.Fatalf("granted %t: %v", granted, err)
		}
		began := time.Now()
		if got := s.two.Acquire(s.Context(), s.on); got.Outcome != election.Busy || got.Err != nil || got.Named || got.BusyAt.IsZero() || time.Since(began) > time.Second {
			s.Errorf("after %v: %+v", time.Since(began), got)
		}
		if n := s.on.Source().Pool().Stats().InUse; n != 0 {
			s.Errorf("%d connections are in use", n)
		}
	})
}

func TestTheOfferIsToOneCandidateOfOneElection(t *testing.T) {
	seen := map[int64]bool{}
	for _, k := range []int64{seat.OfferKey("a", 1), seat.OfferKey("b", 1), seat.OfferKey("a", 2)} {
		if seen[k] {
			t.Error("two offers have one key")
		}
		seen[k] = true
	}
}

package elector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/preflight"
)

// subscribers is a notifier that counts those who have subscribed, and wakes the last one.
type subscribers struct {
	n    int
	wake func(payload string)
}

func (s *subscribers) Subscribe(wake func(payload string)) (unsubscribe func()) {
	s.n++
	s.wake = wake
	return func() { s.n-- }
}

// A stage is one candidate on a driver that answers by script: the lock is granted and released.
type stage struct {
	*Elector
	driver   *drivertest.Driver
	notifier subscribers

	mu       sync.Mutex
	sent     []string // what was notified
	released int      // how often the lock was
}

func (s *stage) answer(_ context.Context, statement string, args []any) (drivertest.Rows, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch drivertest.NameOf(statement) {
	case "TryElection":
		return drivertest.One("granted", int64(7), int64(0), "")
	case "ConfirmElection":
		return drivertest.One(true, int64(7), false, int64(1<<election.TimelineShift|9), "0")
	case "Ping":
		return drivertest.One(int64(7), false, false)
	case "Unlock":
		s.released++
	}
	for _, arg := range args {
		if text, ok := arg.(string); ok {
			s.sent = append(s.sent, text)
		}
	}
	return drivertest.One(true)
}

// A plain acquirer makes attempts as the kernel does without one.
type plain struct{}

func (plain) Acquire(ctx context.Context, k *election.Election) election.Attempt {
	return k.Attempt(ctx)
}
func (plain) Close() {}

// onStage runs a test in virtual time.
func onStage(t *testing.T, test func(t *testing.T, s *stage), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{}
		s.driver = &drivertest.Driver{Exec: func(context.Context, string) (int64, error) { return 0, nil }, Query: s.answer}
		pool := s.driver.Open()
		defer pool.Close()
		c, err := configure("jobs", append([]Option{WithNotifier(&s.notifier), WithKey(5)}, opts...))
		if err != nil {
			t.Fatal(err)
		}
		s.Elector = newElector(t.Context(), pool, "jobs", c)
		s.found = preflight.NewScope(holder.SessionScope)
		s.elects(election.NewSource(pool, election.SessionConfig{CandidateID: c.candidateID, Lease: c.lease}), plain{})
		test(t, s)
		s.announcer.flush()
		synctest.Wait()
	})
}

// lead begins a term, whose work is the test's.
func (s *stage) lead(t *testing.T) *Term {
	t.Helper()
	s.begins(t.Context(), true)
	if _, err := s.kernel.Campaign(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s.term.Load()
}

// demote ends the term, and waits until it has given the lock up.
func demote(term *Term) {
	term.end(hooks.Resigned, ErrResigned)
	term.term.WorkReturned()
	<-term.done
}

// What hears of the session's end does so on another goroutine.
func TestATermHasEndedOnceAnotherEndIsRefused(t *testing.T) {
	for range 20 {
		onStage(t, func(t *testing.T, s *stage) {
			term := s.lead(t)
			_ = term.lock.Session().Lose(errors.New("gone"))
			if term.end(hooks.Resigned, ErrResigned) || term.ctx.Err() == nil || reasonOf(context.Cause(term.ctx)) != hooks.SessionLost {
				t.Errorf("ended: %v", context.Cause(term.ctx))
			}
			demote(term)
		})
	}
}

// So does what hears that no term may go on.
func TestATermIsOverAtOnceIfNoneMayGoOn(t *testing.T) {
	for range 20 {
		onStage(t, func(t *testing.T, s *stage) {
			term := s.lead(t)
			term.lock.Session().EndTerms(ErrNotSynchronous)
			if term.Valid() {
				t.Error("the term goes on")
			}
			if err := term.Verify(t.Context()); !errors.Is(err, ErrNotLeader) || !errors.Is(err, ErrNotSynchronous) {
				t.Error(err)
			}
			demote(term)
		})
	}
}

func TestATermListensForRequestsUntilItEnds(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		term := s.lead(t)
		if s.notifier.n != 1 {
			t.Errorf("%d subscriptions", s.notifier.n)
		}
		demote(term)
		if synctest.Wait(); s.notifier.n != 0 {
			t.Errorf("%d subscriptions are left", s.notifier.n)
		}
	})
}

// An heir is an offer that its candidate takes, if it has a name.
type heir struct{ name string }

func (h heir) Release(context.Context, *election.Session) (bool, error) { return true, nil }
func (h heir) Heir() string                                             { return h.name }
func (heir) Withdraw()                                                  {}

func TestTheOthersHearThatALockIsFreeUnlessSomebodyHasGotIt(t *testing.T) {
	for name, free := range map[string]bool{"two": false, "": true} {
		onStage(t, func(t *testing.T, s *stage) {
			term := s.lead(t)
			term.endFor(heir{name}, hooks.Resigned, ErrResigned)
			demote(term)
			s.mu.Lock()
			defer s.mu.Unlock()
			if got := strings.Contains(strings.Join(s.sent, "\n"), payload(eventFree, s.key)); got != free || term.after.released != nil {
				t.Errorf("heir %q: sent %q, %v", name, s.sent, term.after.released)
			}
		})
	}
}

func TestALockIsNotReleasedByAShutdownThatLeavesItToTheServer(t *testing.T) {
	for _, graceful := range []bool{true, false} {
		for reason, released := range map[hooks.Reason]bool{hooks.Shutdown: graceful, hooks.Resigned: true} {
			onStage(t, func(t *testing.T, s *stage) {
				term := s.lead(t)
				term.end(reason, ErrStopped)
				demote(term)
				if err := term.after.released; (err == nil) != released || (s.released == 1) != released || err != nil && !errors.Is(err, ErrNotLeader) {
					t.Errorf("graceful %t, %v: released %d times: %v", graceful, reason, s.released, err)
				}
			}, WithGracefulRelease(graceful))
		}
	}
}

func TestTheErrorOfACallOnATermHasTheCausesThatApply(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		term := s.lead(t)
		failed := errors.New("failed")
		if err := term.because(t.Context(), "work", failed); err != failed {
			t.Errorf("the term and the context go on: %v", err)
		}
		if err := term.because(t.Context(), "work", nil); err != nil {
			t.Errorf("nothing has failed: %v", err)
		}
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if err := term.because(ctx, "work", failed); !errors.Is(err, why) || !errors.Is(err, context.Canceled) || !errors.Is(err, failed) || errors.Is(err, ErrNotLeader) {
			t.Errorf("the context has ended: %v", err)
		}
		demote(term)
		if err := term.because(t.Context(), "work", failed); !errors.Is(err, ErrNotLeader) || !errors.Is(err, ErrResigned) || !errors.Is(err, failed) || errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "work") {
			t.Errorf("the term has ended: %v", err)
		}
		for _, err := range []error{term.because(term.ctx, "work", nil), term.because(t.Context(), "work", ErrResigned)} {
			if !errors.Is(err, ErrResigned) || strings.Count(err.Error(), ErrResigned.Error()) != 1 {
				t.Errorf("it is said twice, or not: %v", err)
			}
		}
		if err := term.because(ctx, "work", nil); !errors.Is(err, ErrNotLeader) || !errors.Is(err, why) {
			t.Errorf("both have ended: %v", err)
		}
	})
}

func TestACampaignIsWokenByWhatConcernsIt(t *testing.T) {
	for _, sees := range []bool{false, true} {
		var opts []Option
		if sees {
			opts = append(opts, WithHooks(hooks.Funcs{LeaderChanged: func(context.Context, hooks.LeaderChanged) {}}))
		}
		onStage(t, func(t *testing.T, s *stage) {
			defer s.subscribeCampaign()()
			for said, want := range map[string]bool{
				"": true, payload(eventFree, s.key): true, payload(eventFree, s.key+1): false, payload(eventRequest, s.key): false, payload(eventLed, s.key): sees,
				payload(eventSuccessor, s.key, s.candidateID): true, payload(eventSuccessor, s.key, "another"): false, payload(eventRequest, s.key, s.candidateID): false,
			} {
				s.notifier.wake(said)
				woken := false
				select {
				case <-s.wakeUps.Woken():
					woken = true
				default:
				}
				if woken != want {
					t.Errorf("a hook sees the leader: %t; %q: woken %t", sees, said, woken)
				}
			}
		}, opts...)
	}
}

func TestATermIsNamedByItsTokenCandidateAndElection(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		term := s.lead(t)
		defer demote(term)
		want := fmt.Sprintf("term %d of candidate %q of election %q", term.Token(), s.candidateID, s.election)
		if got := fmt.Sprint(term); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

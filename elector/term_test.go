package elector

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/session"
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

// A released lock says to whom, and how often.
type releaser struct{ n int }

func (r *releaser) Release(*session.Session, int64) error { r.n++; return nil }

// A stage is one candidate on a driver that answers by script.
type stage struct {
	*Elector
	pool     *sql.DB
	driver   *drivertest.Driver
	notifier subscribers
	releaser releaser

	mu   sync.Mutex
	sent []string // what was notified
}

// onStage runs a test in virtual time.
func onStage(t *testing.T, test func(t *testing.T, s *stage), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{}
		s.driver = &drivertest.Driver{
			Exec: func(context.Context, string) (int64, error) { return 0, nil },
			Query: func(_ context.Context, statement string, args []any) (drivertest.Rows, error) {
				if drivertest.NameOf(statement) == "Ping" {
					return drivertest.One(int64(7), false, false)
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, arg := range args {
					if text, ok := arg.(string); ok {
						s.sent = append(s.sent, text)
					}
				}
				return drivertest.One(true)
			},
		}
		s.pool = s.driver.Open()
		defer s.pool.Close()
		c, err := configure("jobs", append([]Option{WithNotifier(&s.notifier), WithKey(5)}, opts...))
		if err != nil {
			t.Fatal(err)
		}
		s.Elector = newElector(t.Context(), s.pool, "jobs", c)
		test(t, s)
		s.announcer.flush()
		synctest.Wait()
	})
}

// lead begins a term on a session of its own, without a campaign.
func (s *stage) lead(t *testing.T) *Term {
	t.Helper()
	from := session.NewSource(s.pool, session.Config{Scope: session.SessionScope, Lease: s.lease, OnBeat: func(session.Beat) {}, Report: func(context.Context, session.Task, error) {}})
	own, err := from.Borrow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own.Backend.SetPID(7)
	from.Start(own)
	t.Cleanup(own.Close)
	s.terms.Begin(func() bool { return true })
	return newTerm(t.Context(), s.candidate, lock.NewShared(s.key, own, 9, &s.releaser), nil)
}

// demote ends the term, and waits until it has given the lock up.
func demote(term *Term) {
	go term.stepDown()
	term.end(hooks.Resigned, ErrResigned)
	<-term.done
	term.lock.Session.Close()
}

// What hears of the session's end does so on another goroutine.
func TestATermHasEndedOnceAnotherEndIsRefused(t *testing.T) {
	for range 20 {
		onStage(t, func(t *testing.T, s *stage) {
			term := s.lead(t)
			_ = term.lock.Session.Lose(errors.New("gone"))
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
			term.lock.Session.EndTerms(ErrNotSynchronous)
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

func (h heir) Release(time.Duration) (bool, string) { return true, h.name }
func (heir) Withdraw()                              {}

func TestTheOthersHearThatALockIsFreeUnlessSomebodyHasGotIt(t *testing.T) {
	for name, free := range map[string]bool{"two": false, "": true} {
		onStage(t, func(t *testing.T, s *stage) {
			term := s.lead(t)
			go term.stepDown()
			term.endFor(heir{name}, hooks.Resigned, ErrResigned)
			<-term.done
			term.lock.Session.Close()
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
				if err := term.release(reason); (err == nil) != released || (s.releaser.n == 1) != released || err != nil && !errors.Is(err, ErrNotLeader) {
					t.Errorf("graceful %t, %v: released %d times: %v", graceful, reason, s.releaser.n, err)
				}
				s.terms.Finish()
				term.end(hooks.Resigned, ErrResigned)
				term.lock.Session.Close()
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
			c := s.newCampaign(false)
			defer c.subscribe()()
			for said, want := range map[string]bool{
				"": true, payload(eventFree, s.key): true, payload(eventFree, s.key+1): false, payload(eventRequest, s.key): false, payload(eventLed, s.key): sees,
				payload(eventSuccessor, s.key, s.candidateID): true, payload(eventSuccessor, s.key, "another"): false, payload(eventRequest, s.key, s.candidateID): false,
			} {
				s.notifier.wake(said)
				woken := false
				select {
				case <-c.wakeUps.Woken():
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
		want := fmt.Sprintf("term 9 of candidate %q of election %q", s.candidateID, s.election)
		if got := fmt.Sprint(term); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

package electortest_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

// The ends of a term of Campaign that its caller has not resigned, while the server receives
// the leader's messages.
var endings = map[string]func(s *candidate, sick *atomic.Bool, shared *elector.Session){
	"unhealthy": func(_ *candidate, sick *atomic.Bool, _ *elector.Session) { sick.Store(true) },
	"closed":    func(_ *candidate, _ *atomic.Bool, shared *elector.Session) { go shared.Close(context.Background()) },
	"deaf":      func(s *candidate, _ *atomic.Bool, _ *elector.Session) { s.process.Cut(electortest.Answers) },
}

// campaigned tests an end of a term of Campaign.
func campaigned(b *bench, name string, test func(s *candidate, term *elector.Term, end func())) {
	b.Helper()
	sick := new(atomic.Bool)
	s := b.candidate("one", elector.WithHealth(func(context.Context) float64 {
		if sick.Load() {
			return 0
		}
		return 1
	}, elector.HealthPolicy{}))
	var shared *elector.Session
	if name == "closed" {
		var err error
		shared, err = elector.NewSession(s.pool, elector.WithHooks(s.rec))
		b.wraps(err)
		s.Elector, err = shared.Elector("orders")
		b.wraps(err)
	}
	term, err := s.Campaign(context.Background())
	b.check(err)
	test(s, term, func() { endings[name](s, sick, shared) })
	s.process.Mend()
	_ = term.Resign(context.Background())
	if shared != nil {
		_ = shared.Close(context.Background())
	}
	time.Sleep(lease) // until the server notices a closed connection
	if n := len(b.Locks()); n != 0 {
		b.Errorf("%d locks are left", n)
	}
}

// The library ends the term but cannot see the caller's work return: until the caller
// resigns, the next leader must not begin.
func TestTheLockOfACampaignIsKeptUntilItsCallerResigns(t *testing.T) {
	for name := range endings {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				campaigned(b, name, func(s *candidate, term *elector.Term, end func()) {
					end()
					<-term.Context().Done()
					time.Sleep(lease / 20) // the drain is a fifth
					if n := len(b.Locks()); n == 0 {
						b.Error("the lock is free while the work winds down")
					}
					resigning := time.Now()
					_ = term.Resign(context.Background())
					b.within("Resign returns", 0, time.Since(resigning), time.Second) // the time limit on a dead link
				})
			})
		})
	}
}

func TestTheLockOfACampaignWhoseCallerDoesNotResignIsKeptForTheDrain(t *testing.T) {
	for name := range endings {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				campaigned(b, name, func(s *candidate, term *elector.Term, end func()) {
					end()
					<-term.Context().Done()
					time.Sleep(lease/5 - time.Millisecond)
					if n := len(b.Locks()); n == 0 {
						b.Error("the lock is free before the drain is over")
					}
					s.process.Mend()
					time.Sleep(2 * time.Second)
					if n := len(b.Locks()); n != 0 {
						b.Errorf("%d locks are held after the drain", n)
					}
					for _, failure := range s.rec.Failures() {
						if errors.Is(failure.Err, elector.ErrOverrun) {
							b.Errorf("got %v", failure.Err)
						}
					}
				})
			})
		})
	}
}

// A frozen process learns late that its term has ended, with little of the drain left. The
// work of Campaign's caller is not reported as an overrun.
func TestACampaignThatWasFrozenIsNotReportedToOverrun(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		term, err := one.Campaign(context.Background())
		b.wraps(err)
		one.process.Freeze()
		time.Sleep(lease * 85 / 100)
		one.process.Thaw()
		<-term.Context().Done()
		time.Sleep(lease)
		for _, failure := range one.rec.Failures() {
			if errors.Is(failure.Err, elector.ErrOverrun) {
				b.Errorf("got %v", failure.Err)
			}
		}
		b.wraps(term.Resign(context.Background()), elector.ErrNotLeader)
	})
}

// A process thaws after its lease has expired, with some of the drain left.
func TestALeaderThatThawsLearnsAtOnceThatItsLeaseHasExpired(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		term, err := one.Campaign(context.Background())
		b.wraps(err)
		one.process.Freeze()
		time.Sleep(validity + lease/20)
		one.process.Thaw()
		thawed := time.Now()
		<-term.Context().Done()
		b.within("the term's context ends", 0, time.Since(thawed), 10*time.Millisecond)
		b.wraps(context.Cause(term.Context()), elector.ErrLeaseExpired)
		_ = term.Resign(context.Background())
	})
}

// A campaign on a shared session is cancelled at every moment of its attempt, also when the
// lock was just granted.
func TestALockThatIsGrantedToACancelledCampaignIsReleased(t *testing.T) {
	bubble(t, func(b *bench) {
		process := b.NewProcess()
		process.SetLatency(func() time.Duration { return 50 * time.Millisecond })
		pool := process.Open()
		defer pool.Close()
		session, err := elector.NewSession(pool)
		b.check(err)
		defer func() { b.wraps(session.Close(context.Background())) }()
		orders, err := session.Elector("orders")
		b.check(err)
		other, err := session.Elector("other") // keeps the session open and busy
		b.check(err)
		_, err = other.Campaign(context.Background())
		b.check(err)
		elected := 0
		for patience := time.Duration(0); patience < 500*time.Millisecond; patience += 10 * time.Millisecond {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			term, err := orders.Campaign(ctx)
			cancel()
			if err == nil {
				elected++
				if err := term.Resign(context.Background()); err != nil {
					b.Error(err)
				}
			}
			time.Sleep(3 * time.Second)
			if slices.ContainsFunc(b.Locks(), func(l electortest.Lock) bool { return l.Key == orders.Key() }) {
				b.Fatalf("cancelled after %v, the campaign leaves its lock behind", patience)
			}
		}
		if elected == 0 || elected == 50 {
			b.Errorf("elected %d times of 50", elected)
		}
	})
}

func TestAFollowerAsksOncePerRetryIntervalOrALittleSooner(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		one := b.run("one", elector.WithRetryInterval(4*time.Second), elector.WithStandby(elector.Poll))
		time.Sleep(10 * time.Minute)
		all := one.rec.Campaigns()
		b.within("the first wait", 375*time.Millisecond, all[0].Next, 4*time.Second)
		shortest, longest := time.Hour, time.Duration(0)
		for i, c := range all[:len(all)-1] {
			if c.Outcome != hooks.Busy || c.Attempt != i+1 || all[i+1].At.Sub(c.At) != c.Next {
				b.Errorf("attempt %d: %+v, then %v", i+1, c, all[i+1].At)
			}
			if i > 0 {
				shortest, longest = min(shortest, c.Next), max(longest, c.Next)
			}
		}
		if shortest < 3*time.Second || longest > 4*time.Second || longest-shortest < 500*time.Millisecond || len(all) < 150 {
			b.Errorf("%d waits from %v to %v", len(all), shortest, longest)
		}
		b.failed(one)
	})
}

func TestWaitsAfterFailuresDoubleUpToTheCap(t *testing.T) {
	bubble(t, func(b *bench) {
		b.Stop()
		one := b.run("one", elector.WithBackoff(time.Second, 10*time.Second))
		time.Sleep(time.Minute)
		for i, c := range one.rec.Campaigns()[:7] {
			most := time.Duration(min(1<<i, 10)) * time.Second
			least := most * 3 / 4
			if i == 0 {
				least = most / 8
			}
			b.within("the wait", least, c.Next, most)
			if f := one.rec.Failures()[i]; c.Outcome != hooks.Failed || f.Attempt != i+1 || f.Permanent {
				b.Errorf("attempt %d: %+v, reported %+v", i+1, c, f)
			}
		}
	})
}

// A busy lock resets the count of failures. A refusal does not count.
func TestTooManyFailuresInARowAreGivenUp(t *testing.T) {
	for _, name := range []string{"Run", "Campaign", "Start"} {
		scene(t, name, func(b *bench) {
			leader := b.run("leader")
			one := b.candidate("one", elector.WithMaxAttempts(3), elector.WithBackoff(time.Second, time.Second))
			b.leads(leader)
			b.LimitConnections(b.Connections())
			gaveUp := make(chan error, 1)
			go func() {
				err := ways[name](always, one.Elector)
				if name == "Start" {
					time.Sleep(time.Minute)
					err = one.Stop(always)
				}
				gaveUp <- err
			}()
			for one.rec.Failures() == nil {
				time.Sleep(time.Millisecond)
			}
			b.LimitConnections(0)
			time.Sleep(2 * time.Second)
			if n := len(one.rec.Campaigns()); one.rec.Campaigns()[n-1].Outcome != hooks.Busy {
				b.Fatalf("got %+v", one.rec.Campaigns())
			}
			b.Stop()
			b.wraps(<-gaveUp, elector.ErrGaveUp)
			var attempts []hooks.Failure
			for _, f := range one.rec.Failures() {
				if f.Op == hooks.OpCampaign {
					attempts = append(attempts, f)
				}
			}
			if n := len(attempts); n < 4 || attempts[n-3].Attempt != 1 || attempts[n-2].Permanent || !attempts[n-1].Permanent {
				b.Errorf("reported %+v", attempts)
			}
		})
	}
	bubble(t, func(b *bench) {
		one := b.refused(elector.WithMaxAttempts(1))
		if err := one.Run(always, nil); !errors.Is(err, elector.ErrServerReadOnly) || errors.Is(err, elector.ErrGaveUp) {
			b.Errorf("got %v", err)
		}
	})
}

// Its end is no failure.
func TestAfterACampaignThatEndsBetweenAttemptsTheServerIsNotCheckedAgain(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		one := b.candidate("one")
		_, _, err := one.TryCampaign(always)
		b.wraps(err)
		b.Trace(func(event electortest.Event) {
			if event.What == "DescribeServer" {
				b.Error("the server is checked anew")
			}
		})
		for range 3 {
			ctx, stop := context.WithTimeout(always, 50*time.Millisecond)
			b.wraps(ways["Campaign"](ctx, one.Elector), context.DeadlineExceeded)
			stop()
		}
		b.Trace(nil)
		b.failed(one)
	})
}

// The first attempt of each campaign on a shared session waits for no batch.
func TestTheFirstAttemptOfEachCampaignIsMadeAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.Open()
		defer pool.Close()
		session, err := elector.NewSession(pool)
		b.wraps(err)
		one, err := session.Elector("orders")
		b.wraps(err)
		for range 3 {
			start := time.Now()
			term := b.campaign(one)
			b.within("elected", 0, time.Since(start), 10*time.Millisecond)
			b.wraps(term.Resign(always))
			start = time.Now()
			term, _, err := one.TryCampaign(always)
			b.wraps(err)
			b.within("elected", 0, time.Since(start), 10*time.Millisecond)
			b.wraps(term.Resign(always))
		}
		b.wraps(session.Close(always))
	})
}

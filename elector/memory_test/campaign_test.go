package memory_test

import (
	"context"
	"errors"
	"fmt"
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
	s := b.candidate("one", elector.WithHealth(func(context.Context) elector.HealthReport {
		if sick.Load() {
			return elector.HealthReport{Score: 0}
		}
		return elector.HealthReport{Score: 1}
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
		one := b.run("one", elector.WithRetryInterval(4*time.Second), elector.WithTakeover(elector.Poll))
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
		b.leads(b.run("other"))
		for range 3 {
			start := time.Now()
			_, elected, err := one.TryCampaign(always)
			if b.wraps(err); elected {
				b.Error("elected")
			}
			b.within("found that another leads", 0, time.Since(start), 10*time.Millisecond)
		}
		b.wraps(session.Close(always))
	})
}

// A proxy may lead to a standby until it notices that another server was promoted.
func TestAStandbyIsWaitedForUntilItIsPromotedOrTheTimeoutIsOver(t *testing.T) {
	const minute = time.Minute // the default
	for name, c := range map[string]struct {
		timeout, promoted time.Duration
		opts              []elector.Option
	}{
		"by default":               {minute, 55 * time.Second, nil},
		"never":                    {minute, 0, nil},
		"with a timeout":           {2 * minute, 115 * time.Second, []elector.Option{elector.WithReadOnlyTimeout(2 * minute)}},
		"never, with a timeout":    {2 * minute, 0, []elector.Option{elector.WithReadOnlyTimeout(2 * minute)}},
		"never, without a timeout": {0, 0, []elector.Option{elector.WithReadOnlyTimeout(0)}},
	} {
		scene(t, name, func(b *bench) {
			standby := b.NewStandby(0)
			b.Cleanup(standby.Close)
			one := b.candidate("one", c.opts...)
			one.process.ConnectTo(standby)
			if c.promoted > 0 {
				time.AfterFunc(c.promoted, func() { b.wraps(standby.Promote()) })
			}
			ctx, stop := context.WithTimeout(always, time.Hour)
			defer stop()
			start := time.Now()
			err := one.Run(ctx, func(context.Context, *elector.Term) error { return nil })
			failures := one.rec.Failures()
			for _, f := range failures {
				b.wraps(f.Err, elector.ErrServerReadOnly)
			}
			last := failures[len(failures)-1]
			if c.promoted > 0 {
				b.wraps(err)
				b.within("elected", c.promoted, time.Since(start), c.promoted+5*time.Second)
			} else {
				b.wraps(err, elector.ErrServerReadOnly)
				b.within("refused", c.timeout, time.Since(start), c.timeout+5*time.Second)
			}
			if last.Permanent == (c.promoted > 0) {
				b.Errorf("reported last %+v", last)
			}
		})
	}
}

// Followers that began together, as in a deployment, do not stay in step.
func TestCandidatesThatBeginTogetherSpreadTheirAttempts(t *testing.T) {
	bubble(t, func(b *bench) {
		b.leads(b.run("leader"))
		var all []*candidate
		for i := range 40 {
			all = append(all, b.run(fmt.Sprint(i), elector.WithTakeover(elector.Poll), elector.WithRetryInterval(8*time.Second)))
		}
		time.Sleep(4 * time.Second)
		soon := 0
		for _, s := range all {
			if len(s.rec.Campaigns()) > 1 {
				soon++
			}
		}
		if soon < 5 || soon > 35 {
			b.Errorf("%d of %d made their second attempt in the first half of the interval", soon, len(all))
		}
	})
}

func TestABackoffShorterThanTheQuickAttemptsIsKept(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one", elector.WithBackoff(20*time.Millisecond, 20*time.Millisecond))
		b.leads(one)
		b.Stop()
		time.Sleep(2 * heartbeat)
		before := len(one.rec.Campaigns())
		time.Sleep(time.Second)
		if n := len(one.rec.Campaigns()) - before; n < 45 {
			b.Errorf("%d attempts in a second", n)
		}
	})
}

// Quick attempts are not reported, but the end of the campaign is.
func TestARefusalInAQuickAttemptIsReported(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one", elector.WithBackoff(time.Minute, time.Minute))
		refused := make(chan error)
		go func() { refused <- one.Run(always, nil) }()
		b.leads(one)
		b.Stop()
		time.Sleep(2 * time.Second)
		one.pool.SetMaxOpenConns(1)
		b.wraps(<-refused, elector.ErrConfig)
		b.failed(one, hooks.OpHeartbeat, hooks.OpCampaign, hooks.OpCampaign)
		failures := one.rec.Failures()
		if f := failures[len(failures)-1]; !f.Permanent || !errors.Is(f.Err, elector.ErrConfig) {
			b.Errorf("reported %+v", f)
		}
	})
}

func TestAFollowerThroughAPoolerReportsThatItPolls(t *testing.T) {
	bubble(t, func(b *bench) {
		pooler := b.NewPooler(5)
		one, follower := b.candidate("one"), b.candidate("follower")
		for _, s := range []*candidate{one, follower} {
			pool := pooler.Open()
			b.Cleanup(func() { _ = pool.Close() })
			var err error
			s.Elector, err = elector.New(pool, "orders", elector.WithHooks(s.rec))
			b.wraps(err)
		}
		term := b.campaign(one.Elector)
		_, _, err := follower.TryCampaign(always)
		b.wraps(err)
		c, now := follower.rec.Campaigns()[0], follower.Settings()
		if !c.Polls || !c.InTransaction || now.Scope != elector.TransactionScope || now.Takeover != elector.Poll || now.RetryInterval != time.Second {
			b.Errorf("reported %+v, in force: %+v", c, now)
		}
		b.wraps(term.Resign(always))
	})
}

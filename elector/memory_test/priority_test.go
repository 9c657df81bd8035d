package memory_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/inbox"
)

// minTerm is how old a term is at the least before it ends in favor of a higher priority.
const minTerm = time.Minute

// A leader is asked once its term is a minute old, to the second in which it says that it began, after a random part of a second. It
// hears at its next heartbeat, and the candidate finds the offer at its next attempt.
const soonPreempted = minTerm + 3*time.Second + heartbeat + 3*time.Second

func TestTheCandidateOfTheHighestPriorityLeadsOnceTheTermIsAMinuteOld(t *testing.T) {
	for name, scope := range scopes {
		for _, takeover := range []elector.Takeover{elector.Deputy, elector.Poll, elector.Wait} {
			if takeover != elector.Poll && name == "in a transaction" { // where it is the default
				continue
			}
			scene(t, fmt.Sprint(name, ", ", takeover), func(b *bench) {
				low := b.run("low", scope, elector.WithPriority(-7), elector.WithTakeover(takeover))
				b.leads(low)
				elected := time.Now()
				same := b.run("same", scope, elector.WithPriority(-7), elector.WithTakeover(takeover))
				high := b.run("high", scope, elector.WithPriority(12), elector.WithTakeover(takeover))
				b.leads(high)
				b.within("high leads", minTerm, time.Since(elected), soonPreempted)
				b.ended(low, hooks.Preempted)
				d := low.rec.Demoted()[0]
				if want := "high has priority 12, this candidate -7"; !strings.HasSuffix(d.Err.Error(), want) {
					b.Errorf("it says %q, want %q", d.Err, want)
				}
				b.wraps(d.Err, elector.ErrResigned)
				leader, err := same.Leader(always)
				b.wraps(err)
				all, err := same.Candidates(always)
				b.wraps(err)
				if leader.Priority != 12 || all[0].Priority != 12 {
					b.Errorf("got %+v and %+v", leader, all[0])
				}
				time.Sleep(2 * minTerm)
				b.ended(high)
				b.ended(same)
				for _, c := range []*candidate{low, same, high} {
					b.failed(c)
				}
			})
		}
	}
}

// The work returns first: nobody else leads before.
func TestATermThatEndsInFavorOfAHigherPriorityWaitsForItsWork(t *testing.T) {
	bubble(t, func(b *bench) {
		low := b.run("low", elector.WithPriority(1))
		b.leads(low)
		high := b.run("high", elector.WithPriority(2))
		_, err := low.RunIfLeader(always, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			if synctest.Wait(); high.IsLeader() {
				b.Error("it leads before the work has returned")
			}
			return nil
		})
		b.wraps(err)
		b.within("high leads", 0, b.leads(high), heartbeat)
		b.ended(low, hooks.Preempted)
	})
}

func TestACandidateThatIsNotUpAndWellForTheDelayMovesNothing(t *testing.T) {
	const delay = 90 * time.Second
	opts := func(priority int32, more ...elector.Option) []elector.Option {
		return append(more, elector.WithPriority(priority), elector.WithPreemptDelay(delay))
	}
	scene(t, "it comes and goes", func(b *bench) {
		low := b.run("low", opts(1)...)
		b.leads(low)
		for range 5 {
			high := b.run("high", opts(2)...)
			time.Sleep(delay - time.Second)
			high.stop()
			time.Sleep(time.Second)
		}
		b.ended(low)
	})
	scene(t, "it becomes unhealthy now and then", func(b *bench) {
		low := b.run("low", opts(1)...)
		b.leads(low)
		high := b.run("high", opts(2)...)
		for range 5 {
			time.Sleep(delay - 5*time.Second)
			high.ReportHealth(elector.HealthReport{Unhealthy: true})
			time.Sleep(time.Second)
			high.ReportHealth(elector.HealthReport{Score: 1})
		}
		b.ended(low)
		b.within("high leads", delay-time.Second, b.leads(high), delay+20*time.Second)
	})
	scene(t, "it stays unhealthy", func(b *bench) {
		low := b.run("low", opts(1)...)
		b.leads(low)
		high := b.run("high", opts(2)...)
		high.ReportHealth(elector.HealthReport{Unhealthy: true})
		time.Sleep(5 * minTerm)
		b.ended(low)
	})
}

// A failover is as fast as without a priority, whatever that of the deputy. Then leadership moves once more.
func TestAPriorityDoesNotDelayAFailover(t *testing.T) {
	bubble(t, func(b *bench) {
		first := b.run("first", elector.WithPriority(5))
		b.leads(first)
		deputy := b.run("deputy", elector.WithPriority(1))
		time.Sleep(retry)
		high := b.run("high", elector.WithPriority(5))
		time.Sleep(2 * minTerm)
		for tried := len(high.rec.Campaigns()); len(high.rec.Campaigns()) == tried; { // or high might try just when the lock is free
			time.Sleep(10 * time.Millisecond)
		}
		b.Terminate(b.pid(first))
		first.process.Freeze()
		b.within("the deputy leads", 0, b.leads(deputy), 200*time.Millisecond)
		b.within("high leads", minTerm, b.leads(high), soonPreempted)
		b.ended(deputy, hooks.Preempted)
	})
}

// A leader with a longer delay refuses silently, and is asked again later.
func TestALeaderRefusesARequestThatComesTooEarlyAndIsAskedAgain(t *testing.T) {
	bubble(t, func(b *bench) {
		low := b.run("low", elector.WithPriority(1), elector.WithPreemptDelay(100*time.Second))
		b.leads(low)
		high := b.run("high", elector.WithPriority(2))
		b.within("high leads", 2*minTerm, b.leads(high), 2*soonPreempted)
		b.failed(low)
		b.failed(high)
		b.ended(low, hooks.Preempted)
	})
}

// A leader that takes no requests is asked once a minute, and both say so.
func TestALeaderThatTakesNoRequestsIsAskedOnceAMinute(t *testing.T) {
	bubble(t, func(b *bench) {
		low := b.run("low", elector.WithRequests(false))
		b.leads(low)
		high := b.run("high", elector.WithPriority(2))
		time.Sleep(minTerm + 30*time.Second)
		b.failed(low, hooks.OpRequest)
		b.failed(high, hooks.OpRequest)
		f := high.rec.Failures()[0]
		if b.wraps(f.Err, elector.ErrUnanswered); !strings.Contains(f.Err.Error(), "this candidate has priority 2 and the leader 0") {
			b.Errorf("it says %v", f.Err)
		}
		time.Sleep(4 * minTerm)
		if n := len(high.rec.Failures()); n < 3 || n > 5 {
			b.Errorf("asked %d times in five minutes", n)
		}
		b.ended(low)
	})
}

// A look for the leader is sent for hooks that see it, too: these candidates have none.
func TestWithoutAPriorityNothingIsSentForOne(t *testing.T) {
	for name, scope := range scopes {
		for _, prefers := range []bool{false, true} {
			scene(t, fmt.Sprint(name, ", with a priority: ", prefers), func(b *bench) {
				opts := []elector.Option{scope}
				if prefers {
					opts = append(opts, elector.WithPriority(0))
				}
				var tells, looks atomic.Int32
				b.Trace(func(e electortest.Event) {
					switch {
					case !e.Done:
					case e.What == "TellPriority":
						tells.Add(1)
					case e.What == "Ring":
						b.Error("a leader of the same priority is asked for its lock")
					case e.What == "Holder":
						looks.Add(1)
					}
				})
				for range 3 {
					pool := b.NewProcess().Open()
					e, err := elector.New(pool, "orders", opts...)
					b.check(err)
					b.check(e.Start(always))
					b.Cleanup(func() {
						_ = e.Stop(always)
						_ = pool.Close()
					})
					time.Sleep(retry)
				}
				time.Sleep(2 * minTerm)
				if n := tells.Load(); n != 0 && !prefers || n != 1 && prefers {
					b.Errorf("%d statements that tell a priority", n)
				}
				if n := looks.Load(); n > 8 && !prefers || prefers && (n < 60 || n > 300) { // without one, once a minute whether the leader is silent
					b.Errorf("%d looks for the leader", n)
				}
			})
		}
	}
}

// Whoever asks, and whatever it says, the leader compares.
func TestALeaderRefusesARequestOfItsOwnPriority(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader", elector.WithPriority(5))
		b.leads(leader)
		time.Sleep(2 * minTerm)
		asker := b.candidate("asker")
		for _, priority := range []int32{5, 4, -6} {
			asking, err := inbox.Send(always, asker.pool, b.pid(leader), inbox.TransferKey(leader.Key()), "asker", &priority)
			b.check(err)
			for answered := false; !answered; time.Sleep(time.Second) {
				_, answered, err = asking.Ring(always)
				b.check(err)
			}
			asking.Withdraw()
		}
		b.ended(leader)
		b.failed(leader)
	})
}

// A candidate in a pool of the least size that is accepted can be the deputy and ask.
func TestADeputyAsksWithThePoolThatIsRequired(t *testing.T) {
	for name, scope := range scopes {
		scene(t, name, func(b *bench) {
			low := b.run("low", scope, elector.WithPriority(1))
			b.leads(low)
			process := b.NewProcess()
			pool := process.Open()
			size := 2
			for err := error(elector.ErrConfig); err != nil; size++ {
				pool.SetMaxOpenConns(size)
				_, err = elector.New(pool, "orders", scope, elector.WithPriority(2), elector.WithTakeover(elector.Deputy))
			}
			b.start(b.candidateOn(process, pool, "high", scope, elector.WithPriority(2), elector.WithTakeover(elector.Deputy)))
			time.Sleep(soonPreempted)
			b.ended(low, hooks.Preempted)
			b.failed(low)
		})
	}
}

package electortest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

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

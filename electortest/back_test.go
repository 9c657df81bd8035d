package electortest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// The server goes away, and after a while the clients' route leads to a promoted standby.

// soonBack is the longest wait between two quick attempts, plus a tolerance.
const soonBack = 350 * time.Millisecond

// promoted stops the server and promotes a standby that is not reachable yet.
func (b *bench) promoted() *electortest.Server {
	b.Helper()
	standby := b.NewStandby(0)
	b.Cleanup(standby.Close)
	b.Stop()
	b.wraps(standby.Promote())
	return standby
}

// busiest returns the largest number of attempts within a second.
func busiest(rec *hookstest.Recorder, when func(hooks.Campaign) time.Time) (most int) {
	var all []time.Time
	for _, c := range rec.Campaigns() {
		all = append(all, when(c))
	}
	for i, first := range all {
		n, _ := slices.BinarySearchFunc(all, first.Add(time.Second), time.Time.Compare)
		most = max(most, n-i)
	}
	return most
}

func began(c hooks.Campaign) time.Time { return c.At.Add(-c.Took) }

// ended is for a shared session, where an attempt begins with a wait for the next batch.
func ended(c hooks.Campaign) time.Time { return c.At }

// outages are the times until the route leads to the new primary.
var outages = []time.Duration{2500 * time.Millisecond, 4200 * time.Millisecond, 9 * time.Second, 17 * time.Second, 33 * time.Second, 52 * time.Second}

func TestAnElectionHasALeaderSoonAfterTheRouteIsBack(t *testing.T) {
	for name, opts := range map[string][]elector.Option{
		"polls":     nil,
		"waits":     {elector.WithStandby(elector.Wait)},
		"backs off": {elector.WithBackoff(10*time.Second, time.Minute)},
	} {
		for _, outage := range outages {
			t.Run(name+" for "+outage.String(), func(t *testing.T) {
				bubble(t, func(b *bench) {
					one := b.run("one", opts...)
					b.leads(one)
					standby := b.promoted()
					time.Sleep(outage)
					one.process.ConnectTo(standby)
					b.within("it leads", 0, b.leads(one), soonBack)
					if n := busiest(one.rec, began); n > 4 {
						b.Errorf("%d attempts in a second", n)
					}
				})
			})
		}
	}
}

// The deputy notices the server's end as soon as the leader does.
func TestTheDeputyIsBackSoonAfterItsRouteIs(t *testing.T) {
	for i, outage := range append(outages, outages...) {
		bubble(t, func(b *bench) {
			one := b.run("one")
			b.leads(one)
			two := b.run("two", elector.WithStandby([]elector.Standby{elector.Deputy, elector.Wait}[i/len(outages)]))
			time.Sleep(5 * time.Second)
			standby := b.promoted()
			one.process.Kill()
			time.Sleep(outage)
			two.process.ConnectTo(standby)
			b.within("it leads", 0, b.leads(two), soonBack)
			if n := busiest(two.rec, began); n > 4 {
				b.Errorf("%d attempts in a second", n)
			}
		})
	}
}

// All elections of a shared session return with it.
func TestALeaderOnASharedSessionIsBackSoonAfterItsRouteIs(t *testing.T) {
	for _, outage := range outages {
		bubble(t, func(b *bench) {
			process := b.NewProcess()
			pool := process.Open()
			session, err := elector.NewSession(pool)
			b.wraps(err)
			ctx, stop := context.WithCancel(context.Background())
			defer func() {
				b.wraps(session.Close(ctx))
				stop()
				_ = pool.Close()
			}()
			var all []*candidate
			for _, name := range []string{"a", "b", "c"} {
				s := &candidate{process: process, rec: hookstest.NewRecorder()}
				s.Elector, err = session.Elector(name, elector.WithHooks(s.rec))
				b.wraps(err)
				go func() { _ = s.Run(ctx, nil) }()
				b.leads(s)
				all = append(all, s)
			}
			standby := b.promoted()
			time.Sleep(outage)
			process.ConnectTo(standby)
			back := time.Now()
			for _, s := range all {
				b.leads(s)
				b.within("it leads", 0, time.Since(back), soonBack)
				if n := busiest(s.rec, ended); n > 4 {
					b.Errorf("%d attempts in a second", n)
				}
			}
		})
	}
}

func TestAPollingFollowerIsBackARetryIntervalAfterItsRouteIs(t *testing.T) {
	for _, outage := range outages {
		bubble(t, func(b *bench) {
			one := b.run("one")
			b.leads(one)
			two := b.run("two", elector.WithStandby(elector.Poll), elector.WithBackoff(10*time.Second, time.Minute))
			time.Sleep(5 * time.Second)
			standby := b.promoted()
			one.process.Kill()
			time.Sleep(outage)
			two.process.ConnectTo(standby)
			b.within("it leads", 0, b.leads(two), time.Second+10*time.Millisecond)
			if n := busiest(two.rec, began); n > 3 {
				b.Errorf("%d attempts in a second", n)
			}
		})
	}
}

// WithBackoff and WithMaxAttempts apply to regular attempts. The quick ones in between do not
// count, and OnError does not report them.
func TestQuickAttemptsDoNotCount(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one", elector.WithBackoff(8*time.Second, 16*time.Second), elector.WithMaxAttempts(4))
		gaveUp := make(chan error)
		go func() { gaveUp <- one.Run(context.Background(), nil) }()
		b.leads(one)
		b.Stop()
		gone := time.Now()
		b.wraps(<-gaveUp, elector.ErrGaveUp)
		took := time.Since(gone)
		b.within("it gives up", (1+6+12)*time.Second, took, (2+8+16+16)*time.Second+2*soonBack)
		var counted []int
		for _, f := range one.rec.Failures() {
			if f.Op == hooks.OpCampaign {
				counted = append(counted, f.Attempt)
			}
		}
		if !slices.Equal(counted, []int{1, 2, 3, 4}) {
			b.Errorf("reported attempts %v", counted)
		}
		if n := len(one.rec.Campaigns()); n < 3*int(took/time.Second)/2 {
			b.Errorf("%d attempts in %v", n, took)
		}
	})
}

// Attempts become less frequent while the server stays away, also those of a former leader.
func TestQuickAttemptsEnd(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one")
		b.leads(one)
		b.Stop()
		time.Sleep(2 * time.Minute)
		before := len(one.rec.Campaigns())
		time.Sleep(time.Minute)
		if n := len(one.rec.Campaigns()) - before; n > 16 { // every 3.75 s, at the most
			b.Errorf("%d attempts in the third minute", n)
		}
	})
}

// A candidate that has never reached a server makes no quick attempts.
func TestAFirstAttemptThatFailsIsFollowedByTheBackoff(t *testing.T) {
	for _, opts := range [][]elector.Option{nil, {elector.WithStandby(elector.Wait)}} {
		bubble(t, func(b *bench) {
			b.Stop()
			one := b.run("one", opts...)
			time.Sleep(20 * time.Second)
			if n := len(one.rec.Campaigns()); n > 8 {
				b.Errorf("%d attempts", n)
			}
			for _, c := range one.rec.Campaigns() {
				if c.Outcome != hooks.Failed {
					b.Errorf("got %+v", c)
				}
			}
		})
	}
}

// A server that is starting up or full gets no quick attempts.
func TestAFullServerIsHurriedByTheOneThatLedAlone(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one")
		b.leads(one)
		two := b.run("two", elector.WithStandby(elector.Wait))
		time.Sleep(5 * time.Second)
		stranger := b.Open()
		defer stranger.Close()
		b.LimitConnections(1)
		b.Stop()
		time.Sleep(3 * time.Second)
		b.Start()
		b.wraps(stranger.Ping()) // and keeps the only connection
		before, beforeTwo := len(one.rec.Campaigns()), len(two.rec.Campaigns())
		time.Sleep(10 * time.Second)
		if n := len(one.rec.Campaigns()) - before; n < 30 {
			b.Errorf("the former leader made %d attempts in 10 s", n)
		}
		if n := len(two.rec.Campaigns()) - beforeTwo; n > 15 {
			b.Errorf("the other made %d attempts in 10 s", n)
		}
	})
}

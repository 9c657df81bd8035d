package memory_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
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
		"waits":     {elector.WithTakeover(elector.Wait)},
		"backs off": {elector.WithBackoff(10*time.Second, time.Minute)},
	} {
		for _, outage := range outages {
			t.Run(name+" for "+outage.String(), func(t *testing.T) {
				bubble(t, func(b *bench) {
					one := b.run("one", opts...)
					b.leads(one)
					time.Sleep(heartbeat)
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
			two := b.run("two", elector.WithTakeover([]elector.Takeover{elector.Deputy, elector.Wait}[i/len(outages)]))
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
			time.Sleep(heartbeat)
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

// A session whose lock was held hurries for each of its elections.
func TestASharedSessionHurriesAfterItsElectorThatLedIsClosed(t *testing.T) {
	for _, outage := range outages {
		bubble(t, func(b *bench) {
			other := b.run("other")
			b.leads(other)
			process := b.NewProcess()
			pool := process.Open()
			session, err := elector.NewSession(pool)
			b.check(err)
			led, err := session.Elector("a")
			b.check(err)
			follows, err := session.Elector("orders")
			b.check(err)
			for _, e := range []*elector.Elector{led, follows} {
				go func() { _ = e.Run(always, nil) }()
				time.Sleep(time.Second)
			}
			standby := b.promoted()
			other.process.Kill()
			time.Sleep(outage / 2)
			b.wraps(led.Close(always))
			time.Sleep(outage / 2)
			process.ConnectTo(standby)
			b.within("it leads", 0, b.leads(&candidate{Elector: follows}), soonBack)
			b.wraps(session.Close(always))
			b.wraps(pool.Close())
		})
	}
}

func TestAPollingFollowerIsBackARetryIntervalAfterItsRouteIs(t *testing.T) {
	for _, outage := range outages {
		bubble(t, func(b *bench) {
			one := b.run("one")
			b.leads(one)
			two := b.run("two", elector.WithTakeover(elector.Poll), elector.WithBackoff(10*time.Second, time.Minute))
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
	for _, opts := range [][]elector.Option{nil, {elector.WithTakeover(elector.Wait)}} {
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
		two := b.run("two", elector.WithTakeover(elector.Wait))
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

func TestALeaderThatIsCutOffStopsBeforeAnotherLeads(t *testing.T) {
	for name, loss := range map[string]electortest.Loss{"both": electortest.Both, "requests": electortest.Requests, "answers": electortest.Answers} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				one := b.run("one")
				b.leads(one)
				two := b.run("two")
				time.Sleep(heartbeat / 2)
				one.process.Cut(loss)
				cut := time.Now()
				for one.IsLeader() {
					if two.IsLeader() {
						b.Fatal("two lead")
					}
					time.Sleep(10 * time.Millisecond)
				}
				b.within("it stops", validity-heartbeat, time.Since(cut), validity)
				b.leads(two)
				b.within("another leads", validity-heartbeat, time.Since(cut), lease+2*heartbeat)
				one.process.Mend()
				time.Sleep(time.Minute)
				if one.IsLeader() || !two.IsLeader() {
					b.Error("the leadership did not stay where it was")
				}
			})
		})
	}
}

func TestAFrozenLeaderIsReplacedAndKnowsItAtOnceWhenItThaws(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one")
		b.leads(one)
		two := b.run("two")
		one.process.Freeze()
		took := b.leads(two)
		b.within("another leads", lease-heartbeat, took, lease+heartbeat)
		one.process.Thaw()
		if one.IsLeader() {
			b.Error("it thaws and believes that it leads")
		}
	})
}

func TestTheLockOfAKilledProcessIsFreeAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one")
		b.leads(one)
		two := b.run("two", elector.WithTakeover(elector.Wait))
		time.Sleep(time.Second)
		one.process.Kill()
		b.within("another leads", 0, b.leads(two), 20*time.Millisecond)
		if _, err := one.pool.Conn(context.Background()); err == nil {
			b.Error("a killed process got a connection")
		}
	})
}

func TestLatencyDelaysEachMessage(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		one.process.SetLatency(func() time.Duration { return 30 * time.Millisecond })
		start := time.Now()
		if err := one.pool.Ping(); err != nil {
			b.Error(err)
		}
		connecting := time.Since(start)
		if err := one.pool.Ping(); err != nil {
			b.Error(err)
		}
		if took := time.Since(start) - connecting; took != 60*time.Millisecond {
			b.Errorf("a round trip took %v", took)
		}
	})
}

func TestADriverLikePQIgnoresItsContextOnADeadNetwork(t *testing.T) {
	for driver, want := range map[electortest.Driver]bool{electortest.PGX: false, electortest.PQ: true} {
		bubble(t, func(b *bench) {
			one := b.candidate("one")
			one.process.SetDriver(driver)
			conn, err := one.pool.Conn(context.Background())
			b.check(err)
			one.process.Cut(electortest.Both)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			start, pinged := time.Now(), make(chan error)
			go func() { pinged <- conn.PingContext(ctx) }()
			time.AfterFunc(time.Minute, one.process.Mend)
			b.wraps(<-pinged, context.DeadlineExceeded)
			if hung := time.Since(start) == time.Minute; hung != want {
				b.Errorf("driver %v: the call took %v", driver, time.Since(start))
			}
			_ = conn.Close()
		})
	}
}

// Its waiting statement and its session end.
func TestADeputyThatStopsLeavesTheQueueAndItsSeat(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one")
		b.leads(one)
		two := b.run("two", elector.WithTakeover(elector.Wait))
		time.Sleep(heartbeat / 2)
		if n := len(b.Locks()); n != 4 { // the lock, both seats, and a wait
			b.Errorf("%d hold or wait: %+v", n, b.Locks())
		}
		two.stop()
		time.Sleep(100 * time.Millisecond)
		if n := len(b.Locks()); n != 2 {
			b.Errorf("%d hold or wait: %+v", n, b.Locks())
		}
		if f := two.rec.Failures(); len(f) > 0 {
			b.Errorf("reported %+v", f)
		}
		if n := two.pool.Stats().InUse; n != 0 {
			b.Errorf("%d connections are in use", n)
		}
	})
}

func TestAProcessFollowsAPromotion(t *testing.T) {
	bubble(t, func(b *bench) {
		standby := b.NewStandby(3)
		defer standby.Close()
		one := b.run("one")
		b.leads(one)
		before, _ := one.Term()
		one.process.ConnectTo(standby)
		b.Crash()
		time.Sleep(time.Minute)
		if one.IsLeader() {
			b.Error("it leads on a standby")
		}
		if err := standby.Promote(); err != nil {
			b.Error(err)
		}
		b.leads(one)
		if after, _ := one.Term(); after.Token() <= before.Token() {
			b.Errorf("token %d, then %d", before.Token(), after.Token())
		}
		b.wraps(standby.Promote(), electortest.ErrPrimary)
	})
}

func TestNoConnectionIsLeftBehind(t *testing.T) {
	bubble(t, func(b *bench) {
		s := b.run("one")
		b.leads(s)
		s.stop()
		<-s.done
		s.done <- nil
		_ = s.pool.Close()
		synctest.Wait()
		if n := b.Connections(); n != 0 {
			b.Errorf("%d connections are left", n)
		}
		if d := s.rec.Demoted(); len(d) != 1 || d[0].Reason != hooks.Shutdown {
			b.Errorf("demoted %+v", d)
		}
	})
}

func TestAFailedAttemptThatIsNotTheLastHasANextOne(t *testing.T) {
	scene(t, "on a dead link", func(b *bench) {
		one := b.run("one")
		b.leads(one)
		one.process.Cut(electortest.Both) // attempts take longer than the wait between two
		time.Sleep(2 * time.Minute)
		one.process.Mend()
		b.haveNext(one.rec.Campaigns())
	})
	scene(t, "of a shared session", func(b *bench) {
		rec := hookstest.NewRecorder()
		pool := b.NewProcess().Open()
		session, err := elector.NewSession(pool, elector.WithHooks(rec))
		b.check(err)
		e, err := session.Elector("orders")
		b.check(err)
		b.check(e.Start(always))
		time.Sleep(5 * time.Second)
		b.Stop()
		time.Sleep(10 * time.Second)
		b.Start()
		b.haveNext(rec.Campaigns())
		b.check(session.Close(always))
		b.check(pool.Close())
	})
}

func (b *bench) haveNext(all []hooks.Campaign) {
	b.Helper()
	failed := 0
	for _, c := range all {
		if c.Outcome == hooks.Failed {
			failed++
			if c.Next == 0 {
				b.Errorf("attempt %d, which took %v, has no next one", c.Attempt, c.Took)
			}
		}
	}
	if failed == 0 {
		b.Error("no attempt failed")
	}
}

// A refuser is a connector whose own request, for a password say, was cancelled.
type refuser struct{}

func (refuser) Connect(context.Context) (driver.Conn, error) {
	return nil, fmt.Errorf("fetch the password: %w", context.Canceled)
}
func (refuser) Driver() driver.Driver { return nil }

func TestGivingUpIsNoCleanStop(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := sql.OpenDB(refuser{})
		defer pool.Close()
		e, err := elector.New(pool, "orders", elector.WithMaxAttempts(2))
		b.check(err)
		err = e.Run(always, nil)
		b.wraps(err, elector.ErrGaveUp)
		if errors.Is(err, context.Canceled) {
			b.Errorf("a clean stop: %v", err)
		}
	})
}

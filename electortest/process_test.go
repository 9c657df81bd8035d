package electortest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

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
		two := b.run("two", elector.WithStandby(elector.Wait))
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
			if err != nil {
				b.Fatal(err)
			}
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
		two := b.run("two", elector.WithStandby(elector.Wait))
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
		s := b.run("one", elector.WithWatch())
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

package shard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/pgelector/pgelector/shard"
)

const lease = 10 * time.Second // the default

func TestEachMemberLeadsItsShare(t *testing.T) {
	for _, c := range []struct{ shards, members int }{{50, 3}, {1, 3}, {3, 3}, {10, 4}, {0, 2}, {7, 1}, {200, 12}} {
		t.Run(fmt.Sprintf("%d of %d", c.shards, c.members), func(t *testing.T) {
			bubble(t, shard.Numbers(c.shards).Names(), func(g *group) {
				g.join(ids(c.members)...)
				time.Sleep(3 * time.Second)
				g.spread()
				begun := g.works()
				time.Sleep(20 * time.Second)
				g.spread()
				if g.works() != begun {
					g.Errorf("%d shards were moved while nothing changed", g.works()-begun)
				}
			})
		})
	}
}

func TestMembersThatStartTogetherTakeNothingFromEachOther(t *testing.T) {
	bubble(t, shard.Numbers(50).Names(), func(g *group) {
		g.join(ids(5)...)
		g.even()
		if g.works() != 50 {
			g.Errorf("%d terms of 50 shards", g.works())
		}
	})
}

func TestAMemberThatJoinsOrLeavesMovesOnlyTheDifference(t *testing.T) {
	bubble(t, shard.Numbers(50).Names(), func(g *group) {
		g.join(ids(3)...)
		g.even()
		before := g.spread()
		g.join("member-3")
		time.Sleep(3 * time.Second)
		after := g.spread()
		if n := moved(before, after); n != len(after["member-3"]) {
			g.Errorf("%d shards moved, and the new member leads %d", n, len(after["member-3"]))
		}
		before = after
		g.leave("member-1")
		time.Sleep(3 * time.Second)
		after = g.spread()
		if n := moved(before, after); n != len(before["member-1"]) {
			g.Errorf("%d shards moved, and the member that left had %d", n, len(before["member-1"]))
		}
	})
}

func TestARollingRestartMovesEachShardAtMostTwiceForEachRestart(t *testing.T) {
	bubble(t, shard.Numbers(60).Names(), func(g *group) {
		g.join(ids(4)...)
		g.even()
		for i, id := range ids(4) {
			begun := g.works()
			g.leave(id)
			time.Sleep(3 * time.Second)
			g.join(fmt.Sprintf("restarted-%d", i))
			time.Sleep(3 * time.Second)
			g.spread()
			if n := g.works() - begun; n > 2*15 {
				g.Errorf("the restart of a member with 15 shards moved %d", n)
			}
		}
		g.Logf("%d moves for %d restarts of members with 15 of 60 shards", g.works()-60, 4)
	})
}

func TestTheShardsOfAKilledMemberAreLedAgainAtOnce(t *testing.T) {
	for _, size := range []struct{ shards, members, kills int }{{50, 3, 6}, {1000, 10, 2}} {
		bubble(t, shard.Numbers(size.shards).Names(), func(g *group) {
			g.join(ids(size.members)...)
			for i := range size.kills { // the oldest, and a new one follows
				id := fmt.Sprintf("member-%d", i)
				g.even()
				before := g.spread()
				time.Sleep(10 * time.Second)
				g.kill(id)
				if took := g.even(); took > 130*time.Millisecond { // of which 100 until all have counted
					g.Errorf("%d shards, %d members: led again after %v", size.shards, size.members, took)
				}
				if n := moved(before, g.spread()); n != len(before[id]) {
					g.Errorf("%d shards moved", n)
				}
				g.join(fmt.Sprintf("member-%d", i+size.members))
			}
		})
	}
}

func TestAFrozenMemberStopsCountingWhenItsLeaseEnds(t *testing.T) {
	bubble(t, shard.Numbers(50).Names(), func(g *group) {
		g.join(ids(3)...)
		g.even()
		m := g.members["member-0"]
		g.excuse(m, true)
		m.process.Freeze()
		delete(g.members, "member-0")
		if took := g.even(); took > lease+250*time.Millisecond || took < lease/2 {
			g.Errorf("led again after %v", took)
		}
		m.process.Thaw()
		g.members["member-0"] = m
		if took := g.even(); took > 5*time.Second {
			g.Errorf("even after %v", took)
		}
	})
}

func TestAfterARestartOfTheServerEachMemberLeadsItsShareAgain(t *testing.T) {
	bubble(t, shard.Numbers(50).Names(), func(g *group) {
		g.join(ids(3)...)
		g.even()
		time.Sleep(time.Minute)
		g.Crash()
		time.Sleep(2 * time.Second)
		begun := g.works()
		g.Start()
		if took := g.even(); took > 2*time.Second {
			g.Errorf("even after %v", took)
		}
		time.Sleep(5 * time.Second)
		g.spread()
		if n := g.works() - begun; n > 55 {
			g.Errorf("%d terms for 50 shards", n)
		}
	})
}

func TestShardsMoveAFewAtATimeAndAfterTheirWork(t *testing.T) {
	bubble(t, shard.Numbers(40).Names(), func(g *group) {
		g.slow = 200 * time.Millisecond
		g.join("a")
		g.even()
		g.join("b")
		g.even()
		if g.most != 3 {
			g.Errorf("%d works wound down at the same time, want 3", g.most)
		}
	}, shard.WithMoves(3))
}

func TestShardsThatAreGoneFromTheSetDoNotKeepOthersFromMoving(t *testing.T) {
	bubble(t, []string{"a", "b", "c", "d"}, func(g *group) {
		g.slow = 10 * time.Second
		g.join("m")
		g.even()
		if err := g.set.Replace("a", "b"); err != nil {
			t.Fatal(err)
		}
		g.join("n")
		if took := g.even(); took > 15*time.Second {
			g.Errorf("even after %v: the work on a shard returns after %v", took, g.slow)
		}
	}, shard.WithMoves(1))
}

// Work that hangs, on a shard that is gone, costs no other shard its leader.
func TestNewShardsAreLedWhileTheWorkOnThoseThatAreGoneGoesOn(t *testing.T) {
	bubble(t, []string{"a", "b", "c", "d"}, func(g *group) {
		g.join("m", "n")
		g.even()
		g.slow = time.Minute
		if err := g.set.Replace("b", "c", "d", "e"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if led, n := g.tally(); n > 0 {
			g.Errorf("nobody leads %d shards: %v", n, led)
		}
	})
}

func TestAStickyMemberThatComesBackInTimeGetsItsShards(t *testing.T) {
	bubble(t, shard.Numbers(50).Names(), func(g *group) {
		g.join(ids(3)...)
		g.even()
		before := g.spread()
		g.leave("member-1")
		time.Sleep(10 * time.Second)
		if _, n := g.tally(); n != len(before["member-1"]) {
			g.Errorf("nobody leads %d shards, and the absent member had %d", n, len(before["member-1"]))
		}
		g.join("member-1")
		time.Sleep(3 * time.Second)
		g.unmoved(before)
		g.kill("member-1")
		time.Sleep(35 * time.Second)
		g.spread()
	}, shard.WithSticky(30*time.Second))
}

// The one that joins does not know of the absence, and takes the shards that the others keep.
// So these must not give up any of their own for the one that is absent.
func TestAMemberThatJoinsWhileAnotherIsAbsentLeavesNoShardWithoutLeader(t *testing.T) {
	bubble(t, shard.Numbers(10).Names(), func(g *group) {
		settled := func(when string) {
			t.Helper()
			time.Sleep(5 * time.Second)
			if _, n := g.tally(); n > 0 {
				g.Errorf("%s: nobody leads %d shards", when, n)
			}
		}
		g.join("a", "b")
		g.even()
		before := g.spread()
		g.kill("b")
		g.join("c")
		settled("c has joined")
		if n := moved(before, g.spread()); n != 5 {
			g.Errorf("%d shards moved, and the absent member had 5", n)
		}
		for range 3 {
			g.members["a"].enough <- struct{}{}
		}
		settled("work has returned by itself")
		a := g.members["a"]
		g.excuse(a, true)
		a.process.Freeze()
		time.Sleep(2 * lease)
		a.process.Thaw()
		g.excuse(a, false)
		settled("a has lost its session")
		g.join("d")
		settled("d has joined")
		g.join("b")
		settled("b is back")
		g.spread()
	}, shard.WithSticky(time.Hour))
}

// The server keeps what a host that has vanished held for a lease. Its next life waits for that.
func TestAMemberWhoseHostVanishedComesBackToItsSeat(t *testing.T) {
	bubble(t, shard.Numbers(9).Names(), func(g *group) {
		g.join("a", "b", "c")
		g.even()
		before := g.spread()
		old := g.vanish("a")
		g.join("a")
		time.Sleep(lease + 5*time.Second)
		g.unmoved(before)
		old.end()
	}, shard.WithSticky(time.Hour))
}

// A member that has waited for its seat once has the same patience when it loses it on a dead link.
func TestAMemberThatHasWaitedForItsSeatWaitsForItAgain(t *testing.T) {
	bubble(t, shard.Numbers(10).Names(), func(g *group) {
		g.join("b")
		g.even()
		g.join("a")
		g.even()
		before := g.spread()
		old := g.vanish("a")
		defer old.end()
		links := &links{}
		g.open = links.open
		g.join("a")
		time.Sleep(2 * lease)
		g.unmoved(before)
		a := g.members["a"]
		g.excuse(a, true)
		links.next(g.NewProcess())
		time.Sleep(2 * lease)
		g.unmoved(before)
		g.excuse(a, false)
		g.leave("a")
		links.mend()
	}, shard.WithSticky(time.Hour), shard.WithInterval(time.Second)) // it rarely looks while its seat is free
}

// links are those of a member, one after the other: each but the last is dead.
type links struct {
	mu      sync.Mutex
	process []*electortest.Process
	pools   []*sql.DB
}

func (l *links) open(p *electortest.Process) *sql.DB {
	l.add(p)
	return sql.OpenDB(l)
}

func (l *links) add(p *electortest.Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.process, l.pools = append(l.process, p), append(l.pools, p.Open())
}

// next cuts the link, and has new connections use another.
func (l *links) next(p *electortest.Process) {
	l.add(p)
	l.process[len(l.process)-2].Cut(electortest.Both)
}

func (l *links) mend() {
	for i, p := range l.process {
		p.Mend()
		_ = l.pools[i].Close()
	}
}

func (l *links) Connect(ctx context.Context) (made driver.Conn, err error) {
	l.mu.Lock()
	pool := l.pools[len(l.pools)-1]
	l.mu.Unlock()
	c, err := pool.Conn(ctx)
	if err == nil {
		err = c.Raw(func(x any) error { made = x.(driver.Conn); return nil })
	}
	return made, err
}

func (*links) Driver() driver.Driver { return nil }

// The link dies just as the server has given the seat to the new session, which has not heard of it.
func TestAMemberThatHasItsSeatAgainAndDoesNotHearOfItWaitsForItAgain(t *testing.T) {
	for i := range 2 {
		bubble(t, shard.Numbers(10).Names(), func(g *group) {
			links := &links{}
			g.open = func(p *electortest.Process) *sql.DB {
				p.SetLatency(func() time.Duration { return 30 * time.Millisecond })
				return p.Open()
			}
			g.join("b")
			g.even()
			g.join("a")
			g.even()
			before := g.spread()
			old := g.vanish("a")
			defer old.end()
			g.open = links.open
			g.join("a")
			a := g.members["a"]
			g.excuse(a, true)
			a.process.SetLatency(func() time.Duration { return 30 * time.Millisecond })
			backend := func() (pid int32) {
				members, _, _ := shard.Spread(context.Background(), g.admin, "group", nil)
				for _, m := range members {
					if m.CandidateID == "a" {
						pid = m.PID
					}
				}
				return pid
			}
			first := backend()
			time.Sleep(lease - 2*time.Second)
			for pid := first; pid == first || pid == 0; pid = backend() {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Duration(i) * 15 * time.Millisecond)
			links.next(g.NewProcess())
			time.Sleep(4 * lease)
			g.unmoved(before)
			g.excuse(a, false)
			g.leave("a")
			links.mend()
		}, shard.WithSticky(time.Hour))
	}
}

// Some ids begin at the same seat. The second to come sits on the next, and waits for that one, also
// when another is free.
func TestOfTwoMembersThatBeginAtTheSameSeatEachComesBackToItsOwn(t *testing.T) {
	bubble(t, shard.Numbers(12).Names(), func(g *group) {
		g.join("web-35")
		g.even()
		g.join("web-40")
		if took := g.even(); took > lease/2 {
			g.Errorf("even after %v", took)
		}
		before := g.spread()
		back := func(id string, within time.Duration) {
			g.Helper()
			g.join(id)
			time.Sleep(within)
			g.unmoved(before)
		}
		for _, id := range []string{"web-35", "web-40"} {
			g.leave(id)
			time.Sleep(3 * time.Second)
			back(id, lease/2)
		}
		old := g.vanish("web-40")
		back("web-40", lease+5*time.Second)
		old.end()
		old = g.vanish("web-40")
		g.leave("web-35")
		g.join("web-40")
		time.Sleep(time.Second)
		back("web-35", lease+5*time.Second)
		old.end()
	}, shard.WithSticky(time.Hour))
}

func TestAMemberWhoseElderLeftComesBackToItsSeat(t *testing.T) {
	const sticky = time.Minute
	bubble(t, shard.Numbers(12).Names(), func(g *group) {
		g.join("web-35")
		g.even()
		g.join("web-40", "a")
		g.even()
		g.leave("web-35")
		time.Sleep(2 * sticky)
		before := g.spread()
		old := g.vanish("web-40")
		time.Sleep(time.Second)
		g.join("web-40")
		time.Sleep(lease + 5*time.Second)
		g.unmoved(before)
		old.end()
	}, shard.WithSticky(sticky))
}

// It waits for it once, and then takes another: two leases later that session is not its own.
func TestAMemberWhoseIdAnotherHasTooTakesAnotherSeat(t *testing.T) {
	bubble(t, shard.Numbers(12).Names(), func(g *group) {
		g.join("a", "b")
		g.even()
		twin := g.members["a"]
		g.join("a")
		time.Sleep(2*lease + 5*time.Second)
		if n := g.seated(); n != 3 {
			g.Errorf("%d members have a seat, want 3", n)
		}
		g.members["twin"] = twin
	}, shard.WithSticky(time.Hour))
}

func TestAMemberJoinsAFullGroupAtOnce(t *testing.T) {
	bubble(t, shard.Numbers(1).Names(), func(g *group) {
		g.join(ids(127)...)
		time.Sleep(5 * time.Second)
		g.join("one")
		d, _ := g.dialForEachLook()
		g.join("more")
		time.Sleep(3 * time.Second)
		before := d.dials.Load()
		time.Sleep(10 * time.Second)
		if n := d.dials.Load() - before; n < 5 || n > 15 {
			g.Errorf("the one without a seat has looked %d times in 10 s, as if it were alone", n)
		}
		if n := g.seated(); n != 128 {
			g.Errorf("%d members have a seat, want 128", n)
		}
		g.leave("member-7")
		time.Sleep(3 * time.Second)
		if n := g.seated(); n != 128 {
			g.Errorf("a member has left: %d have a seat, want 128", n)
		}
	}, shard.WithSticky(time.Hour))
}

// seated is how many members have a seat.
func (g *group) seated() int {
	g.Helper()
	members, _, err := shard.Spread(context.Background(), g.admin, "group", nil)
	if err != nil {
		g.Fatal(err)
	}
	return len(members)
}

// A set that shrinks, or is set again, does not take healthy shards from their leader.
func TestASetThatChangesWhileAMemberIsAbsentLeavesTheOthersTheirShards(t *testing.T) {
	bubble(t, shard.Numbers(10).Names(), func(g *group) {
		g.join("a", "b")
		g.even()
		before := g.spread()
		g.kill("b")
		time.Sleep(time.Second) // until a has seen that
		if err := g.set.Replace(append(before["a"], before["b"][0])...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		g.members["a"].enough <- struct{}{}
		if err := g.set.Replace(g.set.Names()...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if _, n := g.tally(); n != 1 {
			g.Errorf("nobody leads %d shards, and one is kept for the absent member", n)
		}
		if err := g.set.Replace(before["b"]...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if _, n := g.tally(); n < 2 {
			g.Errorf("nobody leads %d of five shards, and half of them are kept for the absent member", n)
		}
	}, shard.WithSticky(time.Hour))
}

// Members join, leave, are killed and come back in random order, and work returns by itself, all
// within the time for which shards are kept. One that leaves leaves no more shards without a leader than it led, and one
// that joins or comes back none. Nobody gives up shards for those that are absent.
func TestWithStickyOnlyShardsOfAbsentMembersHaveNoLeader(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			bubble(t, shard.Numbers(1+random.IntN(40)).Names(), func(g *group) {
				all := ids(6)
				g.join(all[:3]...)
				g.even()
				for range 12 {
					g.changeInTime(all[random.IntN(len(all))], random.IntN(2) == 0)
				}
				for _, id := range all {
					if g.members[id] == nil {
						g.join(id)
					}
				}
				g.even()
			}, shard.WithSticky(time.Hour), shard.WithMoves(1+random.IntN(4)))
		})
	}
}

func (g *group) changeInTime(id string, kill bool) {
	led, before := g.tally()
	switch {
	case g.members[id] == nil:
		g.join(id)
	case len(g.members) == 1:
		return
	case kill:
		g.kill(id)
	default:
		g.leave(id)
	}
	time.Sleep(5 * time.Second)
	now, unled := g.tally()
	if unled > before+led[id] {
		g.Errorf("%s, which led %d shards, came or went, and nobody leads %d, before %d: %v, now %v", id, led[id], unled, before, led, now)
	}
	even := len(g.set.Names()) / len(g.members)
	for other := range g.members {
		if now[other] < min(led[other], even) {
			g.Errorf("%s, which led %d shards, came or went: %v, now %v, although %d each is even", id, led[id], led, now, even)
		}
	}
	begun := g.works()
	for id, m := range g.members {
		if now[id] > 0 {
			m.enough <- struct{}{}
			begun++
		}
	}
	time.Sleep(5 * time.Second)
	if again, _ := g.tally(); g.works() != begun || !maps.Equal(again, now) {
		g.Errorf("one work of each member returned: they led %v, and now %v; %d moves", now, again, g.works()-begun)
	}
}

func TestHealthIsCheckedOnceForEachMember(t *testing.T) {
	var bad atomic.Bool
	var checks atomic.Int32
	bubble(t, shard.Numbers(50).Names(), func(g *group) {
		g.join("a")
		g.even()
		checks.Store(0)
		time.Sleep(10 * time.Second)
		if n := checks.Load(); n < 8 || n > 12 {
			g.Errorf("%d checks in 10 s", n)
		}
		bad.Store(true)
		time.Sleep(10 * time.Second)
		if members, free, err := shard.Spread(context.Background(), g.admin, "group", g.set.Names()); err != nil || len(free) != 50 || len(members) != 0 {
			g.Errorf("an unhealthy member leads: %v, %d shards are free (%v)", members, len(free), err)
		}
		bad.Store(false)
		g.even()
	}, shard.WithSession(elector.WithHealth(func(context.Context) elector.HealthReport {
		checks.Add(1)
		if bad.Load() {
			return elector.HealthReport{Score: 0}
		}
		return elector.HealthReport{Score: 1}
	}, elector.HealthPolicy{Interval: time.Second})))
}

// Hooks hear of each shard's terms, whose tokens rise.
func TestHooksHearOfEachShard(t *testing.T) {
	bubble(t, []string{"a", "b"}, func(g *group) {
		rec := hookstest.NewRecorder()
		g.opts = []shard.Option{shard.WithSession(elector.WithHooks(rec))}
		for _, id := range []string{"m", "n"} {
			g.join(id)
			g.even()
			g.leave(id)
		}
		tokens := map[string][]int64{}
		for _, e := range rec.Elected() {
			tokens[e.Election] = append(tokens[e.Election], e.Token)
		}
		for _, name := range []string{"group/a", "group/b"} {
			if all := tokens[name]; len(all) != 2 || all[1] <= all[0] {
				g.Errorf("%s was elected with the tokens %d", name, all)
			}
		}
		for _, violation := range rec.Violations() {
			g.Error(violation)
		}
	})
}

func TestTheSetOfShardsMayChange(t *testing.T) {
	bubble(t, []string{"a", "b", "c", "d", "e", "f", "a"}, func(g *group) {
		g.join(ids(2)...)
		g.even()
		if err := g.set.Replace("d", "e", "f", "g", "h", "i", "j", "k"); err != nil {
			t.Fatal(err)
		}
		g.even()
		time.Sleep(time.Second)
		g.spread()
		if _, free, err := shard.Spread(context.Background(), g.admin, "group", []string{"a", "b", "c"}); err != nil || len(free) != 3 {
			g.Errorf("still led: all but %q (%v)", free, err)
		}
	})
}

func TestTheZeroSetIsEmptyAndMayChange(t *testing.T) {
	var set shard.Set
	if err := set.Replace("a"); err != nil || !slices.Equal(set.Names(), []string{"a"}) {
		t.Errorf("got %q, %v", set.Names(), err)
	}
}

func TestAShardWhoseWorkReturnsIsLedAgainLater(t *testing.T) {
	for name, end := range map[string]func(){"returns": func() {}, "ends its goroutine": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := electortest.NewServer()
				defer server.Close()
				pool := server.Open()
				defer pool.Close()
				ctx, stop := context.WithCancel(t.Context())
				var begun []time.Time
				err := shard.Run(ctx, pool, "group", shard.Numbers(1), func(context.Context, string, *elector.Term) error {
					if begun = append(begun, time.Now()); len(begun) == 3 {
						stop()
					}
					end()
					return errors.New("oops")
				})
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				for i := range 2 {
					if pause := begun[i+1].Sub(begun[i]); pause < time.Second || pause > 2*time.Second {
						t.Errorf("led again after %v", pause)
					}
				}
			})
		})
	}
}

// A dialer makes a pool's connections, by those of another pool.
type dialer struct {
	*sql.DB
	err   atomic.Pointer[error] // of each dial
	takes atomic.Int64          // nanoseconds, as of a DSN whose first host is dead
	dials atomic.Int32
}

func (d *dialer) Connect(ctx context.Context) (conn driver.Conn, err error) {
	d.dials.Add(1)
	select {
	case <-time.After(time.Duration(d.takes.Load())):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := d.err.Load(); err != nil {
		return nil, *err
	}
	c, err := d.Conn(ctx)
	if err == nil {
		err = c.Raw(func(inner any) error { conn = inner.(driver.Conn); return nil })
	}
	return conn, err
}

func TestAServerThatCannotBeAskedAtTheStartIsReportedAndGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		var refusal error = &electortest.Error{Code: "28P01", Message: "password authentication failed"}
		d := &dialer{DB: server.Open()}
		d.err.Store(&refusal)
		defer d.Close()
		pool := sql.OpenDB(d)
		defer pool.Close()
		rec := hookstest.NewRecorder()
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		began := time.Now()
		err := shard.Run(ctx, pool, "group", shard.Numbers(3), func(context.Context, string, *elector.Term) error { return nil },
			shard.WithSession(elector.WithHooks(rec), elector.WithBackoff(10*time.Second, 20*time.Second), elector.WithMaxAttempts(3)))
		if !errors.Is(err, elector.ErrGaveUp) || !errors.Is(err, refusal) {
			t.Error(err)
		}
		if took := time.Since(began); took < 16*time.Second || took > time.Minute {
			t.Errorf("gave up after %v", took)
		}
		if n := len(rec.Failures()); n != 3 {
			t.Errorf("%d failures were reported, want 3", n)
		}
		if n := d.dials.Load(); n > 4 { // one to look, and one for each attempt
			t.Errorf("dialled %d times", n)
		}
	})
}

func TestMembersThatStartBeforeTheServerJoinWhenItIsThere(t *testing.T) {
	bubble(t, shard.Numbers(50).Names(), func(g *group) {
		g.Stop()
		g.join(ids(5)...)
		time.Sleep(time.Minute)
		g.Start()
		if took := g.even(); took > 10*time.Second { // the longest backoff is 5 s
			g.Errorf("even after %v", took)
		}
		time.Sleep(10 * time.Second)
		g.spread()
	})
}

func TestAMemberWhoseConnectionsTakeLongToOpenJoins(t *testing.T) {
	bubble(t, shard.Numbers(50).Names(), func(g *group) {
		g.open = func(p *electortest.Process) *sql.DB {
			d := &dialer{DB: p.Open()}
			d.takes.Store(int64(10 * time.Second))
			return sql.OpenDB(d)
		}
		g.join("a")
		g.even()
		g.spread()
	})
}

// dialForEachLook has the member that joins next dial for each look. only must be called
// before another joins.
func (g *group) dialForEachLook() (d *dialer, only func()) {
	d, open := &dialer{}, g.open
	g.open = func(p *electortest.Process) *sql.DB {
		d.DB = p.Open()
		pool := sql.OpenDB(d)
		pool.SetMaxIdleConns(-1)
		return pool
	}
	return d, func() { g.open = open }
}

// Once a look has succeeded, one that hangs is given up soon.
func TestAMemberWhoseLookHangsSoonLooksAgain(t *testing.T) {
	bubble(t, shard.Numbers(50).Names(), func(g *group) {
		d, only := g.dialForEachLook()
		g.join("a")
		g.even()
		d.takes.Store(int64(time.Hour))
		time.Sleep(time.Second)
		d.takes.Store(0)
		only()
		g.join("b")
		if took := g.even(); took > 10*time.Second {
			g.Errorf("even after %v", took)
		}
	})
}

// A member that cannot look claims nothing, so it must not count.
func TestAMemberThatCannotLookGivesItsSeatUp(t *testing.T) {
	rec := hookstest.NewRecorder()
	bubble(t, shard.Numbers(50).Names(), func(g *group) {
		d, only := g.dialForEachLook()
		opts := g.opts
		g.opts = []shard.Option{shard.WithSession(elector.WithHooks(rec))}
		g.join("a")
		time.Sleep(time.Second)
		only()
		g.opts = opts
		g.join("b", "c")
		g.even()
		d.takes.Store(int64(time.Hour))
		g.leave("c")
		time.Sleep(time.Minute)
		if _, free, err := shard.Spread(g.Context(), g.admin, "group", g.set.Names()); err != nil || len(free) > 0 {
			g.Errorf("nobody leads %q: %v", free, err)
		}
		told := slices.ContainsFunc(rec.Demoted(), func(d hooks.Demoted) bool {
			return slices.Contains(shard.Seats("group"), d.Election) && errors.Is(d.Err, context.DeadlineExceeded)
		})
		if !told {
			g.Error("no hook was told")
		}
		d.takes.Store(0)
		if took := g.even(); took > 10*time.Second {
			g.Errorf("even after %v", took)
		}
	})
}

func TestOneLookThatFailsCostsNoSeatHoweverRareLooksAre(t *testing.T) {
	rec := hookstest.NewRecorder()
	bubble(t, shard.Numbers(4).Names(), func(g *group) {
		d, _ := g.dialForEachLook()
		g.join("a")
		time.Sleep(5 * time.Minute)
		refuse := errors.New("too many clients")
		d.err.Store(&refuse)
		for before := d.dials.Load(); d.dials.Load() == before; {
			time.Sleep(time.Second)
		}
		d.err.Store(nil)
		time.Sleep(5 * time.Minute)
		if all := rec.Demoted(); len(all) > 0 {
			g.Errorf("demoted by %v", all[0].Err)
		}
	}, shard.WithInterval(time.Minute), shard.WithSession(elector.WithHooks(rec)))
}

func TestAMemberLooksAsRarelyAsItCampaignsWhileTheServerIsAway(t *testing.T) {
	bubble(t, shard.Numbers(50).Names(), func(g *group) {
		var d *dialer
		g.open = func(p *electortest.Process) *sql.DB {
			d = &dialer{DB: p.Open()}
			return sql.OpenDB(d)
		}
		g.join("a")
		g.even()
		g.Stop()
		time.Sleep(time.Minute)
		before := d.dials.Load()
		time.Sleep(10 * time.Minute)
		if n := d.dials.Load() - before; n > 300 { // the longest backoff is 5 s, of which at least half is waited
			g.Errorf("dialled %d times in ten minutes", n)
		}
		g.Start()
		if took := g.even(); took > 10*time.Second {
			g.Errorf("even after %v", took)
		}
	})
}

func TestARefusedServerEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		standby := server.NewStandby(0)
		defer standby.Close()
		pool := standby.Open()
		defer pool.Close()
		err := shard.Run(t.Context(), pool, "group", shard.Numbers(3), func(context.Context, string, *elector.Term) error { return nil })
		if !errors.Is(err, elector.ErrServerReadOnly) {
			t.Error(err)
		}
	})
}

// slowly connects for an hour, whatever its context says, as lib/pq asks on a dead link.
type slowly struct{}

func (slowly) Connect(context.Context) (driver.Conn, error) {
	time.Sleep(time.Hour)
	return nil, errors.New("no route to host")
}

func (slowly) Driver() driver.Driver { return nil }

func TestTheSpreadIsNotAwaitedLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := sql.OpenDB(slowly{})
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := shard.Spread(ctx, pool, "group", []string{"a"})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("after %v: error %v", took, err)
		}
		time.Sleep(time.Hour) // until the call returns
		_ = pool.Close()
	})
}

func TestBadArgumentsAreRefused(t *testing.T) {
	pool := new(sql.DB)
	lead := func(context.Context, string, *elector.Term) error { return nil }
	run := func(group string, set *shard.Set, lead shard.Lead, opts ...shard.Option) error {
		return shard.Run(t.Context(), pool, group, set, lead, opts...)
	}
	_, badName := shard.NewSet("a", "")
	_, unprintable := shard.NewSet("a", "b\n")
	_, _, spread := shard.Spread(t.Context(), pool, "a ", []string{"1"})
	_, _, spreadOf := shard.Spread(t.Context(), pool, "a", []string{"\t1"})
	for what, err := range map[string]error{
		"empty group":      run("", shard.Numbers(1), lead),
		"group with slash": run("a/b", shard.Numbers(1), lead),
		"no set":           run("a", nil, lead),
		"no lead":          run("a", shard.Numbers(1), nil),
		"no option":        run("a", shard.Numbers(1), lead, nil),
		"moves":            run("a", shard.Numbers(1), lead, shard.WithMoves(0)),
		"sticky":           run("a", shard.Numbers(1), lead, shard.WithSticky(-1)),
		"interval":         run("a", shard.Numbers(1), lead, shard.WithInterval(0)),
		"session":          run("a", shard.Numbers(1), lead, shard.WithSession(elector.WithLease(1))),
		"group with space": run("a ", shard.Numbers(1), lead),
		"empty name":       badName,
		"unprintable name": unprintable,
		"spread":           spread,
		"spread of shards": spreadOf,
	} {
		if !errors.Is(err, elector.ErrConfig) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Members join, leave, are killed, freeze and are cut off, and the server crashes, in random
// order. The work of two members never runs on the same shard, and once quiet the spread is even.
func TestTheSpreadIsEvenAfterAnyFaults(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 0))
			bubble(t, shard.Numbers(1+random.IntN(40)).Names(), func(g *group) {
				g.slow = time.Duration(random.IntN(100)) * time.Millisecond
				next := 0
				for range 20 {
					g.fault(random, &next)
					time.Sleep(time.Duration(random.IntN(6000)) * time.Millisecond)
					if random.IntN(8) == 0 {
						g.quiet()
					}
				}
				g.quiet()
			})
		})
	}
}

// fault makes one change.
func (g *group) fault(random *rand.Rand, next *int) {
	var all []string
	for id := range g.members {
		all = append(all, id)
	}
	slices.Sort(all)
	if len(all) < 2 {
		*next++
		g.join(fmt.Sprintf("m%d", *next))
		return
	}
	id := all[random.IntN(len(all))]
	switch random.IntN(8) {
	case 0, 1, 2:
		if len(all) < 9 {
			*next++
			g.join(fmt.Sprintf("m%d", *next))
		}
	case 3:
		g.leave(id)
	case 4:
		g.kill(id)
	case 5:
		g.members[id].process.Cut(electortest.Both)
	case 6:
		g.Crash()
		time.Sleep(lease + time.Duration(random.IntN(5000))*time.Millisecond) // until nobody believes, even if cut off
		g.Start()
	case 7:
		g.members[id].process.Mend()
	}
}

// quiet mends all faults, and checks the spread.
func (g *group) quiet() {
	for _, m := range g.members {
		m.process.Mend()
	}
	time.Sleep(2 * lease)
	g.even()
	begun := g.works()
	time.Sleep(10 * time.Second)
	g.spread()
	if g.works() != begun {
		g.Errorf("%d shards moved in a quiet time", g.works()-begun)
	}
}

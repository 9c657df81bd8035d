package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/shard"
)

// group is the name of the group of shards.
const group = "group"

const (
	groupBound = 13 * time.Second // for a seat, for members that lost theirs, and for work that rests, one after the other
	settled    = 3 * time.Second  // without a change, until all members have seen each other
	quiet      = 5 * time.Second  // in which no shard may move then
)

// share is a member of the group until ctx ends.
func (i *instance) share(ctx context.Context) {
	for ctx.Err() == nil {
		_ = shard.Run(ctx, i.pool, group, i.shards, func(ctx context.Context, name string, term *elector.Term) error {
			return i.candidacies[number(name)].lead(ctx, term)
		}, shard.WithSession(i.options...), shard.WithMoves(i.plan.Moves), shard.WithInterval(i.plan.Interval), shard.WithSticky(i.plan.Sticky))
		sleep(ctx, i.plan.Retry/2)
	}
}

func number(name string) (n int) {
	_, _ = fmt.Sscan(name, &n)
	return n
}

func (w *world) setShards(n int) { _ = w.shards.Replace(shard.Numbers(n).Names()...) }

// IsLeader reports whether a candidacy believes that it leads. The elector of a shard belongs to
// the library.
func (c *candidacy) IsLeader() bool {
	if c.Kind == members {
		return c.term != nil && c.term.Valid()
	}
	return c.Elector.IsLeader()
}

// awaitSpread waits until each member leads its share, and checks that then no shard moves.
func (w *world) awaitSpread() {
	w.calm.Store(true)
	defer w.calm.Store(false)
	from := time.Now()
	begun := w.begun()
	settled := settled + 30*w.plan.Latency // a member that lost its session joins again in some 15 round trips
	for since := from; time.Since(since) < settled; time.Sleep(w.plan.Heartbeat / 4) {
		uneven := w.uneven()
		if n := w.begun(); n != begun || uneven != "" {
			since, begun = time.Now(), n
		}
		if time.Since(from) > w.bound()+settled {
			w.judge.violated("not even %v after the last fault: %s", time.Since(from), uneven)
			return
		}
	}
	w.judge.note("even")
	time.Sleep(quiet)
	if n := w.begun() - begun; n > 0 {
		w.judge.violated("%d shards have moved while nobody joined or left", n)
	}
	if uneven := w.uneven(); uneven != "" {
		w.judge.violated("no longer even: %s", uneven)
	}
}

func (w *world) begun() int {
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	return w.judge.works
}

// uneven is what is wrong with the spread.
func (w *world) uneven() string {
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	w.judge.check()
	led := map[*instance]int{}
	sum := 0
	for _, c := range w.judge.candidacies {
		if !c.dead {
			led[c.instance] += 0
			if c.IsLeader() && c.working > 0 {
				led[c.instance]++
				sum++
			}
		}
	}
	n, m := w.plan.Shards, len(w.plan.Candidates)
	if sum != n || len(led) != m {
		return fmt.Sprintf("%d of %d shards are led, by %d of %d members", sum, n, len(led), m)
	}
	for i, k := range led {
		if k != n/m && k != (n+m-1)/m {
			return fmt.Sprintf("%s leads %d of %d shards of %d members", i.id, k, n, m)
		}
	}
	return ""
}

// checkFrozen checks that a member that was frozen for more than its lease does not count.
func (w *world) checkFrozen(i *instance, f Fault) {
	stalled := func(g Fault) bool { return g.Kind == "server stall" && g.At < f.At+f.Lasts && f.At < g.At+g.Lasts }
	thawed := func(g Fault) bool {
		return g.Kind == f.Kind && g.Of == f.Of && g != f && g.At+g.Lasts >= f.At && g.At+g.Lasts <= f.At+f.Lasts
	}
	if slices.ContainsFunc(w.plan.Faults, stalled) || slices.ContainsFunc(w.plan.Faults, thawed) { // the server ends no session meanwhile, or the other freeze ends
		return
	}
	if w.plan.Shards == 0 || time.Duration(float64(f.Lasts)*w.plan.ClockRate) < w.plan.Lease+time.Second {
		return
	}
	for _, l := range w.primary().Locks() {
		if l.Application == i.id {
			w.judge.violated("%s still counts, %v after it was frozen", i.id, f.Lasts)
			return
		}
	}
}

// An unreliableNotifier is the notifier of all candidates. It loses, delays or repeats each
// notification.
type unreliableNotifier struct {
	*chance
	mu         sync.Mutex
	wake       map[int]func(payload string) // by subscriber
	subscribed int                          // how many subscribers there were
	slowest    time.Duration
}

func newNotifier(w *world) *unreliableNotifier {
	return &unreliableNotifier{chance: w.newChance(99, 0, 0), wake: map[int]func(string){}, slowest: w.plan.Retry}
}

// Subscribe implements elector.Notifier.
func (u *unreliableNotifier) Subscribe(wake func(payload string)) (unsubscribe func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.subscribed++
	n := u.subscribed
	u.wake[n] = wake
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.wake, n)
	}
}

// trace receives each step of the server.
func (u *unreliableNotifier) trace(e electortest.Event) {
	if !e.Done || e.Err != nil || e.What != "Notify" {
		return
	}
	var payloads []string
	_ = json.Unmarshal([]byte(e.Args[1].(string)), &payloads)
	for _, payload := range payloads {
		for range u.draw(0, 3) { // lost, once, or twice
			time.AfterFunc(u.draw(0, u.slowest), func() { u.deliver(payload) })
		}
	}
}

func (u *unreliableNotifier) deliver(payload string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for n := range u.subscribed + 1 {
		if wake := u.wake[n]; wake != nil {
			wake(payload)
		}
	}
}

package shard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/shard"
	"go.uber.org/goleak"
)

// A group is a group on a server in a bubble, each member in a process of its own.
type group struct {
	*testing.T
	*electortest.Server
	set     *shard.Set
	opts    []shard.Option
	members map[string]*member
	admin   *sql.DB
	slow    time.Duration // how long work takes to return
	open    func(*electortest.Process) *sql.DB

	mu      sync.Mutex
	leaders map[string]leader // by shard, whose work is running
	begun   int               // works
	moving  int               // works that wind down
	most    int               // of them at the same time
}

type member struct {
	process *electortest.Process
	pool    *sql.DB
	stop    context.CancelFunc
	done    chan error
	enough  chan struct{} // receives: one of its works returns
	excused bool          // killed or frozen: its goroutines go on, as those of a process would not
}

type leader struct {
	id string
	*member
}

func bubble(t *testing.T, names []string, test func(g *group), opts ...shard.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		set, err := shard.NewSet(names...) // inside: it has a channel
		if err != nil {
			t.Fatal(err)
		}
		g := &group{T: t, Server: electortest.NewServer(), set: set, opts: opts, members: map[string]*member{}, leaders: map[string]leader{},
			open: (*electortest.Process).Open}
		g.admin = g.Open()
		test(g)
		for id := range g.members {
			g.leave(id)
		}
		_ = g.admin.Close()
		g.Close()
	})
}

// join starts members with those ids.
func (g *group) join(ids ...string) {
	for _, id := range ids {
		m := &member{process: g.NewProcess(), done: make(chan error, 1), enough: make(chan struct{})}
		m.pool = g.open(m.process)
		ctx, stop := context.WithCancel(context.Background())
		m.stop = stop
		g.members[id] = m
		opts := append(slices.Clone(g.opts), shard.WithSession(elector.WithCandidateID(id)))
		go func() {
			m.done <- shard.Run(ctx, m.pool, "group", g.set, func(ctx context.Context, name string, _ *elector.Term) error {
				g.work(ctx, id, m, name)
				return nil
			}, opts...)
		}()
	}
}

// work fails the test if another works on the same shard.
func (g *group) work(ctx context.Context, id string, m *member, name string) {
	g.mu.Lock()
	if other, led := g.leaders[name]; led && !other.excused {
		g.Errorf("%s begins to lead %s while %s does", id, name, other.id)
	}
	g.leaders[name] = leader{id, m}
	g.begun++
	g.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-m.enough:
	}
	g.mu.Lock()
	if g.moving++; g.moving > g.most {
		g.most = g.moving
	}
	slow := g.slow
	g.mu.Unlock()
	time.Sleep(slow)
	g.mu.Lock()
	g.moving--
	if g.leaders[name].member == m {
		delete(g.leaders, name)
	}
	g.mu.Unlock()
}

// works returns how many works have begun.
func (g *group) works() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.begun
}

// windsDown sets how long the work that ends from now on takes to return.
func (g *group) windsDown(in time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slow = in
}

// leave ends a member in order.
func (g *group) leave(id string) {
	m := g.members[id]
	delete(g.members, id)
	m.process.Thaw()
	m.process.Mend()
	m.stop()
	if err := <-m.done; !errors.Is(err, context.Canceled) {
		g.Errorf("%s: Run returned %v", id, err)
	}
	_ = m.pool.Close()
}

// kill ends a member as SIGKILL does.
func (g *group) kill(id string) {
	m := g.members[id]
	delete(g.members, id)
	g.excuse(m, true)
	m.end()
}

// vanish is the end of a member's host: the server hears no more of it. The test ends it.
func (g *group) vanish(id string) *member {
	m := g.members[id]
	delete(g.members, id)
	g.excuse(m, true)
	m.process.Freeze()
	return m
}

func (m *member) end() {
	m.process.Kill()
	m.stop()
	<-m.done
	_ = m.pool.Close()
}

func (g *group) excuse(m *member, excused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m.excused = excused
}

// spread returns the shards that each member leads, and checks that the spread is even and
// all shards are led.
func (g *group) spread() map[string][]string {
	g.Helper()
	members, free, err := shard.Spread(context.Background(), g.admin, "group", g.set.Names())
	if err != nil {
		g.Fatal(err)
	}
	led := map[string][]string{}
	n, m := len(g.set.Names()), len(g.members)
	for _, one := range members {
		led[one.CandidateID] = one.Shards
		if k := len(one.Shards); k != n/m && k != (n+m-1)/m {
			g.Errorf("%s leads %d of %d shards of %d members", one.CandidateID, k, n, m)
		}
	}
	if len(members) != m || len(free) > 0 {
		g.Errorf("%d members, want %d; nobody leads %q", len(members), m, free)
	}
	return led
}

// even waits until all shards are led evenly, and returns how long that took.
func (g *group) even() time.Duration {
	g.Helper()
	began := time.Now()
	n, m := len(g.set.Names()), len(g.members)
	for {
		members, free, err := shard.Spread(context.Background(), g.admin, "group", g.set.Names())
		uneven := slices.ContainsFunc(members, func(one shard.Member) bool {
			return len(one.Shards) != n/m && len(one.Shards) != (n+m-1)/m
		})
		if err == nil && len(free) == 0 && len(members) == m && !uneven {
			return time.Since(began)
		}
		if time.Since(began) > time.Minute {
			g.Fatalf("not even after a minute: %d members of %d, nobody leads %q (%v)", len(members), m, free, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// tally counts the shards that each member leads, and those that nobody leads.
func (g *group) tally() (led map[string]int, unled int) {
	g.Helper()
	members, free, err := shard.Spread(context.Background(), g.admin, "group", g.set.Names())
	if err != nil {
		g.Fatal(err)
	}
	led = map[string]int{}
	for _, one := range members {
		led[one.CandidateID] = len(one.Shards)
	}
	return led, len(free)
}

// unmoved checks that all shards are led evenly, each by the same member as before.
func (g *group) unmoved(before map[string][]string) {
	g.Helper()
	if n := moved(before, g.spread()); n != 0 {
		g.Errorf("%d shards moved", n)
	}
}

// moved counts the shards whose leader has changed.
func moved(before, after map[string][]string) (n int) {
	for id, shards := range after {
		for _, name := range shards {
			if !slices.Contains(before[id], name) {
				n++
			}
		}
	}
	return n
}

func ids(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("member-%d", i))
	}
	return all
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

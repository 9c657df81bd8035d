//go:build unix

package shard_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/shard"
)

const (
	shards   = 50
	patience = 30 * time.Second
)

// A group is members in processes of their own, which use the two drivers in turn.
type group struct {
	*testing.T
	*pgcluster.Cluster
	name    string
	shards  int
	admin   *sql.DB
	members map[string]*member
	drivers []string // of the members, in turn
	mu      sync.Mutex
	entries []entry
}

type member struct {
	*exec.Cmd
	read chan struct{} // closed when all its entries are
}

func newGroup(t *testing.T) *group { return groupOf(t, shards) }

func groupOf(t *testing.T, shards int, opts ...pgcluster.Option) *group {
	t.Helper()
	c, err := pgcluster.Start(t.Context(), opts...)
	check(t, err)
	admin, err := sql.Open("pgx", c.DSN())
	check(t, err)
	g := &group{T: t, Cluster: c, name: "group-" + strings.ToLower(rand.Text()[:6]), shards: shards, admin: admin, members: map[string]*member{},
		drivers: []string{"pgx", "postgres"}}
	t.Cleanup(func() {
		for id := range g.members {
			g.leave(id)
		}
		check(t, admin.Close())
		check(t, c.Stop())
		g.judge()
	})
	return g
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func (g *group) join(ids ...string) {
	g.Helper()
	for _, id := range ids {
		driver := g.drivers[len(g.members)%2]
		text, err := json.Marshal(settings{Driver: driver, DSN: g.DSN(), Group: g.name, ID: id, Shards: g.shards})
		check(g.T, err)
		m := &member{Cmd: exec.Command(os.Args[0]), read: make(chan struct{})}
		m.Env = append(os.Environ(), memberVariable+"="+string(text))
		m.Stderr = os.Stderr
		out, err := m.StdoutPipe()
		check(g.T, err)
		check(g.T, m.Start())
		g.members[id] = m
		go func() {
			defer close(m.read)
			for lines := json.NewDecoder(out); ; {
				var e entry
				if lines.Decode(&e) != nil {
					return
				}
				g.add(e)
			}
		}()
	}
}

func (g *group) add(e entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.entries = append(g.entries, e)
}

// leave ends a member in order.
func (g *group) leave(id string) {
	g.Helper()
	m := g.members[id]
	delete(g.members, id)
	_ = m.Process.Signal(syscall.SIGCONT)
	_ = m.Process.Signal(syscall.SIGTERM)
	<-m.read
	check(g.T, m.Wait())
}

// kill ends a member with SIGKILL. All its work ends with it.
func (g *group) kill(id string) {
	g.Helper()
	m := g.members[id]
	delete(g.members, id)
	now := time.Now().UnixNano()
	_ = m.Process.Kill()
	<-m.read
	_ = m.Wait()
	for i := range g.shards {
		g.add(entry{ID: id, Shard: fmt.Sprint(i), At: now})
	}
}

// even waits until all shards are led evenly by as many members, and returns the spread.
func (g *group) even(what string, members int) map[string][]string {
	g.Helper()
	began := time.Now()
	for {
		all, free, err := shard.Spread(context.Background(), g.admin, g.name, shard.Numbers(g.shards).Names())
		uneven := slices.ContainsFunc(all, func(one shard.Member) bool {
			return len(one.Shards) != g.shards/members && len(one.Shards) != (g.shards+members-1)/members
		})
		if err == nil && len(free) == 0 && len(all) == members && !uneven {
			g.Logf("%s: even after %v", what, time.Since(began).Round(time.Millisecond))
			led := map[string][]string{}
			for _, one := range all {
				led[one.CandidateID] = one.Shards
			}
			return led
		}
		if time.Since(began) > patience {
			g.Fatalf("%s: not even after %v: nobody leads %q, members %v (%v)", what, patience, free, all, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// moved checks how many shards have another leader than before.
func (g *group) moved(what string, before, after map[string][]string, want int) {
	g.Helper()
	n := 0
	for id, names := range after {
		for _, name := range names {
			if !slices.Contains(before[id], name) {
				n++
			}
		}
	}
	if n != want {
		g.Errorf("%s: %d shards moved, want %d", what, n, want)
	}
}

// judge checks that the work of two members never ran on the same shard. The end of a term that
// was lost with the server, or while a member was frozen, is checked by no clock of ours:
// those tests mark it.
func (g *group) judge() {
	g.Helper()
	slices.SortStableFunc(g.entries, func(a, b entry) int { return int(a.At - b.At) })
	leads := map[string]string{}
	for _, e := range g.entries {
		switch other := leads[e.Shard]; {
		case e.Begins && other != "" && other != e.ID:
			g.Errorf("%s begins to lead %s while %s does", e.ID, e.Shard, other)
			leads[e.Shard] = e.ID
		case e.Begins:
			leads[e.Shard] = e.ID
		case other == e.ID:
			delete(leads, e.Shard)
		}
	}
	g.Logf("%d terms of %d shards", len(g.entries)/2, g.shards)
}

func TestAMemberThatJoinsLeavesOrIsKilledMovesOnlyTheDifference(t *testing.T) {
	g := newGroup(t)
	g.join("a", "b", "c")
	before := g.even("start of three", 3)
	g.join("d")
	after := g.even("a fourth joins", 4)
	g.moved("join", before, after, len(after["d"]))
	g.leave("b")
	before, after = after, g.even("one leaves", 3)
	g.moved("leave", before, after, len(before["b"]))
	g.kill("c")
	before, after = after, g.even("one is killed", 2)
	g.moved("kill", before, after, len(before["c"]))
}

func TestARollingRestartMovesEachShardAtMostTwiceForEachRestart(t *testing.T) {
	g := newGroup(t)
	g.join("a", "b", "c")
	g.even("start of three", 3)
	for _, id := range []string{"a", "b", "c"} {
		first := g.even("before", 3)
		g.leave(id)
		second := g.even(id+" leaves", 2)
		g.moved("leave", first, second, len(first[id]))
		g.join(id)
		third := g.even(id+" is back", 3)
		g.moved("return", second, third, len(third[id]))
	}
}

func TestTheShardsOfAFrozenMemberAreLedByOthersAfterItsLease(t *testing.T) {
	for _, drivers := range [][]string{{"pgx", "postgres"}, {"postgres", "pgx"}} {
		t.Run(drivers[0], func(t *testing.T) {
			t.Parallel()
			g := newGroup(t)
			g.drivers = drivers
			g.join("a", "b", "c")
			before := g.even("start of three", 3)
			check(t, g.members["a"].Process.Signal(syscall.SIGSTOP))
			now := time.Now().UnixNano()
			for _, name := range before["a"] {
				g.add(entry{ID: "a", Shard: name, At: now}) // it does nothing until it is thawed
			}
			after := g.even("one is frozen", 2)
			g.moved("freeze", before, after, len(before["a"]))
			check(t, g.members["a"].Process.Signal(syscall.SIGCONT))
			g.even("it is thawed", 3)
		})
	}
}

func TestAfterARestartOfTheServerTheSharesAreEven(t *testing.T) {
	g := newGroup(t)
	g.join("a", "b", "c")
	g.even("start of three", 3)
	check(t, g.Cluster.Kill())
	time.Sleep(lease) // until nobody believes to lead
	check(t, g.Resume(t.Context()))
	g.even("the server is back", 3)
}

// Everything at once: the server, a kill, a freeze and two that join.
func TestAfterAllFaultsAtOnceTheSharesAreEven(t *testing.T) {
	g := newGroup(t)
	g.join("a", "b", "c", "d")
	g.even("start of four", 4)
	check(t, g.members["a"].Process.Signal(syscall.SIGSTOP))
	now := time.Now().UnixNano()
	for i := range shards {
		g.add(entry{ID: "a", Shard: fmt.Sprint(i), At: now})
	}
	g.kill("b")
	check(t, g.Cluster.Kill())
	g.join("e", "f")
	time.Sleep(lease)
	check(t, g.Resume(t.Context()))
	check(t, g.members["a"].Process.Signal(syscall.SIGCONT))
	g.even("after all", 5)
}

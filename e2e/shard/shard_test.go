//go:build unix

// Package shard_test tests groups of shards with processes on real servers, over both drivers.
package shard_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/sandbox"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/shard"
	"go.uber.org/goleak"
)

const (
	shards   = 50
	patience = must.Patience
)

// A group is members in processes of their own, which use the two drivers in turn.
type group struct {
	*testing.T
	*pgcluster.Cluster
	name    string
	shards  int
	lease   time.Duration
	admin   *sql.DB
	members map[string]*member
	mu      sync.Mutex
	entries []entry
}

type member struct {
	*exec.Cmd
	read chan struct{} // closed when all its entries are
}

func newGroup(t *testing.T) *group { return groupOf(t, shards, lease) }

func groupOf(t *testing.T, shards int, lease time.Duration, opts ...pgcluster.Option) *group {
	t.Helper()
	c, err := pgcluster.Start(t.Context(), opts...)
	check(t, err)
	admin, err := sql.Open("pgx", c.DSN())
	check(t, err)
	g := &group{T: t, Cluster: c, name: "group-" + strings.ToLower(rand.Text()[:6]), shards: shards, lease: lease, admin: admin, members: map[string]*member{}}
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

var check = must.Expect

func (g *group) join(ids ...string) {
	g.Helper()
	for _, id := range ids {
		driver := []string{"pgx", "postgres"}[len(g.members)%2]
		text, err := json.Marshal(settings{Driver: driver, DSN: g.DSN(), Group: g.name, ID: id, Shards: g.shards, Lease: g.lease})
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
	now := history.Now()
	_ = m.Process.Kill()
	<-m.read
	_ = m.Wait()
	g.worksNoMore(id, now)
}

// freeze stops a member once its work on the shards it leads has begun, or else that would say so
// only when it is thawed. It waits until all its threads stand: on a busy machine they run on
// for some milliseconds, in which work may begin.
func (g *group) freeze(id string, leads []string) {
	g.Helper()
	for began := time.Now(); !g.works(id, leads); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			g.Fatalf("%s leads %q, and does not work on all of them", id, leads)
		}
	}
	check(g.T, sandbox.Stop(g.members[id].Process.Pid))
	g.worksNoMore(id, history.Now())
}

// works reports whether the work of a member on all these shards has begun and not returned.
func (g *group) works(id string, names []string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	begun := map[string]bool{}
	for _, e := range g.entries {
		if e.ID == id {
			begun[e.Shard] = e.Begins
		}
	}
	return !slices.ContainsFunc(names, func(name string) bool { return !begun[name] })
}

// worksNoMore ends all that a member does, at that time or with its last entry.
func (g *group) worksNoMore(id string, at history.Time) {
	g.mu.Lock()
	for _, e := range g.entries {
		if e.ID == id {
			at = max(at, e.At)
		}
	}
	g.mu.Unlock()
	for i := range g.shards {
		g.add(entry{ID: id, Shard: fmt.Sprint(i), At: at})
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
	slices.SortStableFunc(g.entries, func(a, b entry) int { return cmp.Compare(a.At, b.At) })
	leads := map[string]string{}
	for _, e := range g.entries {
		switch other := leads[e.Shard]; {
		case e.Begins && other != "" && other != e.ID:
			g.Errorf("%s begins to lead %s while %s does", e.ID, e.Shard, other)
			for _, of := range g.entries {
				if of.Shard == e.Shard {
					g.Logf("%+v", of)
				}
			}
			leads[e.Shard] = e.ID
		case e.Begins:
			leads[e.Shard] = e.ID
		case other == e.ID:
			delete(leads, e.Shard)
		}
	}
	g.Logf("%d terms of %d shards", len(g.entries)/2, g.shards)
}

func TestTheShardsOfAFrozenMemberAreLedByOthersAfterItsLease(t *testing.T) {
	for driver, id := range map[string]string{"pgx": "a", "postgres": "b"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t)
			g.join("a", "b", "c")
			before := g.even("start of three", 3)
			g.freeze(id, before[id])
			after := g.even("one is frozen", 2)
			g.moved("freeze", before, after, len(before[id]))
			check(t, g.members[id].Process.Signal(syscall.SIGCONT))
			g.even("it is thawed", 3)
		})
	}
}

// Everything at once: the server, a kill, a freeze and two that join.
func TestAfterAllFaultsAtOnceTheSharesAreEven(t *testing.T) {
	g := newGroup(t)
	g.join("a", "b", "c", "d")
	before := g.even("start of four", 4)
	g.freeze("a", before["a"])
	g.kill("b")
	check(t, g.Cluster.Kill())
	g.join("e", "f")
	time.Sleep(lease)
	check(t, g.Resume(t.Context()))
	check(t, g.members["a"].Process.Signal(syscall.SIGCONT))
	g.even("after all", 5)
}

// memberVariable holds the settings of a member. If it is set, the test binary is a member
// instead of running the tests.
const memberVariable = "PGELECTOR_E2E_SHARD_MEMBER"

func TestMain(m *testing.M) {
	if text := os.Getenv(memberVariable); text != "" {
		os.Exit(beMember(text))
	}
	goleak.VerifyTestMain(m)
}

type settings struct {
	Driver, DSN, Group, ID string
	Shards                 int
	Lease                  time.Duration
}

// An entry is what a member says of one shard.
type entry struct {
	ID, Shard string
	Begins    bool // its work begins, or else has returned
	At        history.Time
	Why       string // it has returned
}

// lease is short: a test waits until it runs out.
const lease = 4 * time.Second

// beMember runs a member until SIGTERM, and writes its entries to standard output.
func beMember(text string) (status int) {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := sql.Open(s.Driver, s.DSN)
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(name string, begins bool, why string) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(entry{ID: s.ID, Shard: name, Begins: begins, At: history.Now(), Why: why})
	}
	err = shard.Run(ctx, pool, s.Group, shard.Numbers(s.Shards), func(ctx context.Context, name string, _ *elector.Term) error {
		say(name, true, "")
		<-ctx.Done()
		say(name, false, context.Cause(ctx).Error())
		return nil
	}, shard.WithSession(elector.WithCandidateID(s.ID), elector.WithLease(s.Lease), elector.WithHeartbeatInterval(s.Lease/10)))
	if ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

var (
	scaleShards  = flag.Int("shards", 1000, "of TestManyShardsOverManyMembers")
	scaleMembers = flag.Int("members", 10, "of TestManyShardsOverManyMembers")
)

// It prints the times until the shares are even, and what the group costs at rest:
//
//	go -C e2e test ./shard -run ManyShards -v -shards=10000 -members=3
func TestManyShardsOverManyMembers(t *testing.T) {
	g := groupOf(t, *scaleShards, 10*lease, pgcluster.WithSetting("max_locks_per_transaction", "256"))
	var ids []string
	for i := range *scaleMembers {
		ids = append(ids, fmt.Sprint("m", i))
	}
	g.join(ids...)
	g.even("start of all", len(ids))
	const rest = 5 * time.Second
	for _, statement := range []string{"ALTER SYSTEM SET log_statement = 'all'", "SELECT pg_reload_conf()"} {
		_, err := g.admin.Exec(statement)
		check(t, err)
	}
	time.Sleep(time.Second) // until all sessions have heard
	before := g.statements()
	time.Sleep(rest) // measured, not waited for
	perMember := float64(g.statements()-before) / rest.Seconds() / float64(len(ids))
	g.Logf("at rest: %.1f statements a second of each member", perMember)
	// Ten times a second each member looks whether another has ended; with lib/pq it looks four times
	// whether its own session has.
	if perMember == 0 || perMember > 20 {
		g.Errorf("%.1f statements a second of each member", perMember)
	}
	_, err := g.admin.Exec("ALTER SYSTEM RESET log_statement")
	check(t, err)
	_, err = g.admin.Exec("SELECT pg_reload_conf()")
	check(t, err)
	first := g.even("before", len(ids))
	g.join("new")
	second := g.even("one joins", len(ids)+1)
	g.moved("join", first, second, len(second["new"]))
	g.leave("m0")
	third := g.even("one leaves", len(ids))
	g.moved("leave", second, third, len(second["m0"]))
	g.kill("m1")
	fourth := g.even("one is killed", len(ids)-1)
	g.moved("kill", third, fourth, len(third["m1"]))
}

// statements is how many the server has logged. pg_stat_database may not tell of transactions for long.
func (g *group) statements() int {
	g.Helper()
	log, err := g.ServerLog()
	check(g.T, err)
	return strings.Count(log, " LOG:  statement: ") + strings.Count(log, " LOG:  execute ")
}

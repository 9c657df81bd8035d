package measure

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pgelector/pgelector/bench/internal/child"
	"github.com/pgelector/pgelector/bench/internal/servers"
	"github.com/pgelector/pgelector/bench/internal/systems"
	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// startTimeout limits how long a candidate takes to start, and the first leader to lead.
const startTimeout = 40 * time.Second

// group is the candidates of one election, or of many.
type group struct {
	servers   *servers.Servers
	system    systems.System
	elections int
	proxied   bool // the leader connects through proxy

	env        systems.Env // of the candidate that started last
	candidates int         // that follow
	proxy      *pgcluster.Proxy
	leader     *child.Child
	followers  []*child.Child
}

// start starts the leader, waits until it leads all elections, and starts followers: a number of processes that
// share a number of candidates.
func (g *group) start(ctx context.Context, processes, candidates int) error {
	if err := g.startLeader(ctx); err != nil {
		return err
	}
	g.candidates = candidates
	for i := range processes {
		g.env.Candidates = candidates*(i+1)/processes - candidates*i/processes
		g.env.ID, g.env.Server = g.servers.Name("follower"), g.endpoint()
		g.env.DSN = g.servers.DSN(g.address(), servers.Follower, g.env.ID)
		c, err := child.Start(g.env)
		if err != nil {
			return err
		}
		g.followers = append(g.followers, c)
		if _, err := c.Wait(ctx, systems.Ready, startTimeout); err != nil {
			return err
		}
	}
	return nil
}

func (g *group) startLeader(ctx context.Context) (err error) {
	s := g.servers
	g.env = systems.Env{System: g.system.Name, Server: g.endpoint(), Election: s.Name("election"), Elections: g.elections, ID: s.Name("leader")}
	g.env.DSN = s.DSN(g.address(), servers.Leader, g.env.ID)
	if g.system.Prepare != nil {
		if err := g.system.Prepare(ctx, s.DSN(s.PG, servers.Leader, "prepare"), g.env.Election); err != nil {
			return fmt.Errorf("%s: prepare: %w", g.system.Name, err)
		}
	}
	if g.proxied {
		if err := g.useProxy(ctx); err != nil {
			return err
		}
	}
	if g.leader, err = child.Start(g.env); err != nil {
		return err
	}
	if _, err := g.leader.Wait(ctx, systems.Leading, startTimeout); err != nil {
		return err
	}
	if led, ok := awaitLed(ctx, g.elections, 2*startTimeout, g.leader); !ok {
		return fmt.Errorf("%s: %d of %d elections have a leader after %v", g.system.Name, len(led), g.elections, 2*startTimeout)
	}
	return nil
}

// address is what the candidates connect to.
func (g *group) address() servers.Address {
	if g.system.Pooled {
		return g.servers.Pooler
	}
	return g.servers.PG
}

// endpoint is what the candidates of a system connect to in place of PostgreSQL.
func (g *group) endpoint() string {
	if g.system.Server == "" {
		return ""
	}
	return g.servers.Endpoint(g.system.Server)
}

// useProxy makes the leader connect through a proxy.
func (g *group) useProxy(ctx context.Context) (err error) {
	if g.system.Server != "" {
		if g.proxy, err = pgcluster.NewProxy(ctx, g.env.Server); err == nil {
			g.env.Server = g.proxy.Addr()
		}
		return err
	}
	if g.proxy, err = pgcluster.NewProxy(ctx, g.address().Addr()); err == nil {
		g.env.DSN = strings.Replace(g.env.DSN, g.address().Addr(), g.proxy.Addr(), 1)
	}
	return err
}

// stop kills all processes.
func (g *group) stop() {
	for _, c := range append(g.followers, g.leader) {
		if c != nil {
			c.Stop()
		}
	}
	if g.proxy != nil {
		_ = g.proxy.Close()
	}
}

// awaitLed waits until each of n elections has a leader, and returns when they came to have one. It does not
// wait for a single election, of which processes report systems.Leading alone.
func awaitLed(ctx context.Context, n int, limit time.Duration, processes ...*child.Child) (led []int64, ok bool) {
	for deadline := time.Now().Add(limit); n > 1 && len(led) < n; {
		if ctx.Err() != nil || time.Now().After(deadline) {
			return led, false
		}
		time.Sleep(20 * time.Millisecond)
		led = nil
		for _, c := range processes {
			led = append(led, c.Led()...)
		}
	}
	return led, true
}

// awaitLeader waits until a process starts a leader's work after an instant. It returns when, and which one:
// nil if none does within the limit.
func awaitLeader(ctx context.Context, since int64, limit time.Duration, processes ...*child.Child) (at int64, leader *child.Child) {
	for deadline := time.Now().Add(limit); leader == nil && ctx.Err() == nil && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
		for _, c := range processes {
			if e, ok := c.After(systems.Leading, since+1); ok && (leader == nil || e.At < at) {
				at, leader = e.At, c
			}
		}
	}
	return at, leader
}

func millis(ns int64) *float64 {
	ms := float64(ns) / 1e6
	return &ms
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

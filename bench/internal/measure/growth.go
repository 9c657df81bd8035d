package measure

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/servers"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

const (
	growthLimit  = 30 * time.Second // for all elections to have a leader again
	maxProcesses = 20               // more followers than this share processes
)

// size is one system at one size.
type size struct {
	system                string
	elections, candidates int
	kills                 int
}

func (p Plan) sizes() []size {
	var all []size
	for _, n := range p.elections {
		all = append(all, size{systems.Session, n, 3, p.kills(n)}, size{systems.EtcdFast, n, 3, 1})
		if slices.Contains(p.separate, n) {
			all = append(all, size{systems.DefaultPgx, n, 3, 1})
		}
	}
	for _, n := range p.fleet {
		for _, s := range []string{systems.RawPgx, systems.DefaultPgx, systems.WaitPgx, systems.PollPgx, systems.GooseFast, systems.EtcdFast} {
			all = append(all, size{s, 1, n, 1})
		}
	}
	return slices.DeleteFunc(all, func(z size) bool { return !strings.Contains(z.system, p.Only) })
}

// kills returns how often to kill the leader of n elections on a shared session. All candidates start again each time.
func (p Plan) kills(n int) int {
	switch {
	case p.Quick:
		return 2
	case n == 1000:
		return 11
	case n > 1000:
		return 5
	}
	return 3
}

func (z size) seconds(window float64) float64 {
	return window + float64(z.kills)*(4+float64(z.candidates)/20+float64(z.elections)/400)
}

func (r *run) growthSeconds() (seconds float64) {
	for _, z := range r.plan.sizes() {
		seconds += z.seconds(r.plan.window)
	}
	return seconds
}

func (r *run) growth(ctx context.Context) error {
	if err := r.measureIdle(ctx, servers.Etcd); err != nil {
		return err
	}
	for _, z := range r.plan.sizes() {
		g := results.Growth{System: z.system, Elections: z.elections, Candidates: z.candidates, Followers: min(z.candidates-1, maxProcesses)}
		var err error
		for kill := 0; kill < z.kills && err == nil; kill++ {
			err = r.grow(ctx, &g, kill == 0)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			r.progress.skipped(err)
			g.Error = err.Error()
		}
		r.add(func(all *results.Results) { all.Growth = append(all.Growth, g) })
		r.progress.done(z.seconds(r.plan.window), fmt.Sprintf("%s, %d elections, %d candidates", z.system, z.elections, z.candidates))
	}
	return nil
}

// grow starts the candidates of one size, measures their costs if withCosts is set, and kills the leader.
func (r *run) grow(ctx context.Context, out *results.Growth, withCosts bool) error {
	s, _ := systems.Find(out.System)
	g := &group{servers: r.servers, system: s, elections: out.Elections}
	defer g.stop()
	if err := g.start(ctx, out.Followers, out.Candidates-1); err != nil {
		return err
	}
	if withCosts {
		c, err := r.cost(ctx, g, r.plan.window)
		if err != nil {
			return err
		}
		out.Leader, out.Follower, out.ServerRSS = c.leader, c.follower, c.backends
	} else if err := g.settle(ctx); err != nil {
		return err
	}
	if err := sleep(ctx, rand.N(time.Second)); err != nil {
		return err
	}
	first, all, err := g.killLeader(ctx)
	out.First, out.All = append(out.First, first), append(out.All, all)
	return err
}

// killLeader kills the leader, and measures when followers lead the first election and all. It returns nil for what
// does not happen within growthLimit.
func (g *group) killLeader(ctx context.Context) (first, all *float64, err error) {
	began := systems.Now()
	if err := g.leader.Signal(syscall.SIGKILL); err != nil {
		return nil, nil, err
	}
	if g.elections == 1 {
		if at, leader := awaitLeader(ctx, began, growthLimit, g.followers...); leader != nil {
			first = millis(at - began)
		}
		return first, first, nil
	}
	led, ok := awaitLed(ctx, g.elections, growthLimit, g.followers...)
	if len(led) > 0 {
		first = millis(slices.Min(led) - began)
	}
	if ok {
		all = millis(slices.Max(led) - began)
	}
	return first, all, nil
}

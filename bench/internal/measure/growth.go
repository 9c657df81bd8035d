package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/bench/internal/results"
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
}

func (p Plan) sizes() []size {
	var all []size
	for _, n := range p.elections {
		for _, s := range []string{systems.Session, systems.EtcdFast} {
			all = append(all, size{s, n, 3})
		}
		for _, s := range []string{systems.DefaultPgx, systems.WaitPgx} {
			if slices.Contains(p.separate, n) {
				all = append(all, size{s, n, 3})
			}
		}
	}
	for _, n := range p.fleet {
		for _, s := range []string{systems.RawPgx, systems.DefaultPgx, systems.WaitPgx, systems.GooseFast, systems.EtcdFast} {
			all = append(all, size{s, 1, n})
		}
	}
	return all
}

func (z size) seconds(window float64) float64 {
	return 4 + window + float64(z.candidates)/20 + float64(z.elections)/400
}

func (r *run) growthSeconds() (seconds float64) {
	for _, z := range r.plan.sizes() {
		seconds += z.seconds(r.plan.window)
	}
	return seconds
}

func (r *run) growth(ctx context.Context) error {
	if r.etcdIdle == 0 {
		if err := r.idleEtcd(ctx); err != nil {
			return err
		}
	}
	for _, z := range r.plan.sizes() {
		g := r.grow(ctx, z)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if g.Error != "" {
			r.progress.skipped(errors.New(g.Error))
		}
		r.add(func(all *results.Results) { all.Growth = append(all.Growth, g) })
		r.progress.done(z.seconds(r.plan.window), fmt.Sprintf("%s, %d elections, %d candidates", z.system, z.elections, z.candidates))
	}
	return nil
}

// grow measures the costs of one size, and then kills the leader.
func (r *run) grow(ctx context.Context, z size) results.Growth {
	s, _ := systems.Find(z.system)
	g := &group{servers: r.servers, system: s, elections: z.elections}
	defer g.stop()
	out := results.Growth{System: z.system, Elections: z.elections, Candidates: z.candidates}
	processes, each := z.candidates-1, 1
	if processes > maxProcesses {
		processes, each = maxProcesses, (processes+maxProcesses-1)/maxProcesses
	}
	err := g.start(ctx, processes, each)
	if err == nil {
		out.Leader, out.Follower, out.ServerRSS, err = r.cost(ctx, g, r.plan.window)
	}
	if err == nil {
		out.FirstMs, out.AllMs, err = g.killLeader(ctx)
	}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

// killLeader kills the leader, and measures when followers lead the first election and all.
func (g *group) killLeader(ctx context.Context) (first, all *float64, err error) {
	began := systems.Now()
	if err := g.leader.Signal(syscall.SIGKILL); err != nil {
		return nil, nil, err
	}
	if g.elections > 1 {
		led, ok := awaitLed(ctx, g.elections, growthLimit, g.followers...)
		if len(led) > 0 {
			first = millis(slices.Min(led) - began)
		}
		if ok {
			all = millis(slices.Max(led) - began)
		}
		return first, all, nil
	}
	if at, ok := awaitLeader(ctx, began, growthLimit, g.followers...); ok {
		first = millis(at - began)
	}
	return first, first, nil
}

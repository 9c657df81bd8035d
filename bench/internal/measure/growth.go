package measure

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/bench/internal/child"
	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

const (
	growthCap  = 30 * time.Second // for all elections to be led anew
	ownProcess = 20               // more candidates than this share processes
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
		for _, s := range []string{systems.DefaultPgx, systems.FastPgx} {
			if slices.Contains(p.separate, n) {
				all = append(all, size{s, n, 3})
			}
		}
	}
	for _, n := range p.herd {
		for _, s := range []string{systems.RawPgx, systems.DefaultPgx, systems.FastPgx, systems.GooseFast, systems.EtcdFast} {
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
			r.progress.say(g.Error)
		}
		r.add(func(all *results.Results) { all.Growth = append(all.Growth, g) })
		r.progress.done(z.seconds(r.plan.window), fmt.Sprintf("%s, %d elections, %d candidates", z.system, z.elections, z.candidates))
	}
	return nil
}

// grow measures one size: at rest, and then by kill -9 of the leader.
func (r *run) grow(ctx context.Context, z size) results.Growth {
	s, _ := systems.Find(z.system)
	g := &group{run: r, system: s, elections: z.elections}
	defer g.end()
	out := results.Growth{System: z.system, Elections: z.elections, Candidates: z.candidates}
	processes, each := z.candidates-1, 1
	if z.candidates > ownProcess {
		processes, each = ownProcess, (z.candidates-1+ownProcess-1)/ownProcess
	}
	err := g.start(ctx, processes, each)
	if err == nil {
		out.Leader, out.Follower, out.ServerRSS, err = g.measure(ctx, r.plan.window)
	}
	if err == nil {
		out.FirstMs, out.AllMs, err = g.behead(ctx)
	}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

// behead kills the leader, and waits until the followers lead all that it led.
func (g *group) behead(ctx context.Context) (first, all *float64, err error) {
	began := systems.Now()
	if err := g.leader.Signal(syscall.SIGKILL); err != nil {
		return nil, nil, err
	}
	if g.elections > 1 {
		led, ok := awaitLed(ctx, g.elections, growthCap, g.followers...)
		if len(led) > 0 {
			first = millis(slices.Min(led) - began)
		}
		if ok {
			all = millis(slices.Max(led) - began)
		}
		return first, all, nil
	}
	if at, ok := firstLead(ctx, began, growthCap, g.followers); ok {
		first = millis(at - began)
	}
	return first, first, nil
}

// firstLead waits until one of the processes leads.
func firstLead(ctx context.Context, since int64, limit time.Duration, processes []*child.Child) (int64, bool) {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		for _, c := range processes {
			if e, ok, _ := c.After(systems.Leading, since); ok {
				return e.At, true
			}
		}
	}
	return 0, false
}

package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

func (r *run) restSeconds() float64 {
	return float64(len(r.plan.systems()))*(r.plan.rest+4) + 3
}

// restAll measures the systems one after the other, each with a leader and a follower, so that what the
// server counts is theirs.
func (r *run) restAll(ctx context.Context) error {
	if err := r.idleEtcd(ctx); err != nil {
		return err
	}
	for _, s := range r.plan.systems() {
		g := &group{run: r, system: s, elections: 1}
		err := g.start(ctx, 1, 1)
		var leader, follower results.Rest
		if err == nil {
			leader, follower, _, err = g.measure(ctx, r.plan.rest)
		}
		g.end()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			r.progress.say(fmt.Sprintf("left out: %v", err))
		default:
			r.add(func(all *results.Results) { all.Rest = append(all.Rest, leader, follower) })
		}
		r.progress.done(r.plan.rest+4, s.Name+", at rest")
	}
	return nil
}

// idleEtcd measures what etcd's server takes by itself, which is not the candidates' cost.
func (r *run) idleEtcd(ctx context.Context) error {
	before, at := cpu(r.world.Etcd.PID), systems.Now()
	if err := rest(ctx, 3*time.Second); err != nil {
		return err
	}
	r.etcdIdle = (cpu(r.world.Etcd.PID) - before) / (float64(systems.Now()-at) / 1e9)
	r.progress.done(3, fmt.Sprintf("etcd without candidates: %.1f ms of processor time a second", r.etcdIdle))
	return nil
}

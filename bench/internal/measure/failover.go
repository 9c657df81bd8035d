package measure

import (
	"context"
	"fmt"
	"sync"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

// atATime is how many failovers that take seconds go on together: their candidates sleep most of the time.
const atATime = 14

// failovers measures those that take milliseconds one by one, then the others together.
func (r *run) failovers(ctx context.Context) error {
	for _, j := range r.plan.jobs(true) {
		if err := r.failover(ctx, j); err != nil {
			return err
		}
	}
	jobs := make(chan job)
	var workers sync.WaitGroup
	var first error
	var once sync.Once
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for range atATime {
		workers.Go(func() {
			for j := range jobs {
				if err := r.failover(ctx, j); err != nil {
					once.Do(func() { first = err; stop() })
				}
			}
		})
	}
	for _, j := range r.plan.jobs(false) {
		jobs <- j
	}
	close(jobs)
	workers.Wait()
	return first
}

// failover measures one. One that cannot be measured is reported and left out: not everything is ours.
func (r *run) failover(ctx context.Context, j job) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t := &trial{world: r.world, system: j.system, fault: j.fault}
	f, err := t.run(ctx)
	r.progress.done(j.seconds/r.share(j), fmt.Sprintf("%s, %s", j.system.Name, j.fault))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		r.progress.say(fmt.Sprintf("left out: %v", err))
		return nil
	}
	r.add(func(all *results.Results) { all.Failovers = append(all.Failovers, f) })
	return nil
}

// share is how many jobs go on at the same time as this one.
func (r *run) share(j job) float64 {
	if j.system.IsQuick(j.fault) {
		return 1
	}
	return atATime
}

// restarts restarts the servers under a leader and a follower of every system at once.
func (r *run) restarts(ctx context.Context) error {
	for range r.plan.restarts {
		if err := r.restart(ctx); err != nil {
			return err
		}
		r.progress.done(restartSeconds, "server restart")
	}
	return nil
}

const restartSeconds = 20

func (r *run) restart(ctx context.Context) error {
	var trials []*trial
	for _, s := range r.plan.systems() {
		if s.Etcd && s.Phase.Seconds() > 1 || s.Cannot[systems.Restart] != "" {
			continue
		}
		t := &trial{world: r.world, system: s, fault: systems.Restart}
		defer t.end()
		if err := t.prepare(ctx); err != nil {
			r.progress.say(fmt.Sprintf("left out: %v", err))
			continue
		}
		trials = append(trials, t)
	}
	for _, t := range trials {
		if err := t.strike(ctx); err != nil {
			return err
		}
	}
	began := systems.Now()
	if err := r.world.Restart(ctx); err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, t := range trials {
		t.began = began
		all.Go(func() {
			if f, err := t.observe(ctx); err == nil {
				r.add(func(all *results.Results) { all.Failovers = append(all.Failovers, f) })
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

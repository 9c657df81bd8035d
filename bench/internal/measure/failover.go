package measure

import (
	"context"
	"fmt"
	"sync"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/servers"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

// failovers measures those that take milliseconds one at a time, then the others in parallel.
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
	for range results.Parallel {
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

// failover measures one failover. A failure of a system under test is printed and does not end the run.
func (r *run) failover(ctx context.Context, j job) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f, err := r.newTrial(j.system, j.fault).run(ctx)
	r.progress.done(j.seconds/parallel(j), fmt.Sprintf("%s, %s", j.system.Name, j.fault))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		r.progress.skipped(err)
		return nil
	}
	r.add(func(all *results.Results) { all.Failovers = append(all.Failovers, f) })
	return nil
}

// parallel is the number of jobs that run at the same time as j, itself included.
func parallel(j job) float64 {
	if j.system.IsQuick(j.fault) {
		return 1
	}
	return results.Parallel
}

// restarts restarts the servers. A leader and a follower of every system run meanwhile.
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
		if s.Server == servers.Etcd && s.Phase.Seconds() > 1 || s.Cannot[systems.Restart] != "" {
			continue
		}
		t := r.newTrial(s, systems.Restart)
		defer t.stop()
		if err := t.prepare(ctx); err != nil {
			r.progress.skipped(err)
			continue
		}
		trials = append(trials, t)
	}
	for _, t := range trials {
		if err := t.inject(ctx); err != nil {
			return err
		}
	}
	began := systems.Now()
	if err := r.servers.Restart(ctx, r.plan.servers()); err != nil {
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

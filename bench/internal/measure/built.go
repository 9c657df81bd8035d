package measure

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/servers"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

// forBuilt returns the plan for the systems whose servers are built.
func (p Plan) forBuilt() Plan {
	p.built, p.restarts = true, min(p.restarts, 1)
	p.missing = maps.Clone(p.missing)
	return p
}

// build builds the servers that the run needs, before it measures anything.
func (r *run) build(ctx context.Context) {
	for _, server := range r.plan.forBuilt().servers() {
		fmt.Fprintf(r.progress.out, "building %s, for some minutes, if it has not been built before\n", server)
		if _, err := servers.Build(ctx, server); err != nil {
			r.miss(server, err)
			continue
		}
		p := servers.Programs[server]
		r.all.Facts = append(r.all.Facts, results.Fact{Name: p.Module, Value: p.Version})
	}
}

// miss says in the results why the systems that use a server are not measured.
func (r *run) miss(server string, why error) {
	r.progress.skipped(why)
	r.plan.missing[server] = true
	for i, s := range r.all.Systems {
		if system, _ := systems.Find(s.Name); system.Server == server {
			for _, f := range systems.Faults {
				r.all.Systems[i].Cannot[string(f)] = why.Error()
			}
		}
	}
}

func (r *run) builtSeconds() float64 {
	alone := &run{plan: r.plan.forBuilt()}
	return alone.failoverSeconds() + alone.costSeconds() + float64(alone.plan.restarts)*restartSeconds
}

// built measures the systems whose servers are built, with nothing else in the background.
func (r *run) built(ctx context.Context) error {
	all := r.plan
	r.plan = all.forBuilt()
	defer func() { r.plan = all }()
	for _, server := range slices.Clone(r.plan.servers()) {
		if err := r.servers.Launch(ctx, server); err != nil {
			r.miss(server, err)
		}
	}
	for _, measure := range []func(context.Context) error{r.failovers, r.costsAtRest, r.restarts} {
		if err := measure(ctx); err != nil && ctx.Err() == nil {
			r.progress.skipped(err)
		}
	}
	return context.Cause(ctx)
}

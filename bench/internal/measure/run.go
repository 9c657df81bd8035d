package measure

import (
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/systems"
	"github.com/pgelector/pgelector/bench/internal/world"
)

// connections is what the server allows: 200 candidates in fast mode, while one of them leads.
const connections = 700

// run is one run of the whole benchmark.
type run struct {
	plan     Plan
	world    *world.World
	progress *progress

	mu  sync.Mutex
	all *results.Results

	etcdIdle float64 // milliseconds of processor time a second, without candidates
}

// Run measures what the plan says. After an error it returns what it has measured so far, or nil.
func Run(ctx context.Context, plan Plan, out io.Writer) (*results.Results, error) {
	r := &run{plan: plan, progress: newProgress(out)}
	r.all = &results.Results{Command: command(), Date: time.Now().UTC(), Quick: plan.Quick}
	parts := r.parts()
	for _, p := range parts {
		r.progress.total += p.seconds
	}
	w, err := world.Start(ctx, connections)
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	r.world = w
	if r.all.Facts, err = facts(ctx, w); err != nil {
		return nil, err
	}
	r.describe()
	for _, p := range parts {
		if err = p.measure(ctx); err != nil {
			break
		}
	}
	r.all.Took = time.Since(r.all.Date).Round(time.Second)
	return r.all, err
}

// part is one part of the plan.
type part struct {
	name    string
	seconds float64
	measure func(context.Context) error
}

func (r *run) parts() []part {
	var wanted []part
	for _, p := range []part{
		{"inprocess", inProcessSeconds, r.inProcess},
		{"failover", r.failoverSeconds(), r.failovers},
		{"rest", r.restSeconds(), r.restAll},
		{"growth", r.growthSeconds(), r.growth},
		{"restart", float64(r.plan.restarts) * restartSeconds, r.restarts},
	} {
		if r.plan.has(p.name) {
			wanted = append(wanted, p)
		}
	}
	return wanted
}

func (r *run) failoverSeconds() (seconds float64) {
	for _, alone := range []bool{true, false} {
		for _, j := range r.plan.jobs(alone) {
			seconds += j.seconds / r.share(j)
		}
	}
	return seconds
}

func (r *run) add(change func(*results.Results)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r.all)
}

// describe writes down the systems.
func (r *run) describe() {
	texts := func(m map[systems.Fault]string) map[string]string {
		t := map[string]string{}
		for f, why := range m {
			t[string(f)] = why
		}
		return t
	}
	for _, s := range r.plan.systems() {
		r.all.Systems = append(r.all.Systems, results.System{Name: s.Name, Settings: s.Settings, For: s.For, Blind: s.Blind,
			Cannot: texts(s.Cannot), Never: texts(s.Never)})
	}
}

// command is how this run was asked for.
func command() string {
	args := strings.Join(os.Args[1:], " ")
	switch args {
	case "":
		return "make bench"
	case "-quick":
		return "make bench-quick"
	}
	return "go run . " + args
}

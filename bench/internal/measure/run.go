package measure

import (
	"context"
	"fmt"
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

// progress shows how far the run is, and how long it may still take.
type progress struct {
	out   io.Writer
	total float64 // seconds, as expected
	began time.Time

	mu    sync.Mutex
	spent float64 // of total
}

func newProgress(out io.Writer) *progress { return &progress{out: out, began: time.Now()} }

// done shows that something has been measured that was expected to take so many seconds.
func (p *progress) done(seconds float64, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent = min(p.spent+seconds, p.total)
	taken := time.Since(p.began)
	// At first the plan is believed, then more and more what was seen.
	share := p.spent / p.total
	seen := taken.Seconds() * (1 - share) / max(share, 0.01)
	left := time.Duration((share*seen + (1-share)*(p.total-p.spent)) * float64(time.Second))
	fmt.Fprintf(p.out, "%3.0f %%  %5s left  %s\n", 100*share, left.Round(time.Second), what)
}

// say shows something else.
func (p *progress) say(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.out, what)
}

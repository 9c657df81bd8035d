package measure

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/servers"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

// connections is the server's limit. 200 candidates that wait need most of them.
const connections = 700

// run is one run of the benchmark.
type run struct {
	plan     Plan
	servers  *servers.Servers
	progress *progress

	mu  sync.Mutex
	all *results.Results

	idle map[string]float64 // milliseconds of CPU time a second that a server uses without candidates
}

// Run measures what the plan says. With an error it returns what it has measured so far, or nil.
func Run(ctx context.Context, plan Plan, out io.Writer) (*results.Results, error) {
	r := &run{plan: plan, progress: newProgress(out), idle: map[string]float64{}}
	r.plan.missing = map[string]bool{}
	r.all = &results.Results{Command: results.Command(os.Args[1:]), Date: time.Now().UTC(), Quick: plan.Quick}
	commit, _ := exec.CommandContext(ctx, "git", "rev-parse", "--short=7", "HEAD").Output()
	r.all.Commit = cmp.Or(strings.TrimSpace(string(commit)), "unknown") // as of an archive
	parts := r.parts()
	for _, p := range parts {
		r.progress.total += p.seconds
	}
	s, err := servers.Start(ctx, connections)
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	r.servers = s
	if r.all.Facts, err = facts(ctx, s); err != nil {
		return nil, err
	}
	r.describe()
	if r.plan.has("built") {
		r.build(ctx)
	}
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
		{"rest", r.costSeconds(), r.costsAtRest},
		{"growth", r.growthSeconds(), r.growth},
		{"shards", r.shardSeconds(), r.shards},
		{"restart", float64(r.plan.restarts) * restartSeconds, r.restarts},
		{"built", r.builtSeconds(), r.built},
		{"mistakes", r.mistakeSeconds(), r.mistakes},
	} {
		if r.plan.has(p.name) {
			wanted = append(wanted, p)
		}
	}
	return wanted
}

func (r *run) failoverSeconds() (seconds float64) {
	for _, quick := range []bool{true, false} {
		for _, j := range r.plan.jobs(quick) {
			seconds += j.seconds / parallel(j)
		}
	}
	return seconds
}

func (r *run) add(change func(*results.Results)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r.all)
}

// describe adds the systems to the results.
func (r *run) describe() {
	texts := func(m map[systems.Fault]string) map[string]string {
		t := map[string]string{}
		for f, why := range m {
			t[string(f)] = why
		}
		return t
	}
	for _, s := range r.plan.wanted() {
		r.all.Systems = append(r.all.Systems, results.System{Name: s.Name, Settings: s.Settings, For: s.For, Blind: s.Blind,
			Cannot: texts(s.Cannot), Never: texts(s.Never)})
	}
}

// compared are the modules whose versions the report states.
var compared = []string{
	"github.com/jackc/pgx/v5", "github.com/lib/pq", "github.com/riverqueue/river", "github.com/hashicorp/vault",
	"github.com/pressly/goose/v3", "github.com/golang-migrate/migrate/v4", "go.etcd.io/etcd/server/v3",
	"github.com/hashicorp/consul/api", "k8s.io/client-go",
}

// facts describes the machine and the versions.
func facts(ctx context.Context, s *servers.Servers) ([]results.Fact, error) {
	var version string
	if err := s.Admin.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return nil, err
	}
	all := []results.Fact{
		{Name: "processor", Value: fmt.Sprintf("%d cores, %s", runtime.NumCPU(), fromFile("/proc/cpuinfo", "model name"))},
		{Name: "memory", Value: fromFile("/proc/meminfo", "MemTotal")},
		{Name: "load before", Value: firstLine("/proc/loadavg")},
		{Name: "kernel", Value: runtime.GOOS + " " + firstLine("/proc/sys/kernel/osrelease")},
		{Name: "Go", Value: runtime.Version()},
		{Name: "PostgreSQL", Value: version},
		{Name: "durability", Value: servers.Durable},
		{Name: "network", Value: "loopback TCP, no TLS but that of kube-apiserver"},
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, wanted := range compared {
			for _, m := range build.Deps {
				if m.Path == wanted {
					all = append(all, results.Fact{Name: m.Path, Value: m.Version})
				}
			}
		}
	}
	return all, nil
}

// fromFile returns the value of a key in a file of lines "key: value".
func fromFile(file, key string) string {
	text, _ := os.ReadFile(file) // empty if it cannot be read
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func firstLine(file string) string {
	text, _ := os.ReadFile(file)
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// progress prints how far the run is, and how long it may still take.
type progress struct {
	out   io.Writer
	total float64 // expected seconds
	began time.Time

	mu    sync.Mutex
	spent float64 // the part of total that is done
}

func newProgress(out io.Writer) *progress { return &progress{out: out, began: time.Now()} }

// done prints what has been measured. It was expected to take that many seconds.
func (p *progress) done(seconds float64, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent = min(p.spent+seconds, p.total)
	taken := time.Since(p.began)
	// The estimate relies on the plan at first, and later on the time that the run has taken.
	share := p.spent / p.total
	observed := taken.Seconds() * (1 - share) / max(share, 0.01)
	left := time.Duration((share*observed + (1-share)*(p.total-p.spent)) * float64(time.Second))
	fmt.Fprintf(p.out, "%3.0f %%  %5s left  %s\n", 100*share, left.Round(time.Second), what)
}

// skipped prints why something was not measured.
func (p *progress) skipped(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.out, "skipped:", err)
}

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

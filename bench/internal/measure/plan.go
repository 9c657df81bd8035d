// Package measure runs the candidates, hurts them and takes the times.
package measure

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/systems"
	"github.com/pgelector/pgelector/bench/internal/world"
)

// Plan is what to measure, and how often.
type Plan struct {
	Only  string // part of a system's name
	Parts string // comma-separated

	Quick     bool
	alone     int // samples of what takes milliseconds
	together  int // samples of what takes seconds
	endless   int // samples of what takes a minute
	restarts  int
	rest      float64 // seconds at rest, for one election
	window    float64 // seconds at rest, while it grows
	elections []int
	separate  []int
	herd      []int
}

// SetQuick chooses between two minutes and twenty.
func (p *Plan) SetQuick(quick bool) {
	p.Quick = quick
	if quick {
		p.alone, p.together, p.endless, p.restarts, p.rest, p.window = 4, 1, 0, 0, 1.5, 2
		p.elections, p.separate, p.herd = []int{1000}, nil, []int{20}
		return
	}
	p.alone, p.together, p.endless, p.restarts, p.rest, p.window = 21, 9, 2, 3, 10, 4
	p.elections, p.separate, p.herd = []int{1, 10, 100, 1000, 10000}, []int{1, 10, 100}, []int{2, 20, 200}
}

func (p Plan) has(part string) bool { return slices.Contains(strings.Split(p.Parts, ","), part) }

// systems are those to be measured.
func (p Plan) systems() []systems.System {
	return slices.DeleteFunc(systems.All(), func(s systems.System) bool { return !strings.Contains(s.Name, p.Only) })
}

// job is one failover to be measured.
type job struct {
	system  systems.System
	fault   systems.Fault
	seconds float64 // as expected
}

// jobs lists the failovers, system by system in turn, so that they share what noise there is.
func (p Plan) jobs(alone bool) []job {
	var all []job
	rounds := p.together
	if alone {
		rounds = p.alone
	}
	for round := range rounds {
		var turn []job
		for _, s := range p.systems() {
			for _, f := range systems.Faults {
				if f != systems.Restart && s.IsQuick(f) == alone && round < p.samples(s, f) {
					turn = append(turn, job{s, f, expected(s, f)})
				}
			}
		}
		rand.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
		all = append(all, turn...)
	}
	if !alone { // the long ones first, so that none is waited for alone
		slices.SortStableFunc(all, func(a, b job) int { return int(b.seconds/10) - int(a.seconds/10) })
	}
	return all
}

// samples is how often a failover is measured.
func (p Plan) samples(s systems.System, f systems.Fault) int {
	switch {
	case s.Cannot[f] != "":
		return 0
	case s.IsQuick(f):
		return p.alone
	case s.Never[f] != "":
		return min(p.endless, 1)
	case p.Quick && expected(s, f) > 15:
		return p.endless
	case expected(s, f) > 40:
		return p.endless
	}
	return p.together
}

// quickPhase is the random part of the time before a fault that is expected to cost milliseconds: nothing that
// a clock drives plays a part in those.
const quickPhase = 500 * time.Millisecond

// expected is about how many seconds a failover takes, with what goes before it.
func expected(s systems.System, f systems.Fault) float64 {
	phase := s.Phase.Seconds()
	switch {
	case s.IsQuick(f):
		return 0.8 + min(phase, quickPhase.Seconds())/2
	case s.Never[f] != "":
		return 31
	case f == systems.Resign:
		return 1 + phase
	case s.Etcd && phase > 1:
		return 80
	case s.Name == "river" || strings.HasPrefix(s.Name, "vault"):
		return 25
	case f == systems.Freeze || f == systems.BlackHole:
		return 12
	}
	return 1 + 2*phase
}

// compared are the modules whose versions matter.
var compared = []string{
	"github.com/jackc/pgx/v5", "github.com/lib/pq", "github.com/riverqueue/river", "github.com/hashicorp/vault",
	"github.com/pressly/goose/v3", "github.com/golang-migrate/migrate/v4", "go.etcd.io/etcd/server/v3",
}

// facts are about the machine and the versions.
func facts(ctx context.Context, w *world.World) ([]results.Fact, error) {
	var version string
	if err := w.Admin.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return nil, err
	}
	all := []results.Fact{
		{Name: "processor", Value: fmt.Sprintf("%d cores, %s", runtime.NumCPU(), fromFile("/proc/cpuinfo", "model name"))},
		{Name: "memory", Value: fromFile("/proc/meminfo", "MemTotal")},
		{Name: "load before", Value: firstLine("/proc/loadavg")},
		{Name: "kernel", Value: runtime.GOOS + " " + firstLine("/proc/sys/kernel/osrelease")},
		{Name: "Go", Value: runtime.Version()},
		{Name: "PostgreSQL", Value: version},
		{Name: "durability", Value: world.Durable},
		{Name: "network", Value: "loopback TCP, no TLS"},
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

// fromFile is the value behind a key in a file of lines "key: value".
func fromFile(file, key string) string {
	text, _ := os.ReadFile(file) // empty if there is none
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

// Package measure runs candidates, injects faults, and measures times and costs.
package measure

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pgelector/pgelector/bench/internal/systems"
)

// Plan says what to measure, and how often.
type Plan struct {
	Only  string // a part of the systems' names
	Parts string // comma-separated

	Minutes float64 // for which the mistakes of each system under each strain are counted

	built   bool            // measure the systems whose servers are built, not the others
	missing map[string]bool // servers that do not run

	Quick     bool
	quick     int // samples of what takes milliseconds
	own       int // the same of this library: enough for a p99 and the worst
	medians   int // the same where a goal has the median alone
	slow      int // samples of what takes seconds
	slowest   int // samples of what takes a minute
	restarts  int
	rest      float64 // seconds for which costs are measured, for one election
	window    float64 // the same for growth
	elections []int   // sizes, on a shared session
	separate  []int   // the same with a session per election
	fleet     []int   // numbers of candidates
	shards    []shardSize
}

// SetQuick sets the numbers of samples and the sizes, for about five minutes or 50.
func (p *Plan) SetQuick(quick bool) {
	p.Quick = quick
	if quick {
		p.quick, p.own, p.medians, p.slow, p.slowest, p.restarts, p.rest, p.window = 4, 4, 4, 1, 0, 0, 1.5, 2
		p.elections, p.separate, p.fleet = []int{1000}, nil, []int{20}
		p.shards = []shardSize{{100, 3}}
		return
	}
	p.quick, p.own, p.medians, p.slow, p.slowest, p.restarts, p.rest, p.window = 11, 101, 31, 5, 1, 3, 10, 4
	p.elections, p.separate, p.fleet = []int{1, 100, 10000}, []int{1, 100}, []int{2, 200}
	p.shards = []shardSize{{1000, 10}, {10000, 3}}
}

func (p Plan) has(part string) bool { return slices.Contains(strings.Split(p.Parts, ","), part) }

// wanted returns the systems that Only names.
func (p Plan) wanted() []systems.System {
	return slices.DeleteFunc(systems.All(), func(s systems.System) bool { return !strings.Contains(s.Name, p.Only) })
}

// systems returns the systems to measure now.
func (p Plan) systems() []systems.System {
	return slices.DeleteFunc(p.wanted(), func(s systems.System) bool { return s.Built() != p.built || p.missing[s.Server] })
}

// servers returns the servers that these use.
func (p Plan) servers() (names []string) {
	for _, s := range p.systems() {
		if !slices.Contains(names, s.Server) {
			names = append(names, s.Server)
		}
	}
	return names
}

// job is one failover to measure.
type job struct {
	system  systems.System
	fault   systems.Fault
	seconds float64 // as expected
}

// jobs returns the quick failovers or the others. The systems take turns, so that noise affects all alike.
func (p Plan) jobs(quick bool) []job {
	var all []job
	rounds := p.slow
	if quick {
		rounds = max(p.quick, p.own)
	}
	for round := range rounds {
		var turn []job
		for _, s := range p.systems() {
			for _, f := range systems.Faults {
				if f != systems.Restart && s.IsQuick(f) == quick && due(round, rounds, p.samples(s, f)) {
					turn = append(turn, job{s, f, expected(s, f)})
				}
			}
		}
		rand.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
		all = append(all, turn...)
	}
	if !quick { // the longest first, so that none runs alone at the end
		slices.SortStableFunc(all, func(a, b job) int { return int(b.seconds/10) - int(a.seconds/10) })
	}
	return all
}

// due reports whether one of n samples belongs to a round. It spreads the samples over all rounds.
func due(round, rounds, n int) bool { return (round+1)*n/rounds > round*n/rounds }

// samples returns how often to measure a failover.
func (p Plan) samples(s systems.System, f systems.Fault) int {
	switch {
	case s.Cannot[f] != "":
		return 0
	case s.IsQuick(f) && s.Own && (f == systems.Terminate || s.Name == systems.DefaultPgx || s.Name == systems.DefaultPq):
		return p.own
	case s.IsQuick(f) && s.Own:
		return p.medians
	case s.IsQuick(f):
		return p.quick
	case s.Never[f] != "":
		return min(p.slowest, 1)
	case p.Quick && expected(s, f) > 15, expected(s, f) > 40:
		return p.slowest
	}
	return p.slow
}

// quickPhase limits the random time before the fault of a quick failover, which depends on no long interval.
const quickPhase = 200 * time.Millisecond

// expected returns about how many seconds it takes to measure a failover.
func expected(s systems.System, f systems.Fault) float64 {
	phase := s.Phase.Seconds()
	switch {
	case s.IsQuick(f):
		return 0.6 + min(phase, quickPhase.Seconds())/2
	case s.Never[f] != "":
		return 31
	case f == systems.KillAgain:
		return 1 + 2*expected(s, systems.Kill)
	case f == systems.Resign:
		return 1 + phase
	case s.Replaced > 0:
		return 1 + phase + s.Replaced.Seconds()
	case f == systems.Freeze || f == systems.BlackHole:
		return 12
	}
	return 1 + 2*phase
}

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

// goals writes which of the project's goals this run meets.
func (p *page) goals() {
	p.say("\n## Goals")
	p.say("\n| goal | measured | |\n| --- | --- | --- |")
	for _, d := range []struct {
		name, raw, normal, wait, fastest string
		overlap, rest                    float64 // ms; ms of server CPU a second
	}{ // a leader over pgx listens for its loss, one over lib/pq looks for it; both validate their locks
		{"pgx", systems.RawPgx, systems.DefaultPgx, systems.WaitPgx, systems.FastestPgx, 5, 0.7},
		{"lib/pq", systems.RawPq, systems.DefaultPq, systems.WaitPq, systems.FastestPq, 300, 1.6},
	} {
		for _, f := range []systems.Fault{systems.Resign, systems.Kill, systems.Terminate} {
			s := p.r.Gap(d.normal, string(f))
			p.goal(fmt.Sprintf("default, %s, %s: at most 75 ms at the median and 150 ms at the worst", d.name, f),
				fmt.Sprintf("median of %d: %s, worst: %s", s.N, duration(s.Median), duration(s.Max)), s.N > 0, s.Median <= 75 && s.Max <= 150)
		}
		again := p.r.Gap(d.normal, string(systems.KillAgain))
		p.goal(fmt.Sprintf("default, %s, %s: at most 5 s", d.name, systems.KillAgain),
			fmt.Sprintf("median of %d: %s, worst: %s", again.N, duration(again.Median), duration(again.Max)), again.N > 0, again.Max <= 5000)
		p.deputyGoal(d.name, d.normal)
		for _, f := range []systems.Fault{systems.Resign, systems.Kill, systems.Terminate} {
			p.atMost(fmt.Sprintf("wait, %s, %s: median at most 3 × raw", d.name, f), p.r.Gap(d.wait, string(f)).Median, 3, p.r.Gap(d.raw, string(f)).Median, roundTrips)
		}
		p.leastGoal(d.name, d.raw, d.wait)
		p.ahead(fmt.Sprintf("wait, %s: ahead of %s after each fault", d.name, systems.EtcdFast), d.wait, systems.EtcdFast)
		p.ahead(fmt.Sprintf("wait, %s: ahead of %s after each fault", d.name, systems.Migrate), d.wait, systems.Migrate)
		p.ahead(fmt.Sprintf("fastest, %s: ahead of %s after each fault", d.name, systems.EtcdFast), d.fastest, systems.EtcdFast)
		p.overlapGoal("default, "+d.name, d.normal, d.overlap)
		p.overlapGoal("fastest, "+d.name, d.fastest, d.overlap)
		p.leaderGoal(d.name, d.normal, d.rest)
	}
	p.listeningGoal()
	p.growthGoals()
	p.shardGoals()
	p.costGoals()
}

// least returns the least time without a leader that a system with tokens can have: that of the raw lock, and a
// round trip with a WAL flush.
func (p *page) least(raw, driver string, f systems.Fault) float64 {
	return p.r.Gap(raw, string(f)).Median + p.r.Call(results.IdleFlush+driver)
}

// overlapGoal writes for how long two candidates lead.
func (p *page) overlapGoal(name, system string, most float64) {
	overlap := results.Summarize(p.r.Select(system, string(systems.Terminate), func(f results.Failover) *float64 { return f.Overlap }))
	p.goal(fmt.Sprintf("%s, %s: two leaders for at most %s at p99", name, systems.Terminate, duration(most)),
		fmt.Sprintf("p99 of %d: %s", overlap.N, duration(overlap.P99)), overlap.N > 0, overlap.P99 <= most)
}

// leastGoal compares a resignation with the least time. It also shows the ratio with the flush of a connection that is
// not idle, which no waiting deputy has.
func (p *page) leastGoal(driver, raw, wait string) {
	took, least := p.r.Gap(wait, string(systems.Resign)).Median, p.least(raw, driver, systems.Resign)
	measured := fmt.Sprintf("%s / %s = %.2f", duration(took), duration(least), took/least)
	if busy := p.r.Gap(raw, string(systems.Resign)).Median + p.r.Call(results.Flush+driver); !math.IsNaN(busy) {
		measured += fmt.Sprintf("; with the flush of a busy connection, which a waiting deputy does not have: %s / %s = %.2f", duration(took), duration(busy), took/busy)
	}
	p.goal(fmt.Sprintf("wait, %s, %s: median at most 1.6 × the least with a token", driver, systems.Resign), measured,
		!math.IsNaN(took+least), took <= 1.6*least)
}

// atMost writes a goal for the ratio of two times in milliseconds.
func (p *page) atMost(what string, ms, most, of float64, why string) {
	p.goal(what, fmt.Sprintf("%s / %s = %.2f", duration(ms), duration(of), ms/of), !math.IsNaN(ms+of), ms <= most*of, why)
}

// ahead writes whether the medians of a system are smaller than those of another, for all faults with samples of both.
func (p *page) ahead(what, system, other string) {
	var compared, behind []string
	for _, f := range systems.Faults {
		a, b := p.r.Gap(system, string(f)), p.r.Gap(other, string(f))
		if a.N == 0 || b.N == b.Missing { // nobody leads after b's fault, or it keeps leading
			continue
		}
		compared = append(compared, fmt.Sprintf("%s %s against %s%s", f, duration(a.Median), duration(b.Median), few(a.N, b.N)))
		if why := slower[f]; a.Median >= b.Median && !slices.Contains(behind, why) {
			behind = append(behind, why)
		}
	}
	p.goal(what, strings.Join(compared, "; "), len(compared) > 0, len(behind) == 0, behind...)
}

// few says how many samples there are if they are too few for a stable median.
func few(a, b int) string {
	if a >= 20 && b >= 20 {
		return ""
	}
	return fmt.Sprintf(" (n=%d and %d)", a, b)
}

// slower has, for the faults after which a system may need longer than another, the reason.
var slower = map[systems.Fault]string{
	systems.Resign: roundTrips,
	systems.KillAgain: "for a moment after each change nobody is deputy, and a leader that is killed then is found by the next attempt of another; " +
		"of golang-migrate every other candidate is in the queue; the samples are few",
	systems.Restart: "while the server is away a candidate makes at most four attempts a second, so that hundreds do not keep it from starting; " +
		"golang-migrate makes none, so the bench reconnects it 200 times a second",
	systems.Freeze:    silence,
	systems.BlackHole: silence,
}

const (
	roundTrips = "a hand-over takes two round trips, one that ends the wait and one for the token, with a WAL flush: *least with a token* has the limit"
	silence    = "a silent leader is replaced when its lease ends: 10 s here, 2 s there; *fastest* has a lease of 1 s"
)

// deputyGoal writes what the deputy costs: it is the follower of an election with two candidates.
func (p *page) deputyGoal(driver, system string) {
	p.restGoal("the deputy", driver, system, "following", 2.5,
		"it asks ten times a second, each time a backend that sleeps; twice the `WithDeputyInterval` costs half")
}

// leaderGoal writes what a leader costs.
func (p *page) leaderGoal(driver, system string, most float64) {
	p.restGoal("a leader at rest", driver, system, "leading", most)
}

func (p *page) restGoal(who, driver, system, role string, most float64, why ...string) {
	i := slices.IndexFunc(p.r.Rest, func(c results.Rest) bool { return c.System == system && c.Role == role })
	cost := math.NaN()
	if i >= 0 {
		cost = p.r.Rest[i].ServerCPU
	}
	p.goal(fmt.Sprintf("default, %s: %s takes at most %s ms of server CPU a second", driver, who, number(most)), number(cost)+" ms/s", i >= 0, cost <= most, why...)
}

// listeningGoal writes what it costs a statement of a leader to end the wait for a loss.
func (p *page) listeningGoal() {
	cost := p.r.Call(results.EndedWait) - p.r.Call(results.NoWait)
	p.goal("a statement ends the wait for a loss, pgx: at most 0.1 ms at the median", duration(max(cost, 0)), !math.IsNaN(cost), cost <= 0.1)
}

// killLimits are the ms, at the median, until all elections of a killed process have a leader.
var killLimits = map[int]float64{1000: 150, 10000: 400}

func (p *page) growthGoals() {
	for _, g := range p.r.Growth {
		limit, ok := killLimits[g.Elections]
		if g.System == systems.Session && ok {
			all := results.Summarize(g.All)
			p.goal(fmt.Sprintf("%d elections of a killed shared session: all have a leader within %s at the median", g.Elections, duration(limit)),
				fmt.Sprintf("median of %d: %s, worst: %s", all.N, duration(all.Median), duration(all.Max)), all.N > 0, all.Median <= limit)
		}
		if g.System == systems.DefaultPgx && g.Elections == 1 && g.Candidates != 3 {
			pinned := g.Total(func(c results.Rest) float64 { return c.Pinned })
			p.goal(fmt.Sprintf("default, %d candidates: two pinned sessions", g.Candidates), number(pinned), g.Error == "", math.Abs(pinned-2) < 0.1)
		}
	}
}

func (p *page) shardGoals() {
	for _, s := range p.r.Shards {
		if limit, ok := killLimits[s.Shards]; ok && s.Error == "" {
			kill := results.Summarize(s.Kill)
			p.goal(fmt.Sprintf("%d shards, %d members, kill -9: all have a leader within %s at the median", s.Shards, s.Members, duration(limit)),
				fmt.Sprintf("median of %d: %s, worst: %s", kill.N, duration(kill.Median), duration(kill.Max)), kill.N > 0, kill.Median <= limit)
		}
	}
}

func (p *page) costGoals() {
	wal, n := 0.0, 0
	for _, c := range p.r.Rest {
		if s, _ := systems.Find(c.System); s.Own {
			wal = max(wal, c.WAL)
			n++
		}
	}
	p.goal("zero WAL at rest", fmt.Sprintf("%s bytes/h, the maximum of %d candidates", number(wal), n), n > 0, wal == 0)
	for _, b := range p.r.InProcess {
		if b.Name == results.IsLeader {
			p.goal("IsLeader under 100 ns without allocation", fmt.Sprintf("%.1f ns, %d allocations", b.NsOp, b.AllocsOp),
				true, b.NsOp < 100 && b.AllocsOp == 0)
		}
	}
}

// goal writes one goal, and why if it is missed. Its result is known if the run has measured it.
func (p *page) goal(what, measured string, known, met bool, why ...string) {
	result := "met"
	if !met {
		result = strings.TrimSuffix("**missed**: "+strings.Join(slices.DeleteFunc(why, func(w string) bool { return w == "" }), "; "), ": ")
	}
	if !known {
		result, measured = "not measured", ""
	}
	p.row(what, measured, result)
}

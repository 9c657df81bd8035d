package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

// gaps writes the time without a leader.
func (p *page) gaps() {
	if len(p.r.Failovers) == 0 {
		return
	}
	p.say("\n## Time without a leader\n")
	p.say("From the fault to the first line of the next leader's work: the median, in parentheses its ratio to the raw lock on the same")
	p.say("driver (pgx for systems that use neither), p99, and the number of samples.")
	heads := []string{"system"}
	for _, f := range systems.Faults {
		heads = append(heads, string(f))
	}
	p.table(heads...)
	for _, s := range p.r.Systems {
		cells := []string{s.Name}
		for _, f := range systems.Faults {
			cells = append(cells, p.gap(s, string(f)))
		}
		p.row(cells...)
	}
	p.reasons()
	p.say("\n![Time without a leader](plots/gaps.svg)")
}

func (p *page) gap(s results.System, fault string) string {
	if s.Cannot[fault] != "" {
		return "n/a"
	}
	stats := p.r.Gap(s.Name, fault)
	switch {
	case stats.N == 0 && s.Never[fault] != "":
		return noSuccessor(s.Never[fault])
	case stats.N == 0:
		return "not run"
	case stats.Missing == stats.N && s.Never[fault] != "":
		return fmt.Sprintf("%s, n=%d", noSuccessor(s.Never[fault]), stats.N)
	case math.IsInf(stats.Median, 0):
		return fmt.Sprintf("> %.0f s, n=%d", p.cap(s.Name, fault), stats.N)
	}
	p99 := duration(stats.P99)
	if math.IsInf(stats.P99, 0) {
		p99 = fmt.Sprintf("> %.0f s", p.cap(s.Name, fault))
	}
	return fmt.Sprintf("**%s**%s, p99 %s, n=%d", duration(stats.Median), ratio(stats.Median, p.raw(s.Name, fault)), p99, stats.N)
}

// noSuccessor returns the cell of a fault after which no follower leads.
func noSuccessor(why string) string {
	if strings.HasPrefix(why, "leadership survives") {
		return "keeps leading"
	}
	return "never"
}

// raw returns the raw lock's median on the driver of a system.
func (p *page) raw(system, fault string) float64 {
	name := systems.RawPgx
	if strings.Contains(system, "lib/pq") || system == "golang-migrate" {
		name = systems.RawPq
	}
	return p.r.Gap(name, fault).Median
}

// cap returns how many seconds each sample waited for a leader.
func (p *page) cap(system, fault string) float64 {
	for _, f := range p.r.Failovers {
		if f.System == system && f.Fault == fault {
			return f.Cap
		}
	}
	return 0
}

// reasons writes why some cells have no time.
func (p *page) reasons() {
	p.say("")
	said := map[string]bool{}
	for _, s := range p.r.Systems {
		for _, f := range systems.Faults {
			for cell, why := range map[string]string{"n/a": s.Cannot[string(f)], noSuccessor(s.Never[string(f)]): s.Never[string(f)]} {
				line := fmt.Sprintf("- %s, *%s*: %s.", f, cell, why)
				if why != "" && !said[line] {
					said[line] = true
					p.say("%s", line)
				}
			}
		}
	}
}

// overlapFaults are the faults that the old leader's process survives.
var overlapFaults = []systems.Fault{systems.Terminate, systems.Freeze, systems.BlackHole, systems.Restart}

// overlaps writes how long the old leader regards itself as the leader.
func (p *page) overlaps() {
	if len(p.r.Failovers) == 0 {
		return
	}
	p.say("\n## Overlap\n")
	p.say("How long the old leader still regards itself as the leader. *Stale* starts at the fault: from then on the server may grant the lock to")
	p.say("another. *Two leaders* starts with the next leader's work. A frozen process continues once another leads. Median, p99 and number of samples.")
	heads := []string{"system"}
	for _, f := range overlapFaults {
		heads = append(heads, string(f)+": stale", string(f)+": two leaders")
	}
	p.table(heads...)
	for _, s := range p.r.Systems {
		cells := []string{s.Name}
		for _, f := range overlapFaults {
			stale := func(f results.Failover) *float64 { return f.Stale }
			two := func(f results.Failover) *float64 { return f.Overlap }
			cells = append(cells, p.overlap(s, string(f), stale), p.overlap(s, string(f), two))
		}
		p.row(cells...)
	}
	for _, s := range p.r.Systems {
		if s.Blind != "" {
			p.say("\n*%s* does not notice a loss: %s.", s.Name, s.Blind)
		}
	}
}

// overlap returns a cell of overlaps.
func (p *page) overlap(s results.System, fault string, value func(results.Failover) *float64) string {
	taken := results.Summarize(p.r.Select(s.Name, fault, func(f results.Failover) *float64 { return f.Gap }))
	switch {
	case s.Cannot[fault] != "":
		return "n/a"
	case s.Never[fault] != "" && taken.Missing == taken.N:
		return noSuccessor(s.Never[fault])
	case taken.N == 0:
		return "not run"
	case s.Blind != "":
		return "unlimited"
	}
	stats := results.Summarize(p.r.Select(s.Name, fault, value))
	if math.IsInf(stats.Median, 0) {
		return fmt.Sprintf("> 20 s, n=%d", stats.N)
	}
	p99 := duration(stats.P99)
	if math.IsInf(stats.P99, 0) {
		p99 = "> 20 s"
	}
	return fmt.Sprintf("%s, p99 %s, n=%d", duration(stats.Median), p99, stats.N)
}

// goals writes which of the project's goals this run meets.
func (p *page) goals() {
	p.say("\n## Goals")
	p.say("\n| goal | measured | |\n| --- | --- | --- |")
	for _, d := range []struct{ name, wait, normal, raw string }{
		{"pgx", systems.WaitPgx, systems.DefaultPgx, systems.RawPgx},
		{"lib/pq", systems.WaitPq, systems.DefaultPq, systems.RawPq},
	} {
		for _, f := range []systems.Fault{systems.Kill, systems.Resign} {
			wait, raw := p.r.Gap(d.wait, string(f)), p.r.Gap(d.raw, string(f))
			p.goal(fmt.Sprintf("wait, %s, %s: median at most 2 × raw", d.name, f),
				fmt.Sprintf("%s against %s%s", duration(wait.Median), duration(raw.Median), ratio(wait.Median, raw.Median)),
				wait.N > 0 && raw.N > 0, wait.Median <= 2*raw.Median)
		}
		for _, f := range []systems.Fault{systems.Kill, systems.Resign} {
			normal := p.r.Gap(d.normal, string(f))
			p.goal(fmt.Sprintf("default, %s, %s: at most the retry interval (1 s) + 10 %%", d.name, f),
				fmt.Sprintf("worst of %d: %s", normal.N, duration(normal.Max)), normal.N > 0, normal.Max <= 1100)
		}
		stale := results.Summarize(p.r.Select(d.wait, string(systems.Terminate), func(f results.Failover) *float64 { return f.Stale }))
		p.goal(fmt.Sprintf("wait, %s: overlap after a terminated backend under 20 ms at p99 (stale, from the fault)", d.name),
			fmt.Sprintf("p99 of %d: %s, median %s", stale.N, duration(stale.P99), duration(stale.Median)), stale.N > 0, stale.P99 < 20)
	}
	p.costGoals()
}

func (p *page) costGoals() {
	for _, g := range p.r.Growth {
		if g.System == systems.Session && g.Elections == 1000 {
			p.goal("1,000 elections on one session: at most 3 statements/s following, 2 leading",
				fmt.Sprintf("%s following, %s leading", number(g.Follower.Statements), number(g.Leader.Statements)),
				g.Error == "", g.Follower.Statements <= 3 && g.Leader.Statements <= 2)
		}
	}
	wal, n := 0.0, 0
	for _, c := range p.r.Rest {
		switch c.System {
		case systems.DefaultPgx, systems.DefaultPq, systems.WaitPgx, systems.WaitPq, systems.FastestPgx, systems.Session:
			wal = max(wal, c.WAL)
			n++
		}
	}
	p.goal("zero WAL at rest", fmt.Sprintf("%s bytes/h, the maximum of %d candidates", number(wal), n), n > 0, wal == 0)
	for _, b := range p.r.InProcess {
		if b.Name == "IsLeader, leading" {
			p.goal("IsLeader under 100 ns without allocation", fmt.Sprintf("%.1f ns, %d allocations", b.NsOp, b.AllocsOp),
				true, b.NsOp < 100 && b.AllocsOp == 0)
		}
	}
}

// goal writes one goal. The result is known if the run has measured it.
func (p *page) goal(what, measured string, known, met bool) {
	result := map[bool]string{true: "met", false: "**missed**"}[met]
	if !known {
		result, measured = "not measured", ""
	}
	p.row(what, measured, result)
}

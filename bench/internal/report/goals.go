package report

import (
	"fmt"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

// goals says which of the project's goals this run meets.
func (p *page) goals() {
	p.say("\n## Goals")
	p.say("\n| goal | measured | |\n| --- | --- | --- |")
	for _, d := range []struct{ name, fast, normal, raw string }{
		{"pgx", systems.FastPgx, systems.DefaultPgx, systems.RawPgx},
		{"lib/pq", systems.FastPq, systems.DefaultPq, systems.RawPq},
	} {
		for _, f := range []systems.Fault{systems.Kill, systems.Resign} {
			fast, raw := p.r.Gap(d.fast, string(f)), p.r.Gap(d.raw, string(f))
			p.goal(fmt.Sprintf("fast, %s, %s: median at most 2 × raw", d.name, f),
				fmt.Sprintf("%s against %s%s", duration(fast.Median), duration(raw.Median), ratio(fast.Median, raw.Median)),
				fast.N > 0 && raw.N > 0, fast.Median <= 2*raw.Median)
		}
		for _, f := range []systems.Fault{systems.Kill, systems.Resign} {
			normal := p.r.Gap(d.normal, string(f))
			p.goal(fmt.Sprintf("default, %s, %s: at most the retry interval (1 s) + 10 %%", d.name, f),
				fmt.Sprintf("worst of %d: %s", normal.N, duration(normal.Max)), normal.N > 0, normal.Max <= 1100)
		}
		stale := results.Summarize(p.r.Select(d.fast, string(systems.Terminate), func(f results.Failover) *float64 { return f.Stale }))
		p.goal(fmt.Sprintf("fast, %s: overlap after a terminated backend under 20 ms at p99 (stale belief, from the fault)", d.name),
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
		case systems.DefaultPgx, systems.DefaultPq, systems.FastPgx, systems.FastPq, systems.FastestPgx, systems.Session:
			wal = max(wal, c.WAL)
			n++
		}
	}
	p.goal("zero WAL at rest", fmt.Sprintf("%s bytes/h, the most of %d candidates", number(wal), n), n > 0, wal == 0)
	for _, b := range p.r.InProcess {
		if b.Name == "IsLeader, leading" {
			p.goal("IsLeader under 100 ns without allocation", fmt.Sprintf("%.1f ns, %d allocations", b.NsOp, b.AllocsOp),
				true, b.NsOp < 100 && b.AllocsOp == 0)
		}
	}
}

func (p *page) goal(what, measured string, known, met bool) {
	verdict := map[bool]string{true: "pass", false: "**missed**"}[met]
	if !known {
		verdict, measured = "not measured", ""
	}
	p.row(what, measured, verdict)
}

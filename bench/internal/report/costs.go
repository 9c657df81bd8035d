package report

import (
	"fmt"

	"github.com/pgelector/pgelector/bench/internal/results"
)

// rest writes the cost while no leader changes.
func (p *page) rest() {
	if len(p.r.Rest) == 0 {
		return
	}
	p.say("\n## Cost at rest\n")
	p.say("One candidate, one election, over %.0f seconds. CPU time is in milliseconds per second. Leader and follower cause the WAL together.",
		p.r.Rest[0].Seconds)
	p.table("candidate", "statements/s", "server CPU", "own CPU", "connections", "WAL bytes/h", "own memory MiB")
	for _, c := range p.r.Rest {
		wal := number(c.WAL)
		if c.Statements < 0 {
			wal = "–"
		}
		p.row(c.System+", "+c.Role, number(c.Statements), number(c.ServerCPU), number(c.ClientCPU), number(c.Connections), wal, number(c.RSS))
	}
	p.say("\nMemory is that of the whole process, which links every system: compare it within the column only.")
	p.say("The river client also fetches jobs, which is not a cost of its election.")
}

// growth writes the costs of more elections and of more candidates.
func (p *page) growth() {
	var elections, candidates []results.Growth
	for _, g := range p.r.Growth {
		if g.Candidates == 3 {
			elections = append(elections, g)
		} else {
			candidates = append(candidates, g)
		}
	}
	if len(elections) > 0 {
		p.say("\n## Growth: elections\n")
		p.say("Three processes are each a candidate of every election. One leads them all, until `kill -9`. Figures are per process.")
		p.say("The other systems have one lock per connection (raw, migrate, goose) or one election per schema (river).")
		p.grown(elections, func(g results.Growth) int { return g.Elections }, "elections")
		p.say("\n![Statements by elections](plots/elections-statements.svg)\n![Failover of all by elections](plots/elections-failover.svg)")
	}
	if len(candidates) > 0 {
		p.say("\n## Growth: candidates\n")
		p.say("One election. Up to 20 candidates have a process each, 200 have 21 processes. Figures are per process, except the last three columns.")
		p.grown(candidates, func(g results.Growth) int { return g.Candidates }, "candidates")
		p.say("\n![Failover by candidates](plots/candidates-failover.svg)")
	}
}

// grown writes one table of growth.
func (p *page) grown(all []results.Growth, size func(results.Growth) int, what string) {
	p.table("system", what, "statements/s leading", "following", "connections leading", "following", "server CPU leading",
		"following", "own CPU leading", "following", "own MiB leading", "following", "backends MiB", "first after kill", "all after kill")
	for _, g := range all {
		if g.Error != "" {
			p.row(g.System, fmt.Sprint(size(g)), "not measured: "+g.Error, "", "", "", "", "", "", "", "", "", "", "", "")
			continue
		}
		l, f := g.Leader, g.Follower
		p.row(g.System, fmt.Sprint(size(g)), number(l.Statements), number(f.Statements), number(l.Connections), number(f.Connections),
			number(l.ServerCPU), number(f.ServerCPU), number(l.ClientCPU), number(f.ClientCPU), number(l.RSS), number(f.RSS),
			number(g.ServerRSS), optional(g.FirstMs), optional(g.AllMs))
	}
}

// inProcess writes the results of testing.Benchmark.
func (p *page) inProcess() {
	if len(p.r.InProcess) == 0 {
		return
	}
	p.say("\n## In process\n")
	p.say("Measured with testing.Benchmark.")
	p.table("call", "time", "allocations", "bytes", "n")
	for _, b := range p.r.InProcess {
		t := fmt.Sprintf("%.1f ns", b.NsOp)
		if b.NsOp > 10_000 {
			t = fmt.Sprintf("%.3g µs", b.NsOp/1000)
		}
		p.row(b.Name, t, fmt.Sprint(b.AllocsOp), fmt.Sprint(b.BytesOp), fmt.Sprint(b.Repetitions))
	}
}

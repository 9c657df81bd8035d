package report

import (
	"fmt"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

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

// growth writes the costs of more elections, and of more candidates.
func (p *page) growth() {
	var elections, fleets []results.Growth
	for _, g := range p.r.Growth {
		if g.Candidates == 3 {
			elections = append(elections, g)
		} else {
			fleets = append(fleets, g)
		}
	}
	if len(elections) > 0 {
		p.elections(elections)
	}
	if len(fleets) > 0 {
		p.fleets(fleets)
	}
}

func (p *page) elections(all []results.Growth) {
	p.say("\n## Growth: elections\n")
	p.say("Three processes are each a candidate of every election. One leads them all, until `kill -9`. Costs are per process. The last columns")
	p.say("are the times until the first election, and all, have a leader again: the median, the worst, and the number of kills.")
	p.say("The other systems have one lock per connection (raw, migrate, goose) or one election per schema (river).")
	p.table("system", "elections", "statements/s leading", "following", "connections leading", "following", "server CPU leading",
		"following", "own CPU leading", "following", "own MiB leading", "following", "backends MiB", "first after kill", "all after kill")
	for _, g := range all {
		if p.unmeasured(g, g.Elections, 13) {
			continue
		}
		l, f := g.Leader, g.Follower
		p.row(g.System, fmt.Sprint(g.Elections), number(l.Statements), number(f.Statements), number(l.Connections), number(f.Connections),
			number(l.ServerCPU), number(f.ServerCPU), number(l.ClientCPU), number(f.ClientCPU), number(l.RSS), number(f.RSS),
			number(g.ServerRSS), kills(g.First), kills(g.All))
	}
	p.say("\n![Failover of all by elections](plots/elections-failover.svg)")
}

func (p *page) fleets(all []results.Growth) {
	p.say("\n## Growth: candidates\n")
	p.say("The cost of one election for all candidates together. Up to 20 candidates have a process each; 200 have 21 processes. *Pinned* are")
	p.say("the sessions in the server that candidates do not return to their pools; the other connections are idle in these pools. CPU time is")
	p.say("in milliseconds per second: of the backends, and of the candidates' processes. The last column is one sample.")
	p.table("system", "candidates", "sessions pinned", "connections", "statements/s", "server CPU", "own CPU", "backends MiB", "after kill -9")
	for _, g := range all {
		if p.unmeasured(g, g.Candidates, 7) {
			continue
		}
		total := func(cost func(results.Rest) float64) string { return number(g.Total(cost)) }
		p.row(g.System, fmt.Sprint(g.Candidates), total(pinned), total(func(c results.Rest) float64 { return c.Connections }),
			total(statements), total(serverCPU), total(func(c results.Rest) float64 { return c.ClientCPU }), number(g.ServerRSS), kills(g.All))
	}
	p.say("\n![Pinned sessions by candidates](plots/fleet-sessions.svg)\n![Server CPU by candidates](plots/fleet-cpu.svg)")
}

func pinned(c results.Rest) float64     { return c.Pinned }
func statements(c results.Rest) float64 { return c.Statements }
func serverCPU(c results.Rest) float64  { return c.ServerCPU }

// unmeasured writes the row of a size that could not be measured.
func (p *page) unmeasured(g results.Growth, size, columns int) bool {
	if g.Error == "" {
		return false
	}
	p.row(append([]string{g.System, fmt.Sprint(size), "not measured: " + g.Error}, make([]string, columns-1)...)...)
	return true
}

// kills returns a cell with the times after each kill of a leader.
func kills(samples []*float64) string {
	s := results.Summarize(samples)
	if s.N == 1 {
		return duration(s.Median)
	}
	return duration(s.Median) + ", " + spread(s, "never")
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
		allocs, bytes := fmt.Sprint(b.AllocsOp), fmt.Sprint(b.BytesOp)
		if b.AllocsOp < 0 {
			allocs, bytes = "–", "–"
		}
		p.row(b.Name, t, allocs, bytes, fmt.Sprint(b.Repetitions))
	}
}

// shards writes the times and costs of groups of shards.
func (p *page) shards() {
	if len(p.r.Shards) == 0 {
		return
	}
	p.say("\n## Groups of shards\n")
	p.say("Members of a group (package shard) have a process each. The times last until every member leads its share and no shard is left")
	p.say("over: after all have started together, one more joins, one leaves in order, one is killed: the median and the worst of some")
	p.say("repetitions. Costs are per member while nothing moves; CPU time is in milliseconds per second. In the rolling restart each member leaves and another one joins; *moves* is how")
	p.say("often a shard changes hands in one restart: the mean, and the most of any shard.")
	p.table("shards", "members", "start", "join", "leave", "kill -9", "statements/s", "server CPU", "own CPU", "restarts", "moves", "at most")
	for _, s := range p.r.Shards {
		if s.Error != "" {
			p.row(fmt.Sprint(s.Shards), fmt.Sprint(s.Members), "not measured: "+s.Error, "", "", "", "", "", "", "", "", "")
			continue
		}
		p.row(fmt.Sprint(s.Shards), fmt.Sprint(s.Members), duration(*s.Start), repeated(s.Join), repeated(s.Leave), repeated(s.Kill),
			number(s.Statements), number(s.ServerCPU), number(s.ClientCPU), fmt.Sprint(s.Restarts), fmt.Sprintf("%.2f", s.Moves), fmt.Sprint(s.MostMoves))
	}
	p.say("\n![Time until the shards are even](plots/shards.svg)")
}

func median(values []*float64) float64 { return results.Summarize(values).Median }

func repeated(values []*float64) string {
	all := results.Summarize(values)
	return duration(all.Median) + ", worst " + duration(all.Max)
}

// shardsPlot draws the times until the shards are even.
func shardsPlot(dir string, all []results.Shards) error {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = "Time until all shards are led evenly", "milliseconds"
	p.NominalX("all start", "one joins", "one leaves", "kill -9")
	p.Legend.Top = true
	width := vg.Points(24)
	drawn := 0
	for _, s := range all {
		if s.Error != "" {
			continue
		}
		bars, err := plotter.NewBarChart(plotter.Values{*s.Start, median(s.Join), median(s.Leave), median(s.Kill)}, width)
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = palette[drawn%len(palette)], 0
		bars.Offset = width * (vg.Length(drawn) - vg.Length(len(all)-1)/2)
		p.Add(bars)
		p.Legend.Add(fmt.Sprintf("%d shards, %d members", s.Shards, s.Members), bars)
		drawn++
	}
	if drawn == 0 {
		return nil
	}
	p.Y.Max *= 1.3 // space for the legend
	return p.Save(8*vg.Inch, 4.5*vg.Inch, filepath.Join(dir, "shards.svg"))
}

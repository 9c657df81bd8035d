package report

import (
	"fmt"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/pgelector/pgelector/bench/internal/results"
)

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

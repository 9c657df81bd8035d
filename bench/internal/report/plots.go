package report

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

// palette and shapes distinguish faults, or systems.
var palette = []color.Color{
	color.RGBA{R: 0x1b, G: 0x7f, B: 0x5c, A: 0xff}, color.RGBA{R: 0xc4, G: 0x4e, B: 0x1a, A: 0xff},
	color.RGBA{R: 0x5b, G: 0x5f, B: 0xb0, A: 0xff}, color.RGBA{R: 0xc2, G: 0x2d, B: 0x7a, A: 0xff},
	color.RGBA{R: 0x5d, G: 0x8f, B: 0x1c, A: 0xff}, color.RGBA{R: 0xb3, G: 0x87, B: 0x0c, A: 0xff},
	color.RGBA{R: 0x4a, G: 0x4a, B: 0x4a, A: 0xff},
}

var shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.TriangleGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.BoxGlyph{}, draw.RingGlyph{}, draw.CrossGlyph{}}

// plots removes old plots, and draws those for which there are results.
func plots(dir string, r *results.Results) error {
	old, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	if len(r.Failovers) > 0 {
		if err := gapPlot(filepath.Join(dir, "gaps.svg"), r); err != nil {
			return err
		}
	}
	elections := func(g results.Growth) (float64, bool) { return float64(g.Elections), g.Candidates == 3 }
	candidates := func(g results.Growth) (float64, bool) { return float64(g.Candidates), g.Candidates != 3 }
	for _, c := range []curves{
		{"elections-failover.svg", "From kill -9 until all elections have a leader again, median", "elections", "milliseconds", elections,
			func(g results.Growth) float64 { return results.Summarize(g.All).Median }},
		{"fleet-sessions.svg", "Sessions that one election pins in the server", "candidates", "sessions", candidates,
			func(g results.Growth) float64 { return g.Total(pinned) }},
		{"fleet-cpu.svg", "Server CPU time of one election", "candidates", "milliseconds per second", candidates,
			func(g results.Growth) float64 { return g.Total(serverCPU) }},
	} {
		if err := c.draw(dir, r.Growth); err != nil {
			return err
		}
	}
	return shardsPlot(dir, r.Shards)
}

// gapPlot draws a row for each system, with a dot for each sample of each fault.
func gapPlot(file string, r *results.Results) error {
	p := plot.New()
	p.Title.Text = "Time without a leader: each sample, and the raw lock's median after kill -9 (dashed)"
	p.X.Label.Text = "milliseconds, logarithmic"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Add(plotter.NewGrid())
	names := make([]string, len(r.Systems))
	for i, s := range r.Systems {
		names[len(names)-1-i] = s.Name
	}
	p.NominalY(names...)
	p.Legend.Top = true
	for k, fault := range systems.Faults {
		var dots plotter.XYs
		for i, name := range names {
			for j, ms := range r.Select(name, string(fault), func(f results.Failover) *float64 { return f.Gap }) {
				if ms != nil {
					y := float64(i) + 0.36 - 0.12*float64(k) + 0.04*float64(j%3-1)
					dots = append(dots, plotter.XY{X: max(*ms, 0.1), Y: y})
				}
			}
		}
		if len(dots) == 0 {
			continue
		}
		scatter, err := plotter.NewScatter(dots)
		if err != nil {
			return err
		}
		scatter.GlyphStyle = draw.GlyphStyle{Color: palette[k], Radius: vg.Points(1.8), Shape: shapes[k]}
		p.Add(scatter)
		p.Legend.Add(string(fault), scatter)
	}
	if raw := r.Gap(systems.RawPgx, string(systems.Kill)); raw.N > raw.Missing {
		line, err := plotter.NewLine(plotter.XYs{{X: raw.Median, Y: -0.5}, {X: raw.Median, Y: float64(len(names)) - 0.5}})
		if err != nil {
			return err
		}
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		p.Add(line)
	}
	p.X.Max = max(p.X.Max*6, 1000) // space for the legend
	return p.Save(11*vg.Inch, vg.Length(1.5+0.45*float64(len(names)))*vg.Inch, file)
}

// curves is one plot of growth, with a line for each system.
type curves struct {
	file, title, x, y string
	size              func(results.Growth) (float64, bool)
	value             func(results.Growth) float64
}

func (c curves) draw(dir string, all []results.Growth) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.Left = true, true
	lines := map[string]plotter.XYs{}
	var order []string
	for _, g := range all {
		x, wanted := c.size(g)
		y := c.value(g)
		if !wanted || g.Error != "" || !(y > 0) || math.IsInf(y, 0) {
			continue
		}
		if lines[g.System] == nil {
			order = append(order, g.System)
		}
		lines[g.System] = append(lines[g.System], plotter.XY{X: x, Y: y})
	}
	if len(order) == 0 {
		return nil
	}
	for i, name := range order {
		line, dots, err := plotter.NewLinePoints(lines[name])
		if err != nil {
			return fmt.Errorf("plot %s: %w", c.file, err)
		}
		line.Color, dots.Color, dots.Shape = palette[i%len(palette)], palette[i%len(palette)], shapes[i%len(shapes)]
		p.Add(line, dots)
		p.Legend.Add(name, line, dots)
	}
	p.Y.Max *= 8 // space for the legend
	p.Y.Min = min(p.Y.Min, p.Y.Max/100)
	return p.Save(8*vg.Inch, 4.5*vg.Inch, filepath.Join(dir, c.file))
}

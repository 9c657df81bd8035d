package report

import (
	"fmt"
	"slices"

	"github.com/pgelector/pgelector/bench/internal/results"
)

// mistakes writes how often a leader loses its term without a fault of server or network.
func (p *page) mistakes() {
	if len(p.r.Mistakes) == 0 {
		return
	}
	p.say("\n## Terms lost by mistake\n")
	p.say("Neither server nor network has a fault, and nobody asks a leader to resign; only its process, or the servers' disk, is under")
	p.say("strain. %d leaders, each in a process of its own, without followers. Where no term was lost, the rate is below 3 in the hours", p.r.Mistakes[0].Leaders)
	p.say("that were measured, with a confidence of 95 %%.")
	heads, rows, commits := []string{"system"}, map[string]map[string]string{}, map[string]string{}
	for _, m := range p.r.Mistakes {
		if rows[m.System] == nil {
			rows[m.System] = map[string]string{}
		}
		rows[m.System][m.Strain], commits[m.System] = rate(m), p.r.MeasuredAt(m.Row())
		if !slices.Contains(heads, m.Strain) {
			heads = append(heads, m.Strain)
		}
	}
	p.table(append(heads, "commit")...)
	for _, s := range p.r.Systems {
		if rows[s.Name] == nil {
			continue
		}
		cells := []string{s.Name}
		for _, strain := range heads[1:] {
			cells = append(cells, rows[s.Name][strain])
		}
		p.row(append(cells, commits[s.Name])...)
	}
}

// rate says how many terms were lost in how many hours of leadership.
func rate(m results.Mistakes) string {
	switch {
	case m.Error != "":
		return "failed: " + m.Error
	case m.Lost == 0:
		return fmt.Sprintf("0 in %.1f h: fewer than %s an hour", m.Hours, number(3/m.Hours))
	}
	return fmt.Sprintf("**%d** in %.1f h: %s an hour", m.Lost, m.Hours, number(float64(m.Lost)/m.Hours))
}

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
	p.say("driver (pgx for systems that use neither), p99 from 100 samples on, the worst, and the number of samples.")
	p.say("*Least with a token* is the raw lock's, plus a round trip with a WAL flush on an idle connection: the limit of every row of pgelector.")
	p.say("*%s* kills the next leader %v s after the first `kill -9`, or as soon as there is one; it has a second follower.", systems.KillAgain, results.SecondKill.Seconds())
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
		if driver, raw := strings.CutPrefix(s.Name, "raw lock, "); raw {
			p.limits(s.Name, driver)
		}
	}
	p.reasons()
	p.say("\n![Time without a leader](plots/gaps.svg)")
}

// limits writes the row of what no system with tokens can be faster than.
func (p *page) limits(raw, driver string) {
	cells := []string{"least with a token, " + driver}
	for _, f := range systems.Faults {
		least, cell := p.least(raw, driver, f), "–"
		if !math.IsNaN(least) && !math.IsInf(least, 0) && p.r.Gap(raw, string(f)).N > 0 {
			cell = "**" + duration(least) + "**" + ratio(least, p.raw(raw, string(f)))
		}
		cells = append(cells, cell)
	}
	p.row(cells...)
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
	return fmt.Sprintf("**%s**%s, %s", duration(stats.Median), ratio(stats.Median, p.raw(s.Name, fault)),
		spread(stats, fmt.Sprintf("> %.0f s", p.cap(s.Name, fault))))
}

// spread returns the other statistics of a cell. With fewer than 100 samples, p99 is the worst one.
func spread(stats results.Stats, missing string) string {
	text := ""
	for _, c := range []struct {
		name  string
		ms    float64
		shown bool
	}{{"p99", stats.P99, stats.N >= 100}, {"worst", stats.Max, true}} {
		value := duration(c.ms)
		if math.IsInf(c.ms, 0) {
			value = missing
		}
		if c.shown {
			text += c.name + " " + value + ", "
		}
	}
	return fmt.Sprintf("%sn=%d", text, stats.N)
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
	if strings.Contains(system, "lib/pq") || system == systems.Migrate {
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
	p.say("another. *Two leaders* starts with the next leader's work. A frozen process continues once another leads. The old leader whose backends were terminated gets no new connection, so that another process leads next. Median, p99 from 100 samples on, worst, and number of samples.")
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
	return duration(stats.Median) + ", " + spread(stats, "> 20 s")
}

package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

// gaps is the time without a leader.
func (p *page) gaps() {
	if len(p.r.Failovers) == 0 {
		return
	}
	p.say("\n## Time without a leader\n")
	p.say("From the fault to the first line of the next leader's work: median, p99, and in parentheses the median's ratio to the raw lock on the")
	p.say("same driver (pgx for those that use neither). The last figure is the number of samples.")
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
		return kept(s.Never[fault])
	case stats.N == 0:
		return "not run"
	case stats.Missing == stats.N && s.Never[fault] != "":
		return fmt.Sprintf("%s, n=%d", kept(s.Never[fault]), stats.N)
	case math.IsInf(stats.Median, 0):
		return fmt.Sprintf("> %.0f s, n=%d", p.cap(s.Name, fault), stats.N)
	}
	p99 := duration(stats.P99)
	if math.IsInf(stats.P99, 0) {
		p99 = fmt.Sprintf("> %.0f s", p.cap(s.Name, fault))
	}
	return fmt.Sprintf("**%s**%s, p99 %s, n=%d", duration(stats.Median), ratio(stats.Median, p.raw(s.Name, fault)), p99, stats.N)
}

// kept is the cell where nobody takes over.
func kept(why string) string {
	if strings.HasPrefix(why, "leadership survives") {
		return "keeps leading"
	}
	return "never"
}

// raw is the median of the raw lock, on the driver of that system.
func (p *page) raw(system, fault string) float64 {
	name := systems.RawPgx
	if strings.Contains(system, "lib/pq") || system == "golang-migrate" {
		name = systems.RawPq
	}
	return p.r.Gap(name, fault).Median
}

// cap is how long was waited, in seconds.
func (p *page) cap(system, fault string) float64 {
	for _, f := range p.r.Failovers {
		if f.System == system && f.Fault == fault {
			return f.Cap
		}
	}
	return 0
}

// reasons says why some cells have no time.
func (p *page) reasons() {
	p.say("")
	said := map[string]bool{}
	for _, s := range p.r.Systems {
		for _, f := range systems.Faults {
			for cell, why := range map[string]string{"n/a": s.Cannot[string(f)], kept(s.Never[string(f)]): s.Never[string(f)]} {
				line := fmt.Sprintf("- %s, *%s*: %s.", f, cell, why)
				if why != "" && !said[line] {
					said[line] = true
					p.say("%s", line)
				}
			}
		}
	}
}

// overlapFaults are those that the old leader survives.
var overlapFaults = []systems.Fault{systems.Terminate, systems.Freeze, systems.BlackHole, systems.Restart}

// overlaps is how long the old leader goes on believing.
func (p *page) overlaps() {
	if len(p.r.Failovers) == 0 {
		return
	}
	p.say("\n## Overlap\n")
	p.say("How long the old leader goes on believing that it leads. *Stale* counts from the fault; for a terminated backend and a restart that")
	p.say("is the moment from which the server may give the lock away. *Two leaders* counts from the start of the next leader's work. A frozen process is")
	p.say("thawed once there is a next leader, and believes nothing while it is frozen. Median, p99 and number of samples.")
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
			cells = append(cells, p.belief(s, string(f), stale), p.belief(s, string(f), two))
		}
		p.row(cells...)
	}
	for _, s := range p.r.Systems {
		if s.Blind != "" {
			p.say("\n*%s* has no end of belief: %s.", s.Name, s.Blind)
		}
	}
}

func (p *page) belief(s results.System, fault string, value func(results.Failover) *float64) string {
	taken := results.Summarize(p.r.Select(s.Name, fault, func(f results.Failover) *float64 { return f.Gap }))
	switch {
	case s.Cannot[fault] != "":
		return "n/a"
	case s.Never[fault] != "" && taken.Missing == taken.N:
		return kept(s.Never[fault])
	case taken.N == 0:
		return "not run"
	case s.Blind != "":
		return "without end"
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

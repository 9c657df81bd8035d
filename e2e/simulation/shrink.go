package simulation

import (
	"slices"

	"github.com/pgelector/pgelector/elector"
)

// shrink makes a plan that fails smaller, as long as it still does: fewer faults,
// fewer candidates, fewer things that they do.
func shrink(p Plan, fails func(Plan) bool) Plan {
	for smaller := true; smaller; {
		smaller = false
		for _, q := range simpler(p) {
			if fails(q) {
				p, smaller = q, true
				break
			}
		}
	}
	return p
}

// simpler are all plans that are one step simpler.
func simpler(p Plan) (all []Plan) {
	for i := range p.Faults {
		q := p
		q.Faults = slices.Delete(slices.Clone(p.Faults), i, i+1)
		all = append(all, q)
	}
	for i := range p.Candidates {
		if q, ok := p.without(i); ok {
			all = append(all, q)
		}
	}
	change := func(does bool, to func(*Plan)) {
		if !does {
			return
		}
		q := p
		q.Candidates = slices.Clone(p.Candidates)
		to(&q)
		all = append(all, q)
	}
	for i, c := range p.Candidates {
		change(c.Writes, func(q *Plan) { q.Candidates[i].Writes = false })
		change(c.Health, func(q *Plan) { q.Candidates[i].Health = false })
		change(c.Wakes, func(q *Plan) { q.Candidates[i].Wakes = false })
		change(c.Wills, func(q *Plan) { q.Candidates[i].Wills = false })
		change(c.Watch, func(q *Plan) { q.Candidates[i].Watch = false })
		change(c.Standby != elector.Poll, func(q *Plan) { q.Candidates[i].Standby = elector.Poll })
		change(c.Driver != 0, func(q *Plan) { q.Candidates[i].Driver = 0 })
		change(c.Kind != runs, func(q *Plan) { q.Candidates[i].Kind = runs })
	}
	change(p.Latency > 0, func(q *Plan) { q.Latency = 0 })
	change(p.ClockRate != 1, func(q *Plan) { q.ClockRate = 1 })
	return all
}

// without leaves out a candidate. Faults of it are left out with it.
func (p Plan) without(i int) (Plan, bool) {
	if len(p.Candidates) == 1 {
		return p, false
	}
	p.Candidates = slices.Delete(slices.Clone(p.Candidates), i, i+1)
	var faults []Fault
	for _, f := range p.Faults {
		switch {
		case f.Of == i:
			continue
		case f.Of > i:
			f.Of--
		}
		faults = append(faults, f)
	}
	p.Faults = faults
	return p, true
}

package model

import (
	"fmt"
	"strconv"
	"strings"
)

// Replay takes the steps of a trace that is kept as text, and evaluates them: each must be permitted, and the last state
// must break the property that the trace names. Otherwise Replay says what is wrong.
func (p *Part) Replay(trace []string) error {
	s := p.Example()
	if !s.Holds(p.Assume) || !s.Holds(p.Init) {
		return fmt.Errorf("the example of %s %s is no first state", p.Name, p.Weakened)
	}
	for i, line := range trace {
		if property, last := strings.CutPrefix(line, "breaks: "); last {
			for _, c := range p.Properties {
				if c.Name == property && !s.Holds(c.Expr) && i == len(trace)-1 {
					return nil
				}
			}
			return fmt.Errorf("line %d: the state does not break %q", i+1, property)
		}
		refusal, err := p.take(s, line)
		if err == nil && refusal != nil {
			err = fmt.Errorf("%s: not true: %s", line, refusal.Name)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return fmt.Errorf("the trace does not say what it breaks")
}

// take takes one step of a trace, or returns the guard that does not permit it.
func (p *Part) take(s *State, line string) (refusal *Claim, err error) {
	name, args, _ := strings.Cut(line, ":")
	a := p.Action(name)
	if a == nil {
		return nil, fmt.Errorf("no action %q", name)
	}
	values, err := a.parse(strings.Fields(args))
	if err != nil {
		return nil, err
	}
	return s.Do(a, values...), nil
}

func (a *Action) parse(words []string) (args []int64, err error) {
	if len(words) != len(a.params) {
		return nil, fmt.Errorf("%s has %d arguments, not %d", a.Name, len(a.params), len(words))
	}
	for i, q := range a.params {
		if q.Sort != Int && q.Sort != Real {
			words[i] = strings.TrimPrefix(words[i], string(q.Sort))
		}
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil {
			return nil, err
		}
		args = append(args, n)
	}
	return args, nil
}

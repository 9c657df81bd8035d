package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// atMost limits a search to states whose variables have no larger value.
func atMost(most map[string]int64) func(*State) bool {
	return func(s *State) bool {
		for name, n := range most {
			if s.Get(name, 0) > n {
				return false
			}
		}
		return true
	}
}

// Example is a first state of a small instance.
func (p *Part) Example() *State {
	s := p.NewState(p.sizes)
	for v, values := range p.example {
		copy(s.values[v.number], values)
	}
	for _, v := range p.Vars {
		switch v.Name {
		case "fresh":
			s.SetAll(v.Name, 1)
		case "start":
			s.SetAll(v.Name, -100)
		}
	}
	return s
}

// A step is an action with its arguments.
type step struct {
	action *Action
	args   []int64
}

// Search looks for a shortest run of a small instance, behind the part's prefix, that breaks a property. It gives up
// after so many states.
func (p *Part) Search(most int) (trace []string, states int) {
	type node struct {
		state  *State
		before int
		by     step
	}
	first := p.Example()
	for _, line := range p.prefix {
		if refusal, err := p.take(first, line); refusal != nil || err != nil {
			panic(fmt.Sprintf("model: %s: %v %v", line, refusal, err))
		}
	}
	nodes := []node{{state: first, before: -1}}
	known := map[string]bool{nodes[0].state.key(): true}
	for i := 0; i < len(nodes); i++ {
		from := nodes[i].state
		for _, by := range p.steps(from) {
			if nodes[i].by.action != nil && by.action.Name == "time passes" && nodes[i].by.action.Name == by.action.Name {
				continue
			}
			next := from.Clone()
			if next.Do(by.action, by.args...) != nil || p.limits != nil && !p.limits(next) {
				continue
			}
			if key := next.key(); known[key] {
				continue
			} else {
				known[key] = true
			}
			nodes = append(nodes, node{next, i, by})
			if broken := next.Broken(p.Properties); broken != nil {
				for j := len(nodes) - 1; j > 0; j = nodes[j].before {
					trace = append(trace, nodes[j].by.String())
				}
				slices.Reverse(trace)
				return append(append(slices.Clone(p.prefix), trace...), "breaks: "+broken.Name), len(nodes)
			}
		}
		nodes[i].state = nil
		if len(nodes) > most {
			break
		}
	}
	return nil, len(nodes)
}

// steps are the steps to try from a state: each action with all arguments of a small instance.
func (p *Part) steps(s *State) (all []step) {
	for _, a := range p.Actions {
		if slices.Contains(p.leaveOut, a.Name) {
			continue
		}
		choices := [][]int64{nil}
		for _, q := range a.params {
			var more [][]int64
			for _, args := range choices {
				for _, v := range p.values(s, a, q) {
					more = append(more, append(slices.Clone(args), v))
				}
			}
			choices = more
		}
		for _, args := range choices {
			all = append(all, step{a, args})
		}
	}
	return all
}

// longest is how far a search lets time pass in one step, and how far back a commit may have been sent.
const longest = 6

func (p *Part) values(s *State, a *Action, q param) (values []int64) {
	switch {
	case len(q.values) > 0:
		return q.values
	case q.Sort == Real:
		from, to := -longest, 0
		if a.Name == "time passes" {
			from, to = 1, longest
		}
		for d := from; d <= to; d++ {
			values = append(values, s.Get("now", 0)+int64(d))
		}
	default:
		for i := range s.sizes[q.Sort] {
			values = append(values, int64(i))
		}
	}
	return values
}

// key names a state. Times count from now, because no action depends on when time began; long ago is long ago.
func (s *State) key() string {
	var b strings.Builder
	for i, v := range s.part.Vars {
		if v.Constant || v.Name == "now" {
			continue
		}
		for _, n := range s.values[i] {
			if v.Of == Real {
				n = min(s.Get("now", 0)-n, 2*longest)
			}
			b.WriteString(strconv.FormatInt(n, 10))
			b.WriteByte(' ')
		}
	}
	return b.String()
}

func (s step) String() string {
	words := []string{s.action.Name + ":"}
	for i, q := range s.action.params {
		switch q.Sort {
		case Int, Real:
			words = append(words, fmt.Sprint(s.args[i]))
		default:
			words = append(words, element(q.Sort, int(s.args[i])))
		}
	}
	return strings.Join(words, " ")
}

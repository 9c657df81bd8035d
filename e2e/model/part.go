package model

import (
	"fmt"
	"strings"
)

// A Part is a part of the protocol.
type Part struct {
	Name       string
	Weakened   string // the rule that is missing, or empty
	Sorts      []Sort
	Vars       []*Var
	Assume     Expr // about the constants
	Init       Expr // the first states
	Actions    []*Action
	Invariant  []Claim
	Properties []Claim // what the invariant implies

	believes func(x Expr) Expr   // of the part lease
	bounds   int                 // quantifiers
	example  map[*Var][]int64    // constants of searches
	prefix   []string            // how each trace begins
	leaveOut []string            // actions that searches leave out
	limits   func(s *State) bool // of searches; nil: none
	sizes    map[Sort]int        // of searches
}

// A Claim is an expression with a name.
type Claim struct {
	Name string
	Expr
}

// A Var is a variable: one value, or one for each element of Over. A constant never changes.
type Var struct {
	Name     string
	Over     []Sort
	Of       Sort
	Constant bool
	number   int
}

func (p *Part) sort(name Sort) Sort {
	p.Sorts = append(p.Sorts, name)
	return name
}

func (p *Part) variable(name string, of Sort, over ...Sort) *Var {
	v := &Var{Name: name, Of: of, Over: over, number: len(p.Vars)}
	p.Vars = append(p.Vars, v)
	return v
}

func (p *Part) constant(name string, of Sort, over ...Sort) *Var {
	v := p.variable(name, of, over...)
	v.Constant = true
	return v
}

// At is the value of the variable at these elements.
func (v *Var) At(at ...Expr) Expr {
	return Expr{
		func(p *printer) string {
			text := v.in(p.prime)
			for _, x := range at {
				text = "(select " + text + " " + x.print(p) + ")"
			}
			return text
		},
		func(s *State) int64 { return s.values[v.number][v.index(s, at)] },
	}
}

func (v *Var) index(s *State, at []Expr) int {
	i := 0
	for k, x := range at {
		i = i*s.sizes[v.Over[k]] + int(x.eval(s))
	}
	return i
}

// in is the name of the variable in a state.
func (v *Var) in(prime string) string {
	if v.Constant {
		return v.Name
	}
	return v.Name + prime
}

// sort is the sort of the whole variable in SMT-LIB.
func (v *Var) sort() string {
	text := string(v.Of)
	for i := len(v.Over) - 1; i >= 0; i-- {
		text = fmt.Sprintf("(Array %s %s)", v.Over[i], text)
	}
	return text
}

// An Action is a step of the protocol: if its guards hold, its effects may happen, all at once.
type Action struct {
	Name    string
	Code    string // the statements, and the functions of the kernel, that it stands for
	params  []param
	guards  []Claim
	effects []effect
}

type param struct {
	Sort
	values []int64 // to choose from in a search, of sort Int
}

// An effect sets a variable: at some elements, or everywhere.
type effect struct {
	v     *Var
	at    []Expr
	to    Expr
	every *Expr // for all elements: the claim on the next state
	bound int   // of every
}

func (p *Part) action(name, code string, is func(a *Action)) {
	a := &Action{Name: name, Code: code}
	is(a)
	p.Actions = append(p.Actions, a)
}

// param adds a parameter.
func (a *Action) param(sort Sort, values ...int64) Expr {
	i := len(a.params)
	a.params = append(a.params, param{sort, values})
	return Expr{
		func(*printer) string { return fmt.Sprintf("the%s.%d", sort, i) },
		func(s *State) int64 { return s.args[i] },
	}
}

// when adds a guard. Its name says what must be true.
func (a *Action) when(name string, guard Expr) { a.guards = append(a.guards, Claim{name, guard}) }

func (a *Action) set(v *Var, to Expr, at ...Expr) {
	a.effects = append(a.effects, effect{v: v, at: at, to: to})
}

// setAll sets a variable for every element.
func (a *Action) setAll(p *Part, v *Var, to func(x Expr) Expr) {
	e := effect{v: v, bound: p.bounds}
	next := func(x Expr) Expr {
		return Expr{func(p *printer) string { return "(select " + v.Name + "! " + x.print(p) + ")" }, nil}
	}
	every := p.all(v.Over[0], func(x Expr) Expr {
		e.to = to(x)
		return Eq(next(x), e.to)
	})
	e.every = &every
	a.effects = append(a.effects, e)
}

// print is the step as a claim on this state and the next.
func (a *Action) print(part *Part, p *printer) string {
	claims := []string{"and"}
	for _, g := range a.guards {
		claims = append(claims, g.print(p))
	}
	for _, v := range part.Vars {
		if v.Constant {
			continue
		}
		is := v.Name
		for _, e := range a.effects {
			switch {
			case e.v != v:
			case e.every != nil:
				is = ""
				claims = append(claims, e.every.print(p))
			default:
				is = stored(v.Name, e.at, e.to, p)
			}
		}
		if is != "" {
			claims = append(claims, fmt.Sprintf("(= %s! %s)", v.Name, is))
		}
	}
	return "(" + strings.Join(claims, "\n    ") + ")"
}

// stored is an array with another value at some elements.
func stored(array string, at []Expr, to Expr, p *printer) string {
	if len(at) == 0 {
		return to.print(p)
	}
	x := at[0].print(p)
	return fmt.Sprintf("(store %s %s %s)", array, x, stored("(select "+array+" "+x+")", at[1:], to, p))
}

// A State is a state of a part with so many elements of each sort.
type State struct {
	part   *Part
	sizes  map[Sort]int
	values [][]int64
	bound  []int64
	args   []int64
}

// NewState returns a state whose values are all zero.
func (p *Part) NewState(sizes map[Sort]int) *State {
	s := &State{part: p, sizes: sizes, bound: make([]int64, p.bounds)}
	for _, v := range p.Vars {
		n := 1
		for _, sort := range v.Over {
			n *= sizes[sort]
		}
		s.values = append(s.values, make([]int64, n))
	}
	return s
}

// Clone returns a copy.
func (s *State) Clone() *State {
	c := *s
	c.values, c.bound = make([][]int64, len(s.values)), make([]int64, len(s.bound))
	for i, v := range s.values {
		c.values[i] = append([]int64(nil), v...)
	}
	return &c
}

// Holds evaluates a claim.
func (s *State) Holds(e Expr) bool { return e.eval(s) != 0 }

func (p *Part) named(name string) *Var {
	for _, v := range p.Vars {
		if v.Name == name {
			return v
		}
	}
	panic("model: no variable " + name)
}

// Get and Set read and write a variable at an element (0 for one without). Set is for first states.
func (s *State) Get(name string, x int) int64    { return s.values[s.part.named(name).number][x] }
func (s *State) Set(name string, x int, v int64) { s.values[s.part.named(name).number][x] = v }

// SetAll sets a variable for every element.
func (s *State) SetAll(name string, v int64) {
	for x := range s.values[s.part.named(name).number] {
		s.Set(name, x, v)
	}
}

// Do takes a step, if its guards hold. Otherwise it changes nothing, and returns the guard that does not.
func (s *State) Do(a *Action, args ...int64) (refusal *Claim) {
	s.args = args
	for i := range a.guards {
		if a.guards[i].eval(s) == 0 {
			return &a.guards[i]
		}
	}
	type change struct{ v, at, to int64 }
	var changes []change
	for _, e := range a.effects {
		if e.every == nil {
			changes = append(changes, change{int64(e.v.number), int64(e.v.index(s, e.at)), e.to.eval(s)})
			continue
		}
		for i := range s.sizes[e.v.Over[0]] {
			s.bound[e.bound] = int64(i)
			changes = append(changes, change{int64(e.v.number), int64(i), e.to.eval(s)})
		}
	}
	for _, c := range changes {
		s.values[c.v][c.at] = c.to
	}
	return nil
}

// Action finds an action by its name.
func (p *Part) Action(name string) *Action {
	for _, a := range p.Actions {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// Believes says whether the session of that number may believe that it leads.
func (p *Part) Believes(x int64) Expr { return p.believes(N(x)) }

// Broken is the first claim that the state breaks, or nil.
func (s *State) Broken(claims []Claim) *Claim {
	for i := range claims {
		if !s.Holds(claims[i].Expr) {
			return &claims[i]
		}
	}
	return nil
}

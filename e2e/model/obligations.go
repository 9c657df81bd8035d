package model

import (
	"fmt"
	"strings"
)

// An Obligation is one thing to prove: its negation in SMT-LIB must have no model.
type Obligation struct{ Name, SMT string }

// Obligations are what proves the properties of a part, for any number of elements: the first states satisfy the
// invariant, each action keeps it, and it implies the properties. With finite sizes of the sorts z3 decides them; a model
// then shows that the obligation fails.
func (p *Part) Obligations(sizes map[Sort]int) []Obligation {
	var all []Obligation
	add := func(name string, claims ...string) {
		var b strings.Builder
		p.declare(&b, sizes)
		for _, c := range claims {
			fmt.Fprintf(&b, "(assert %s)\n", c)
		}
		b.WriteString("(check-sat)\n")
		all = append(all, Obligation{name, b.String()})
	}
	print := func(e Expr, prime string) string { return e.print(newPrinter(prime, sizes)) }
	not := func(claims []Claim, prime string) string { return "(not " + print(conjunction(claims), prime) + ")" }
	assume := print(p.Assume, "")
	invariant := print(conjunction(p.Invariant), "")
	add("at first", assume, print(p.Init, ""), not(p.Invariant, ""))
	for _, a := range p.Actions {
		add(a.Name, assume, invariant, a.print(p, newPrinter("", sizes)), not(p.Invariant, "!"))
	}
	for _, c := range p.Properties {
		add(c.Name, assume, invariant, not([]Claim{c}, ""))
	}
	return all
}

func newPrinter(prime string, sizes map[Sort]int) *printer {
	if sizes == nil {
		sizes = map[Sort]int{}
	}
	return &printer{prime: prime, sizes: sizes, bound: map[int]string{}}
}

func conjunction(claims []Claim) Expr {
	var all []Expr
	for _, c := range claims {
		all = append(all, c.Expr)
	}
	return And(all...)
}

// declare declares the sorts, the variables of two states, and the parameters of actions.
func (p *Part) declare(b *strings.Builder, sizes map[Sort]int) {
	for _, s := range p.Sorts {
		if n, finite := sizes[s]; finite {
			var names []string
			for i := range n {
				names = append(names, element(s, i))
			}
			fmt.Fprintf(b, "(declare-datatypes ((%s 0)) ((%s)))\n", s, "("+strings.Join(names, ") (")+")")
		} else {
			fmt.Fprintf(b, "(declare-sort %s 0)\n", s)
		}
	}
	for _, v := range p.Vars {
		fmt.Fprintf(b, "(declare-const %s %s)\n", v.Name, v.sort())
		if !v.Constant {
			fmt.Fprintf(b, "(declare-const %s! %s)\n", v.Name, v.sort())
		}
	}
	seen := map[string]bool{}
	for _, a := range p.Actions {
		for i, q := range a.params {
			if name := fmt.Sprintf("the%s.%d", q.Sort, i); !seen[name] {
				seen[name] = true
				fmt.Fprintf(b, "(declare-const %s %s)\n", name, q.Sort)
			}
		}
	}
}

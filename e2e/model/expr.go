package model

import (
	"fmt"
	"strconv"
	"strings"
)

// A Sort is what values are: Bool, Int, Real, or the elements of a part, such as its sessions.
type Sort string

// The sorts of every part. A Real is a time; it is evaluated as a whole number of ticks or nanoseconds.
const (
	Bool Sort = "Bool"
	Int  Sort = "Int"
	Real Sort = "Real"
)

// An Expr is an expression over the state of a part. It prints itself as SMT-LIB, and evaluates itself: a
// truth value is 0 or 1, an element its number.
type Expr struct {
	print func(*printer) string
	eval  func(*State) int64
}

// A printer is the context in which an expression is printed.
type printer struct {
	prime string         // behind the names of variables: the next state
	sizes map[Sort]int   // of finite sorts; nil: any number of elements
	bound map[int]string // the names of what quantifiers bind
}

func value(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// apply makes an expression of an SMT-LIB function and arguments.
func apply(name string, eval func(*State) int64, args ...Expr) Expr {
	return Expr{eval: eval, print: func(p *printer) string {
		words := []string{name}
		for _, a := range args {
			words = append(words, a.print(p))
		}
		return "(" + strings.Join(words, " ") + ")"
	}}
}

func constant(text string, v int64) Expr {
	return Expr{func(*printer) string { return text }, func(*State) int64 { return v }}
}

// True and False are the truth values.
var (
	True  = constant("true", 1)
	False = constant("false", 0)
)

// N is a number.
func N(n int64) Expr { return constant(strconv.FormatInt(n, 10), n) }

// Zero is the time 0.
var Zero = constant("0.0", 0)

// And is true if all are.
func And(all ...Expr) Expr {
	if len(all) == 0 {
		return True
	}
	return apply("and", func(s *State) int64 {
		for _, e := range all {
			if e.eval(s) == 0 {
				return 0
			}
		}
		return 1
	}, all...)
}

// Or is true if one is.
func Or(all ...Expr) Expr {
	return apply("or", func(s *State) int64 {
		for _, e := range all {
			if e.eval(s) != 0 {
				return 1
			}
		}
		return 0
	}, all...)
}

// Not is true if a is false.
func Not(a Expr) Expr { return apply("not", func(s *State) int64 { return 1 - a.eval(s) }, a) }

// Implies is false if a is true and b is false.
func Implies(a, b Expr) Expr {
	return apply("=>", func(s *State) int64 { return value(a.eval(s) == 0 || b.eval(s) != 0) }, a, b)
}

// Eq compares two values of any sort.
func Eq(a, b Expr) Expr {
	return apply("=", func(s *State) int64 { return value(a.eval(s) == b.eval(s)) }, a, b)
}

// Less is a < b.
func Less(a, b Expr) Expr {
	return apply("<", func(s *State) int64 { return value(a.eval(s) < b.eval(s)) }, a, b)
}

// AtMost is a ≤ b.
func AtMost(a, b Expr) Expr {
	return apply("<=", func(s *State) int64 { return value(a.eval(s) <= b.eval(s)) }, a, b)
}

// Plus is a + b.
func Plus(a, b Expr) Expr {
	return apply("+", func(s *State) int64 { return a.eval(s) + b.eval(s) }, a, b)
}

// Minus is a - b.
func Minus(a, b Expr) Expr {
	return apply("-", func(s *State) int64 { return a.eval(s) - b.eval(s) }, a, b)
}

// If is a if c is true, otherwise b.
func If(c, a, b Expr) Expr {
	return apply("ite", func(s *State) int64 {
		if c.eval(s) != 0 {
			return a.eval(s)
		}
		return b.eval(s)
	}, c, a, b)
}

// Max and Min are of two numbers.
func Max(a, b Expr) Expr { return If(Less(a, b), b, a) }
func Min(a, b Expr) Expr { return If(Less(a, b), a, b) }

// all is true if body is true of each element of a sort. Printed for a finite sort, it has a body for each element.
func (p *Part) all(sort Sort, body func(x Expr) Expr) Expr {
	id := p.bounds
	p.bounds++
	of := body(Expr{
		func(p *printer) string { return p.bound[id] },
		func(s *State) int64 { return s.bound[id] },
	})
	return Expr{
		func(p *printer) string {
			n, finite := p.sizes[sort]
			if !finite {
				p.bound[id] = fmt.Sprintf("%s.%d", strings.ToLower(string(sort)), id)
				return fmt.Sprintf("(forall ((%s %s)) %s)", p.bound[id], sort, of.print(p))
			}
			bodies := []string{"and", "true"}
			for i := range n {
				p.bound[id] = element(sort, i)
				bodies = append(bodies, of.print(p))
			}
			return "(" + strings.Join(bodies, " ") + ")"
		},
		func(s *State) int64 {
			for i := range s.sizes[sort] {
				s.bound[id] = int64(i)
				if of.eval(s) == 0 {
					return 0
				}
			}
			return 1
		},
	}
}

// some is true if body is true of one element.
func (p *Part) some(sort Sort, body func(x Expr) Expr) Expr {
	return Not(p.all(sort, func(x Expr) Expr { return Not(body(x)) }))
}

// pairs is true if body is true of each two elements, which may be the same.
func (p *Part) pairs(sort Sort, body func(x, y Expr) Expr) Expr {
	return p.all(sort, func(x Expr) Expr { return p.all(sort, func(y Expr) Expr { return body(x, y) }) })
}

// atMostOne is true if f is true of at most one element.
func (p *Part) atMostOne(sort Sort, f func(x Expr) Expr) Expr {
	return p.pairs(sort, func(x, y Expr) Expr { return Implies(And(f(x), f(y)), Eq(x, y)) })
}

// element is the name of an element of a finite sort.
func element(sort Sort, i int) string { return fmt.Sprintf("%s%d", sort, i) }

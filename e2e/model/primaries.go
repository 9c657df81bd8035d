package model

// Primaries is the part of any number of primaries, promoted one after the other, while the old ones live on, and of
// candidates with WithSynchronousStandby. What happens on one primary is the part lease. A term is of one primary and one
// candidate; it leads while commits are acknowledged by the synchronous standbys, any of which may be promoted.
func Primaries(weakened string) *Part {
	p := &Part{Name: "primaries", Weakened: weakened}
	without := func(rule string) bool { return weakened == rule }
	T, P, C := p.sort("T"), p.sort("P"), p.sort("C") // terms, primaries, candidates

	on := p.constant("on", P, T) // the primary of a term
	by := p.constant("by", C, T) // the candidate of a term
	length := p.constant("lease", Real)
	margin := p.constant("margin", Real)
	drain := p.constant("drain", Real)
	loss := p.constant("loss", Real)   // what a clock may lose within a lease
	gain := p.constant("gain", Real)   // what it may gain
	short := p.constant("short", Real) // the lease of the new leader, which may be shorter

	now := p.variable("now", Real)
	up := p.variable("up", Bool, P) // promoted
	at := p.variable("at", Real, P) // when
	met := p.variable("met", Bool, C, P)
	since := p.variable("since", Real, C, P) // when the candidate first saw the primary
	leads := p.variable("leads", Bool, T)
	proof := p.variable("proof", Real, T) // when the last acknowledged commit was sent

	shown := func(x Expr) Expr { return Minus(Min(Minus(now.At(), proof.At(x)), length.At()), loss.At()) }
	acts := func(x Expr) Expr { return And(leads.At(x), Less(shown(x), Minus(length.At(), margin.At()))) }

	covers := AtMost(Plus(loss.At(), gain.At()), margin.At())
	if without("NO_MARGIN") {
		covers = Eq(margin.At(), Zero)
	}
	p.Assume = And(Less(Zero, length.At()), AtMost(Zero, loss.At()), AtMost(Zero, gain.At()), AtMost(Zero, drain.At()),
		Less(Zero, Minus(Minus(length.At(), margin.At()), drain.At())), Less(Zero, short.At()), AtMost(short.At(), length.At()), covers)
	p.Init = And(p.all(P, func(q Expr) Expr { return Not(up.At(q)) }), p.all(T, func(x Expr) Expr { return Not(leads.At(x)) }),
		p.all(C, func(c Expr) Expr { return p.all(P, func(q Expr) Expr { return Not(met.At(c, q)) }) }))

	p.action("time passes", "", func(a *Action) {
		t := a.param(Real)
		a.when("time does not run backwards", AtMost(now.At(), t))
		a.set(now, t)
	})
	p.action("promote", "pg_promote, on a standby that is listed", func(a *Action) {
		q := a.param(P)
		a.when("it is no primary", Not(up.At(q)))
		a.when("it is promoted after the others", p.all(P, func(r Expr) Expr { return Implies(up.At(r), Less(at.At(r), now.At())) }))
		a.set(up, True, q)
		a.set(at, now.At(), q)
	})
	p.action("see a primary", "tenure.Known: SynchronousStandbys", func(a *Action) {
		c, q := a.param(C), a.param(P)
		a.when("it is a primary", up.At(q))
		a.when("the candidate does not know it", Not(met.At(c, q)))
		a.set(met, True, c, q)
		a.set(since, now.At(), c, q)
	})
	// A commit is acknowledged: each server that may be promoted had got it at the time got, after it was sent.
	acknowledged := func(a *Action, x Expr) {
		sent, got := a.param(Real), a.param(Real)
		q := on.At(x)
		a.when("its primary is one", up.At(q))
		a.when("the commit was sent, and then received", And(AtMost(at.At(q), sent), AtMost(sent, got), AtMost(got, now.At())))
		if !without("ANY_STANDBY") {
			a.when("each standby that may be promoted has received it before", p.all(P, func(r Expr) Expr {
				return Implies(And(up.At(r), Not(Eq(r, q))), Or(Less(at.At(r), at.At(q)), Less(got, at.At(r))))
			}))
		}
		a.set(leads, True, x)
		if without("FROM_ANSWER") {
			a.set(proof, now.At(), x)
		} else {
			a.set(proof, sent, x)
		}
	}
	p.action("begin", "syncrep Part.Granted: CommitSynchronously, mayLeadOn", func(a *Action) {
		x := a.param(T)
		a.when("it does not lead", Not(leads.At(x)))
		a.when("the candidate knows the primary", met.At(by.At(x), on.At(x)))
		wait := Minus(length.At(), gain.At())
		switch {
		case without("NO_WAIT"):
			wait = Zero
		case without("SHORT_WAIT"):
			wait = Minus(short.At(), gain.At())
		}
		a.when("it has known the primary for the longest lease", AtMost(Plus(since.At(by.At(x), on.At(x)), wait), now.At()))
		acknowledged(a, x)
	})
	p.action("commit", "syncrep Part.Beat: CommitSynchronously", func(a *Action) {
		x := a.param(T)
		a.when("it leads", leads.At(x))
		acknowledged(a, x)
	})
	p.action("end", "EndTerms", func(a *Action) {
		x := a.param(T)
		a.set(leads, False, x)
	})

	p.Invariant = []Claim{
		{"primaries were promoted before now, one after the other", And(
			p.all(P, func(q Expr) Expr { return Implies(up.At(q), AtMost(at.At(q), now.At())) }),
			p.pairs(P, func(q, r Expr) Expr { return Implies(And(up.At(q), up.At(r), Eq(at.At(q), at.At(r))), Eq(q, r)) }))},
		{"nobody sees a primary before its promotion", p.all(C, func(c Expr) Expr {
			return p.all(P, func(q Expr) Expr {
				return Implies(met.At(c, q), And(up.At(q), AtMost(at.At(q), since.At(c, q)), AtMost(since.At(c, q), now.At())))
			})
		})},
		{"who leads is on a primary that is a lease old", p.all(T, func(x Expr) Expr {
			return Implies(leads.At(x), And(up.At(on.At(x)), AtMost(Minus(Plus(at.At(on.At(x)), length.At()), gain.At()), now.At()), AtMost(proof.At(x), now.At())))
		})},
		{"what was acknowledged was sent before each later promotion", p.all(T, func(x Expr) Expr {
			return p.all(P, func(q Expr) Expr {
				return Implies(And(leads.At(x), up.At(q), Less(at.At(on.At(x)), at.At(q))), AtMost(proof.At(x), at.At(q)))
			})
		})},
	}
	p.Properties = []Claim{{"no two lead or work on two primaries", p.pairs(T, func(x, y Expr) Expr {
		return Implies(And(acts(x), acts(y)), Eq(on.At(x), on.At(y)))
	})}}

	p.sizes = map[Sort]int{T: 2, P: 2, C: 2}
	p.example = map[*Var][]int64{on: {0, 1}, by: {0, 1}, length: {4}, margin: {1}, drain: {1}, loss: {1}, gain: {0}, short: {2}}
	if without("NO_MARGIN") {
		p.example[margin] = []int64{0}
	}
	p.prefix = []string{"promote: P0", "see a primary: C0 P0"}
	p.leaveOut = []string{"commit", "end"}
	p.limits = atMost(map[string]int64{"now": 10})
	return p
}

package model

// The states of a fenced transaction.
const (
	NotBegun   = 0
	Shares     = 1 // it shares the guard lock
	Entered    = 2 // and the session of its term holds the lock
	Committed  = 3
	RolledBack = 4
	CheckedNot = 5 // weakened: checked, and does not share the guard yet
)

// Fence is the part of tokens and fenced transactions. In transaction scope Confirm runs on another connection than the
// lock: there the transaction that holds the lock is asked afterwards whether it still exists.
func Fence(weakened string) *Part {
	p := &Part{Name: "fence", Weakened: weakened}
	without := func(rule string) bool { return weakened == rule }
	S, X, P := p.sort("S"), p.sort("X"), p.sort("P") // sessions, fenced transactions, process ids

	pid := p.constant("pid", P, S)
	inside := p.constant("inside", Bool, S) // transaction scope

	xid := p.variable("xid", Int)             // the last transaction id
	last := p.variable("last", Int)           // the token of the term that began last
	holds := p.variable("holds", Bool, S)     // the server: the session holds the lock
	ended := p.variable("ended", Bool, S)     // the session has given it up, for good
	killed := p.variable("killed", Bool, S)   // somebody ended the session
	looked := p.variable("looked", Bool, S)   // Confirm has found the lock in pg_locks
	token := p.variable("token", Int, S)      // 0: none yet
	stays := p.variable("stays", Bool, S)     // the transaction was there after Confirm
	begun := p.variable("begun", Bool, S)     // the term has begun
	state := p.variable("state", Int, X)      // of a fenced transaction
	of := p.variable("of", S, X)              // the session of its term
	seen := p.variable("seen", Int)           // the largest token that another store has seen
	written := p.variable("written", Int)     // the token of the last write there
	largest := p.variable("largest", Int)     // and the largest one of all writes
	allowed := p.variable("allowed", Bool, S) // weakened: it was told that it may write there

	is := func(q Expr, s int64) Expr { return Eq(state.At(q), N(s)) }
	quiet := p.all(X, func(q Expr) Expr { return Not(Or(is(q, Shares), is(q, Entered))) }) // nobody shares the guard
	proved := func(x Expr) Expr { return And(Less(N(0), token.At(x)), Or(Not(inside.At(x)), stays.At(x))) }

	p.Assume = True
	p.Init = And(
		Eq(xid.At(), N(0)), Eq(last.At(), N(0)), Eq(seen.At(), N(0)), Eq(written.At(), N(0)), Eq(largest.At(), N(0)),
		p.all(S, func(x Expr) Expr {
			return And(Eq(token.At(x), N(0)), Not(Or(holds.At(x), ended.At(x), killed.At(x), looked.At(x), stays.At(x), begun.At(x), allowed.At(x))))
		}),
		p.all(X, func(q Expr) Expr { return is(q, NotBegun) }))

	p.action("grant", "Session.Try: TryElection", func(a *Action) {
		x := a.param(S)
		a.when("the session is not over", Not(ended.At(x)))
		a.when("nobody holds the lock", p.all(S, func(y Expr) Expr { return Not(holds.At(y)) }))
		if without("EARLY_TOKEN") {
			a.when("it has a token", Less(N(0), token.At(x)))
		}
		a.set(holds, True, x)
	})
	p.action("free", "unlock, or the end of a silent session", func(a *Action) {
		x := a.param(S)
		a.when("it holds the lock", holds.At(x))
		a.set(holds, False, x)
		a.set(ended, True, x)
	})
	p.action("ended by somebody", "pg_terminate_backend: the candidate may not know yet, and begin its term", func(a *Action) {
		x := a.param(S)
		a.when("it holds the lock", holds.At(x))
		a.set(holds, False, x)
		a.set(ended, True, x)
		a.set(killed, True, x)
	})
	p.action("look", "Session.Confirm: ConfirmElection, its look into pg_locks", func(a *Action) {
		x := a.param(S)
		if !without("EARLY_TOKEN") {
			a.when("pg_locks shows the lock", holds.At(x))
		}
		a.set(looked, True, x)
	})
	p.action("barrier and token", "Session.Confirm: ConfirmElection, pg_advisory_xact_lock on the guard, then pg_current_xact_id", func(a *Action) {
		x := a.param(S)
		a.when("it has looked", looked.At(x))
		a.when("it has no token yet", Eq(token.At(x), N(0)))
		if !without("EARLY_TOKEN") {
			a.when("a session that has ended asks nothing", Or(inside.At(x), holds.At(x)))
		}
		if !without("EARLY_TOKEN") && !without("NO_BARRIER") {
			a.when("no fenced transaction is open", quiet)
		}
		a.set(xid, Plus(xid.At(), N(1)))
		a.set(token, Plus(xid.At(), N(1)), x)
	})
	p.action("stay", "transaction.Stay: PingTransaction, on the transaction that holds the lock", func(a *Action) {
		x := a.param(S)
		a.when("it has a token", Less(N(0), token.At(x)))
		if !without("NO_STAY") {
			a.when("the transaction is still there", holds.At(x))
		}
		a.set(stays, True, x)
	})
	p.action("begin", "Lock.begin, newTerm", func(a *Action) {
		x := a.param(S)
		a.when("it has proved its token", proved(x))
		a.when("a term begins once", Not(begun.At(x)))
		if without("NO_STAY") {
			a.when("it may be over", True)
		} else {
			a.when("it holds the lock, or somebody has just ended it", Or(holds.At(x), killed.At(x)))
		}
		if without("EARLY_TOKEN") {
			a.when("no fenced transaction is open", quiet)
		}
		a.set(last, If(killed.At(x), last.At(), token.At(x)))
		a.set(begun, True, x)
	})
	p.action("other transaction", "the server gives a transaction id to somebody else", func(a *Action) {
		a.set(xid, Plus(xid.At(), N(1)))
	})
	check := func(a *Action, q Expr, ok int64) {
		o := of.At(q)
		held := holds.At(o)
		switch {
		case without("NO_CHECK"):
			held = True
		case without("NO_NAME"):
			held = p.some(S, func(y Expr) Expr { return And(holds.At(y), Eq(pid.At(y), pid.At(o))) })
		}
		a.set(state, If(held, N(ok), N(RolledBack)), q)
	}
	if without("CHECK_FIRST") {
		p.action("check", "EnterTerm", func(a *Action) {
			q, x := a.param(X), a.param(S)
			a.when("the transaction is new", is(q, NotBegun))
			a.when("its term has begun, and holds the lock", And(begun.At(x), holds.At(x)))
			a.set(of, x, q)
			a.set(state, N(CheckedNot), q)
		})
		p.action("share", "EnterTerm", func(a *Action) {
			q := a.param(X)
			a.when("it has checked", is(q, CheckedNot))
			a.set(state, N(Entered), q)
		})
	} else {
		p.action("share", "Term.InTx: EnterTerm, pg_try_advisory_xact_lock_shared on the guard; the term may be over", func(a *Action) {
			q, x := a.param(X), a.param(S)
			a.when("the transaction is new", is(q, NotBegun))
			a.when("its term has begun", begun.At(x))
			a.set(of, x, q)
			a.set(state, N(Shares), q)
		})
		p.action("check", "Term.InTx: EnterTerm, its look into pg_locks for the session by process id and name, or the transaction by its name", func(a *Action) {
			q := a.param(X)
			a.when("it shares the guard", is(q, Shares))
			check(a, q, Entered)
		})
	}
	p.action("commit", "Term.InTx: COMMIT; also of a prepared transaction, by anybody", func(a *Action) {
		q := a.param(X)
		a.when("it has entered", is(q, Entered))
		a.set(state, N(Committed), q)
	})
	p.action("roll back", "Term.InTx: ROLLBACK; the transaction's timeouts; EndOverdue", func(a *Action) {
		q := a.param(X)
		a.when("it has not committed", Not(is(q, Committed)))
		a.set(state, N(RolledBack), q)
	})
	writes := func(a *Action, x Expr) {
		a.set(written, token.At(x))
		a.set(largest, Max(token.At(x), largest.At()))
	}
	p.action("another store compares", "package fence, or yours: the comparison and the write are one step", func(a *Action) {
		x := a.param(S)
		a.when("its term has begun", begun.At(x))
		if !without("NO_TOKEN") {
			a.when("no larger token was seen", AtMost(seen.At(), token.At(x)))
		}
		a.set(seen, Max(token.At(x), seen.At()))
		if without("TOKEN_FIRST") {
			a.set(allowed, True, x)
		} else {
			writes(a, x)
		}
	})
	if without("TOKEN_FIRST") {
		p.action("another store writes", "", func(a *Action) {
			x := a.param(S)
			a.when("it was told that it may", allowed.At(x))
			writes(a, x)
		})
	}

	each := func(name string, f func(x Expr) Expr) {
		p.Invariant = append(p.Invariant, Claim{name, p.all(S, f)})
	}
	pairs := func(name string, f func(x, y Expr) Expr) {
		p.Invariant = append(p.Invariant, Claim{name, p.pairs(S, f)})
	}
	p.Invariant = []Claim{{"at most one holds the lock", p.atMostOne(S, func(x Expr) Expr { return holds.At(x) })}}
	each("who holds the lock has not lost it before, and who was ended does not hold it", func(x Expr) Expr {
		return And(Implies(holds.At(x), Not(ended.At(x))), Implies(killed.At(x), ended.At(x)), Implies(looked.At(x), Or(holds.At(x), ended.At(x))))
	})
	each("tokens are transaction ids of sessions that have looked", func(x Expr) Expr {
		return And(AtMost(N(0), token.At(x)), AtMost(token.At(x), xid.At()), Implies(Less(N(0), token.At(x)), looked.At(x)),
			Implies(Or(stays.At(x), begun.At(x)), Less(N(0), token.At(x))), Implies(begun.At(x), proved(x)))
	})
	pairs("no two have one token", func(x, y Expr) Expr {
		return Implies(And(Eq(token.At(x), token.At(y)), Less(N(0), token.At(x))), Eq(x, y))
	})
	pairs("the holder that has its token has the largest one that is proved", func(x, y Expr) Expr {
		return Implies(And(holds.At(x), Less(N(0), token.At(x)), proved(y)), AtMost(token.At(y), token.At(x)))
	})
	each("the term that began last has the largest token of those that began", func(x Expr) Expr {
		return And(AtMost(N(0), last.At()), AtMost(last.At(), xid.At()),
			Implies(And(begun.At(x), Not(killed.At(x))), AtMost(token.At(x), last.At())),
			Implies(And(holds.At(x), Less(N(0), token.At(x))), AtMost(last.At(), token.At(x))))
	})
	p.Invariant = append(p.Invariant,
		Claim{"a fenced transaction is of a term that has begun", p.all(X, func(q Expr) Expr {
			return And(Implies(Or(is(q, Shares), is(q, Entered)), begun.At(of.At(q))), Not(is(q, CheckedNot)))
		})},
		Claim{"one that has entered is of the newest term that has passed the barrier", p.all(X, func(q Expr) Expr {
			return p.all(S, func(x Expr) Expr {
				return Implies(And(is(q, Entered), Less(N(0), token.At(x)), Or(proved(x), holds.At(x))), AtMost(token.At(x), token.At(of.At(q))))
			})
		})},
		Claim{"another store has written by the largest token", And(Eq(written.At(), seen.At()), Eq(largest.At(), seen.At()))})
	each("nobody is told that it may write", func(x Expr) Expr { return Not(allowed.At(x)) })

	p.Properties = []Claim{
		{"none of an older term can commit once a newer one has begun", p.all(X, func(q Expr) Expr {
			return p.all(S, func(x Expr) Expr {
				return Implies(And(is(q, Entered), begun.At(x)), AtMost(token.At(x), token.At(of.At(q))))
			})
		})},
		{"no write in another store follows one of a newer term", Eq(written.At(), largest.At())},
		{"terms begin in the order of their tokens, but for those whose session somebody ended", p.all(S, func(x Expr) Expr {
			return Implies(And(begun.At(x), Not(killed.At(x))), AtMost(token.At(x), last.At()))
		})},
		{"who leads and has the lock has the largest token", p.pairs(S, func(x, y Expr) Expr {
			return Implies(And(begun.At(x), holds.At(x), begun.At(y)), AtMost(token.At(y), token.At(x)))
		})},
	}

	p.sizes = map[Sort]int{S: 2, X: 1, P: 1}
	p.example = map[*Var][]int64{pid: {0, 0}, inside: {0, 0}}
	if without("NO_STAY") {
		p.example[inside] = []int64{1, 1}
	}
	p.limits = atMost(map[string]int64{"xid": 3})
	return p
}

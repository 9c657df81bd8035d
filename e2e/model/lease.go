package model

// The statements of a session, as far as the lock of one election is concerned.
const (
	Beat   = 0 // a heartbeat, or any other statement of the kernel
	Try    = 1
	Unlock = 2
	Age    = 3 // asks for how long the server has run (part dies)
)

// The phases of a session's statement.
const (
	Idle     = 0
	Sent     = 1
	Executed = 2
	Closed   = 3 // the candidate has closed the connection, or knows that the server has
)

// Lease is the part of one server: silence, frozen processes, drift, lost and late answers, work and its drain,
// and who is told that a session was ended. A session may be a poller's, the deputy's, or one in the server's queue.
func Lease(weakened string) *Part { return lease("lease", weakened, false) }

// lease builds the parts lease and dies.
func lease(name, weakened string, dies bool) *Part {
	p := &Part{Name: name, Weakened: weakened}
	without := func(rule string) bool { return weakened == rule }
	S := p.sort("S") // sessions

	length := p.constant("lease", Real, S)
	margin := p.constant("margin", Real, S)
	drain := p.constant("drain", Real, S)
	loss := p.constant("loss", Real) // what a candidate's clock may lose within a lease
	gain := p.constant("gain", Real) // what it may gain
	delay := p.constant("delay", Real)

	now := p.variable("now", Real)
	// the server
	fresh := p.variable("fresh", Bool, S) // not opened yet
	alive := p.variable("alive", Bool, S)
	holds := p.variable("holds", Bool, S)
	timer := p.variable("timer", Real, S)   // when the idle timer was last started
	killed := p.variable("killed", Bool, S) // somebody has the server end the session
	// the statement under way
	phase := p.variable("phase", Int, S)
	kind := p.variable("kind", Int, S)
	got := p.variable("got", Bool, S) // executed, and the answer is yes
	sent := p.variable("sent", Real, S)
	// the candidate
	proof := p.variable("proof", Real, S) // when the last answered statement was sent
	mine := p.variable("mine", Bool, S)   // it has read that the lock is granted
	leads := p.variable("leads", Bool, S)
	work := p.variable("work", Bool, S)
	ended := p.variable("ended", Real, S)         // when the term ended
	abandoned := p.variable("abandoned", Bool, S) // the work has not returned within the drain
	unheard := p.variable("unheard", Bool, S)     // the session is ended, and the link is dead
	// part dies
	var start, heir, passed *Var
	if dies {
		start = p.variable("start", Real)      // when this server started, or was promoted
		heir = p.variable("heir", Bool, S)     // held the lock when the host of a server that was old enough died
		passed = p.variable("passed", Bool, S) // has read that its server is old enough
	}

	validity := func(x Expr) Expr { return Minus(Minus(length.At(x), margin.At(x)), drain.At(x)) }
	safety := func(x Expr) Expr { return Minus(length.At(x), margin.At(x)) }
	over := func(x, since Expr) Expr { return AtMost(Plus(since, length.At(x)), now.At()) }
	// The least that the candidate's clocks may show since then: they lose at most loss within a lease. They may
	// jump ahead, and back to this.
	shown := func(x, since Expr) Expr { return Minus(Min(Minus(now.At(), since), length.At(x)), loss.At()) }
	believes := func(x Expr) Expr { return And(leads.At(x), Less(shown(x, proof.At(x)), validity(x))) }
	p.believes = believes
	acts := func(x Expr) Expr {
		return And(work.At(x), Not(abandoned.At(x)), Less(shown(x, proof.At(x)), safety(x)))
	}
	free := p.all(S, func(y Expr) Expr { return Not(holds.At(y)) })
	underWay := func(x Expr) Expr { return Or(Eq(phase.At(x), N(Sent)), Eq(phase.At(x), N(Executed))) }
	of := func(k int64, x Expr) Expr { return Eq(kind.At(x), N(k)) }
	old := True // the server is old enough for WithLockDelay
	if dies {
		old = AtMost(Minus(Plus(start.At(), delay.At()), gain.At()), now.At())
	}

	p.Assume = And(
		AtMost(Zero, loss.At()), AtMost(Zero, gain.At()),
		p.all(S, func(x Expr) Expr {
			covers := AtMost(Plus(loss.At(), gain.At()), margin.At(x))
			if without("NO_MARGIN") {
				covers = Eq(margin.At(x), Zero)
			}
			waits := AtMost(length.At(x), delay.At())
			if !dies || without("SHORT_DELAY") {
				waits = True
			}
			return And(Less(Zero, length.At(x)), AtMost(Zero, drain.At(x)), Less(Zero, validity(x)), covers, waits)
		}))
	p.Init = p.all(S, func(x Expr) Expr {
		is := []Expr{fresh.At(x), Eq(phase.At(x), N(Idle)), Eq(kind.At(x), N(Beat)), Eq(proof.At(x), now.At()), Eq(sent.At(x), now.At()), Eq(timer.At(x), now.At()), Eq(ended.At(x), now.At())}
		for _, v := range []*Var{alive, holds, got, killed, mine, leads, work, abandoned, unheard} {
			is = append(is, Not(v.At(x)))
		}
		if dies {
			is = append(is, AtMost(start.At(), now.At()), Not(heir.At(x)), Not(passed.At(x)))
		}
		return And(is...)
	})

	p.action("time passes", "", func(a *Action) {
		t := a.param(Real)
		a.when("time does not run backwards", AtMost(now.At(), t))
		a.set(now, t)
	})
	p.action("open", "Source.Lend; TryElection sets idle_session_timeout", func(a *Action) {
		x := a.param(S)
		a.when("the session is new", fresh.At(x))
		a.set(fresh, False, x)
		a.set(alive, True, x)
		a.set(timer, now.At(), x)
	})
	p.action("send", "put: Session.Try (TryElection), Session.Confirm (ConfirmElection), heartbeat (Ping), Lock.Verify (HoldsElection), unlock (Unlock)", func(a *Action) {
		x := a.param(S)
		kinds := []int64{Beat, Try}
		switch {
		case without("EARLY_UNLOCK"):
			kinds = []int64{Try, Unlock}
		case dies:
			kinds = []int64{Try, Age}
		}
		k := a.param(Int, kinds...)
		a.when("the session has begun", Not(fresh.At(x)))
		a.when("no other statement is under way", Eq(phase.At(x), N(Idle)))
		a.when("the session goes on", Not(abandoned.At(x)))
		a.when("it is a statement", And(AtMost(N(Beat), k), AtMost(k, N(Age))))
		a.when("a session does not try a lock that it has", Implies(Eq(k, N(Try)), Not(Or(mine.At(x), leads.At(x), work.At(x)))))
		if without("EARLY_UNLOCK") {
			a.when("the term has ended before its unlock", Implies(Eq(k, N(Unlock)), Not(leads.At(x))))
		} else {
			a.when("the work has returned before the unlock", Implies(Eq(k, N(Unlock)), Not(Or(leads.At(x), work.At(x)))))
		}
		a.set(phase, N(Sent), x)
		a.set(kind, k, x)
		a.set(got, False, x)
		a.set(sent, now.At(), x)
		a.set(mine, And(mine.At(x), Not(Eq(k, N(Unlock)))), x)
	})
	p.action("execute", "the server", func(a *Action) {
		x := a.param(S)
		a.when("the statement was sent", Eq(phase.At(x), N(Sent)))
		a.when("the session lives", alive.At(x))
		granted := And(of(Try, x), free)
		if without("SEAT_LEADS") {
			granted = of(Try, x)
		}
		yes := granted
		if dies {
			yes = Or(granted, And(of(Age, x), old))
		}
		a.set(phase, N(Executed), x)
		a.set(timer, now.At(), x)
		a.set(got, yes, x)
		a.set(holds, If(of(Try, x), Or(free, holds.At(x)), And(holds.At(x), Not(of(Unlock, x)))), x)
	})
	p.action("execute for a client that has gone", "the server", func(a *Action) {
		x := a.param(S)
		a.when("the client has gone", Eq(phase.At(x), N(Closed)))
		a.when("the session lives", alive.At(x))
		a.set(timer, now.At(), x)
		a.set(holds, Or(free, holds.At(x)), x)
	})
	p.action("answer", "put: Judge, then proof.Renew(sent)", func(a *Action) {
		x := a.param(S)
		a.when("the statement was executed", Eq(phase.At(x), N(Executed)))
		a.set(phase, N(Idle), x)
		if without("FROM_ANSWER") {
			a.set(proof, now.At(), x)
		} else {
			a.set(proof, sent.At(x), x)
		}
		a.set(mine, Or(mine.At(x), And(of(Try, x), got.At(x))), x)
		if dies {
			a.set(passed, Or(passed.At(x), And(of(Age, x), got.At(x))), x)
		}
	})
	p.action("begin", "Session.Confirm: proof.CheckInTime, Part.Granted; Lock.begin, newTerm", func(a *Action) {
		x := a.param(S)
		a.when("the lock was granted", mine.At(x))
		a.when("the answer was read in time", Less(shown(x, proof.At(x)), validity(x)))
		switch {
		case !dies, without("NO_DELAY"):
		case without("ANY_SESSION"):
			a.when("some session's server is old enough", p.some(S, func(y Expr) Expr { return passed.At(y) }))
		default:
			a.when("its server is old enough", passed.At(x))
		}
		a.set(mine, False, x)
		a.set(leads, True, x)
		a.set(work, True, x)
	})
	p.action("term ends", "Term.End, Terms.End, EndIfExpired, EndTerms, a failed heartbeat", func(a *Action) {
		x := a.param(S)
		a.when("it leads", leads.At(x))
		a.set(leads, False, x)
		a.set(ended, now.At(), x)
	})
	p.action("work returns", "Term.awaitWork", func(a *Action) {
		x := a.param(S)
		a.when("the term has ended", Not(leads.At(x)))
		a.set(work, False, x)
	})
	p.action("the drain is over", "Session.awaitHolds", func(a *Action) {
		x := a.param(S)
		a.when("work goes on after the term", And(work.At(x), Not(leads.At(x))))
		a.when("the work has had the drain to return", AtMost(Plus(ended.At(x), drain.At(x)), now.At()))
		a.set(abandoned, True, x)
	})
	p.action("lease runs out", "the server: idle_session_timeout, in a transaction idle_in_transaction_session_timeout", func(a *Action) {
		x := a.param(S)
		a.when("the session lives", alive.At(x))
		a.when("the session was silent for the lease", over(x, timer.At(x)))
		a.set(alive, False, x)
		a.set(holds, False, x)
	})
	p.action("close", "Session.keep, Session.end, Session.discard", func(a *Action) {
		x := a.param(S)
		a.when("the session has begun", Not(fresh.At(x)))
		a.when("no term goes on", Not(leads.At(x)))
		a.when("the work has returned, or its drain is over", Or(Not(work.At(x)), abandoned.At(x)))
		a.set(phase, N(Closed), x)
		a.set(mine, False, x)
	})
	p.action("server sees the close", "the server", func(a *Action) {
		x := a.param(S)
		a.when("the client has closed", And(Eq(phase.At(x), N(Closed)), Not(killed.At(x))))
		a.set(alive, False, x)
		a.set(holds, False, x)
	})
	p.action("freed", "the server: pg_terminate_backend, a shutdown, a crash", func(a *Action) {
		x := a.param(S)
		if without("FREED_FIRST") {
			a.when("the session lives", alive.At(x))
			a.set(killed, True, x)
		} else {
			a.when("the candidate was told, or cannot be", killed.At(x))
		}
		a.set(alive, False, x)
		a.set(holds, False, x)
	})
	mayBeTold := func(a *Action, x Expr) {
		if without("FREED_FIRST") {
			a.when("the session was freed", And(killed.At(x), Not(alive.At(x))))
		} else {
			a.when("the session lives", alive.At(x))
		}
	}
	p.action("told", "Session.Listen, lookForLoss, causeOf: FATAL, or the end of the connection", func(a *Action) {
		x := a.param(S)
		mayBeTold(a, x)
		a.set(killed, True, x)
		a.set(leads, False, x)
		a.set(ended, If(leads.At(x), now.At(), ended.At(x)), x)
		a.set(mine, False, x)
		a.set(phase, N(Closed), x)
	})
	p.action("told, and the link is dead", "", func(a *Action) {
		x := a.param(S)
		mayBeTold(a, x)
		a.set(killed, True, x)
		a.set(unheard, True, x)
	})
	if dies {
		p.action("the host dies, and a server starts", "a host that dies tells nobody; the same host comes back, or a standby is promoted", func(a *Action) {
			a.set(start, now.At())
			a.setAll(p, heir, func(x Expr) Expr { return If(old, holds.At(x), heir.At(x)) })
			a.setAll(p, alive, func(x Expr) Expr { return False })
			a.setAll(p, holds, func(x Expr) Expr { return False })
		})
	}

	each := func(name string, f func(x Expr) Expr) {
		p.Invariant = append(p.Invariant, Claim{name, p.all(S, f)})
	}
	each("nothing is later than now", func(x Expr) Expr {
		return And(AtMost(proof.At(x), now.At()), AtMost(sent.At(x), now.At()), AtMost(timer.At(x), now.At()))
	})
	each("a phase and a kind are one of theirs", func(x Expr) Expr {
		return And(AtMost(N(Idle), phase.At(x)), AtMost(phase.At(x), N(Closed)), AtMost(N(Beat), kind.At(x)), AtMost(kind.At(x), N(Age)))
	})
	each("a new session is nothing", func(x Expr) Expr {
		return Implies(fresh.At(x), And(Eq(phase.At(x), N(Idle)), Eq(kind.At(x), N(Beat)), Not(Or(alive.At(x), mine.At(x), leads.At(x), work.At(x), killed.At(x)))))
	})
	each("who holds the lock lives, who leads works, who is unheard of is killed", func(x Expr) Expr {
		return And(Implies(holds.At(x), alive.At(x)), Implies(leads.At(x), work.At(x)), Implies(unheard.At(x), killed.At(x)))
	})
	each("the server's timer started after what proves the session was sent", func(x Expr) Expr {
		return And(Implies(Eq(phase.At(x), N(Executed)), AtMost(sent.At(x), timer.At(x))),
			Implies(Or(work.At(x), mine.At(x)), AtMost(proof.At(x), timer.At(x))))
	})
	each("a closed session does not lead, and its work has returned or had its drain", func(x Expr) Expr {
		return Implies(Eq(phase.At(x), N(Closed)), And(Not(leads.At(x)), Not(mine.At(x)), Implies(Not(killed.At(x)), Or(Not(work.At(x)), abandoned.At(x)))))
	})
	each("who was told has stopped", func(x Expr) Expr {
		return Implies(And(killed.At(x), Not(unheard.At(x))), Eq(phase.At(x), N(Closed)))
	})
	each("a lock begins one term", func(x Expr) Expr { return Not(And(mine.At(x), work.At(x))) })
	each("what was abandoned has ended", func(x Expr) Expr {
		return Implies(abandoned.At(x), Not(Or(leads.At(x), mine.At(x), And(underWay(x), of(Try, x)))))
	})
	each("nobody works with a lock that is being tried or unlocked", func(x Expr) Expr {
		return Implies(And(underWay(x), Or(of(Try, x), of(Unlock, x))), Not(Or(work.At(x), mine.At(x))))
	})
	// Whoever relies on the lock has it, or the server has waited for a lease since the proof. In part dies there
	// is another way: its holder had it when the host died, and no server has been old enough since.
	safe := func(x, since Expr) Expr { return over(x, since) }
	counts := func(x Expr) Expr { return True }
	if dies {
		safe = func(x, since Expr) Expr {
			return Or(AtMost(Minus(Plus(since, length.At(x)), gain.At()), now.At()), And(heir.At(x), AtMost(since, start.At())))
		}
		if !without("NO_DELAY") {
			counts = func(x Expr) Expr {
				return Or(passed.At(x), And(Eq(phase.At(x), N(Executed)), of(Age, x), got.At(x)))
			}
		}
	}
	relies := func(x Expr) Expr {
		return Or(And(Or(leads.At(x), And(mine.At(x), counts(x))), Not(unheard.At(x))), And(work.At(x), Not(killed.At(x)), Not(abandoned.At(x))))
	}
	each("what was granted is held, or the lease is over", func(x Expr) Expr {
		granted := And(Eq(phase.At(x), N(Executed)), of(Try, x), got.At(x))
		return And(Implies(And(granted, alive.At(x)), holds.At(x)),
			Implies(And(granted, Not(alive.At(x)), counts(x), Not(unheard.At(x))), safe(x, sent.At(x))),
			Implies(And(mine.At(x), alive.At(x), Not(unheard.At(x))), holds.At(x)))
	})
	each("who relies on the lock holds it, or the lease is over", func(x Expr) Expr {
		return And(Implies(And(relies(x), alive.At(x)), holds.At(x)),
			Implies(And(relies(x), Not(alive.At(x))), safe(x, proof.At(x))),
			Implies(And(relies(x), Not(alive.At(x)), Eq(phase.At(x), N(Executed))), safe(x, sent.At(x))))
	})
	p.Invariant = append(p.Invariant, Claim{"at most one holds the lock", p.atMostOne(S, func(x Expr) Expr { return holds.At(x) })})
	if dies {
		each("who passed is on an old server, or that server has died", func(x Expr) Expr {
			return And(Implies(And(counts(x), alive.At(x)), old), Implies(Or(leads.At(x), work.At(x)), passed.At(x)), AtMost(start.At(), now.At()))
		})
		each("who had the lock when the host died is dead", func(x Expr) Expr {
			return And(Implies(heir.At(x), Not(Or(alive.At(x), fresh.At(x)))), Implies(fresh.At(x), Not(passed.At(x))))
		})
		p.Invariant = append(p.Invariant, Claim{"at most one had the lock when the host died", p.atMostOne(S, func(x Expr) Expr { return heir.At(x) })})
	}
	p.Properties = []Claim{
		{"no two believe that they lead, but for those that cannot be told", p.atMostOne(S, func(x Expr) Expr { return And(believes(x), Not(unheard.At(x))) })},
		{"no two work, but for those whose session somebody ended", p.atMostOne(S, func(x Expr) Expr { return And(acts(x), Not(killed.At(x))) })},
	}

	p.prefix, p.leaveOut = searchesBegin(dies, weakened), []string{"execute for a client that has gone", "the drain is over", "close", "server sees the close", "told, and the link is dead"}
	if !without("FREED_FIRST") {
		p.leaveOut = append(p.leaveOut, "told", "freed")
	}
	p.sizes = map[Sort]int{S: 2}
	p.example = map[*Var][]int64{length: {5, 5}, margin: {1, 1}, drain: {1, 1}, loss: {1}, gain: {0}, delay: {5}}
	switch weakened {
	case "NO_MARGIN":
		p.example[margin] = []int64{0, 0}
	case "SHORT_DELAY":
		p.example[delay] = []int64{2}
	}
	return p
}

// searchesBegin is how searches begin: with one leader, another session that is new, and what takes long to find.
func searchesBegin(dies bool, weakened string) []string {
	steps := []string{"open: S0", "send: S0 1", "execute: S0", "answer: S0"}
	if dies && weakened != "NO_DELAY" {
		steps = append(steps, "send: S0 3", "execute: S0", "answer: S0")
	}
	steps = append(steps, "begin: S0")
	switch {
	case weakened == "FROM_ANSWER":
		steps = append(steps, "send: S0 0", "execute: S0", "open: S1", "time passes: 5", "send: S1 1")
	case dies && (weakened == "NO_MARGIN" || weakened == "SHORT_DELAY"):
		steps = append(steps, "the host dies, and a server starts:", "open: S1", "send: S1 1", "execute: S1", "answer: S1")
	}
	return steps
}

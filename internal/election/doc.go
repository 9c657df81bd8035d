// Package election is one election, and nothing else. It elects, holds, proves and releases one lock on one connection. It
// is complete: without any feature it elects, by polling. Read the files in this order.
//
//	election.go    Run: campaign, lead, again
//	attempt.go     one attempt: lend a session, try, confirm
//	source.go      where sessions come from, and what an error of the server means (package idle: silent connections)
//	pace.go        how long to wait between two attempts
//	session.go     a connection: who owns it, how it ends, and how it is given up
//	life.go        the life of a session: heartbeats, looks for its loss, and the one teardown
//	call.go        one call on a session, whose driver may not return; how an answer is judged
//	lock.go        a lock: granted, confirmed, led, released
//	release.go     how locks leave a session
//	statements.go  what the kernel asks the server, in session scope
//	settings.go    the settings of a session; the lease is one of them
//	term.go        a leadership: how it ends, and in which order
//	work.go        the work of a term, and how long the term waits for the work
//	terms.go       the room of terms: one call ends all of them
//	token.go       fencing tokens
//	seams.go       the four places where features hook in
//
// # States
//
//	campaigning ──granted──▶ confirmed ──▶ leading ──ended──▶ winding down ──work returned──▶ released
//	     ▲                                                                                        │
//	     └────────────────────────────────────────────────────────────────────────────────────────┘
//
// # Why no two lead
//
// The server grants a lock to one session at a time, and ends a session that is silent for a lease L. This process counts
// from before it sent the last statement that was answered, and stops leading after L − margin − drain. So the process stops
// leading, and its work has the drain to return, before the server frees the lock.
//
// # How a term ends
//
// A [Term] has one context, and the context's cause says why the term ended. The context is a child of the session's term
// context, and the term context is a child of the session's context:
//
//	session context   the connection is lost, or its validity ran out: the lock may be gone
//	  └ term context  a part ended the terms (Session.EndTerms): the session keeps its locks until the work has returned
//	      └ term      Term.End, Terms.End, or the context of Run
//
// So whatever ends the session ends the term at once, and nobody asks several sources whether a term has ended.
// Term.stepDown then waits for the work, tells the observer, and releases the lock, in this order.
//
// # What features may do
//
// Features are other packages. There are three kinds of code:
//
//   - The kernel is this package.
//   - An answerer implements [Statements]: it tells the kernel what the server said. A wrong answer elects two, so whoever
//     reviews the safety of an election reads the kernel and the answerers.
//   - A part ([Part]), an acquirer ([Acquirer]) or an observer ([Observer]) may refuse a term, end one, delay one, choose
//     when to try, and add a bound to the validity. It cannot grant a term, prolong one, or release a lock:
//
// Three rules hold this, because the fields and functions that would break them are not exported:
//
//   - Only [Session.Try] makes a Lock. Only [Session.Confirm] confirms a Lock, and only by an answer that was read in time. A
//     term begins by one compare-and-swap, from confirmed to led.
//   - Only ask renews the proof that a session lives, and only by an answer that names the session's own backend. The proof
//     counts from before the question was sent. A question that a part asks by [Ask] renews nothing.
//   - Only stepDown releases the lock of a term, after the work has returned. [Lock.GiveUp] leaves such a lock alone,
//     [Lock.ReleaseBy] changes how the lock is released and not when, and [Session.Close] waits for the work.
//
// No type stops SQL: a part could send the statement that unlocks. A test pins which packages call such statements.
package election

// Package model is the protocol of an election: its state, its actions and its invariants. There is one
// source for two uses. Each expression prints itself as SMT-LIB, so that z3 proves the invariants for any
// number of sessions, transactions and primaries, any lease, and any drift of clocks below the margin. And
// each expression evaluates itself, so that traces, and recorded runs, are checked against the same actions (package replay).
//
// Read lease.go first. docs/proof.md says what is proved, and what is assumed.
//
//	lease.go      sessions, silence, work, drain, lost and late answers, who is told
//	dies.go       the host of the server dies and tells nobody: WithLockDelay
//	fence.go      barrier, token, InTx, other stores, both scopes
//	primaries.go  more than one primary: WithSynchronousStandby
//	expr.go       expressions
//	part.go       variables, actions, states
//	obligations.go, z3.go, trace.go, search.go   what is proved, and how weakened protocols are rejected
//
// Some features need no action of their own:
//
//   - Deputy and queue: a session that tries the lock often, or waits in the server for it, sends a "try" and
//     executes it when the server likes. Only the server grants, so it does not matter who tries, when, or how often.
//   - Hand-over and requests: a leader that resigns, to a successor or for a stranger, is "term ends", "work returns"
//     and an unlock. The successor is a session that tries; a request changes only when a term ends.
//   - Shards, priority, health: they choose who tries and when a term ends, and the model permits each choice.
//     Many elections on one session are many instances of the model: what is sent for one is a heartbeat for the others.
package model

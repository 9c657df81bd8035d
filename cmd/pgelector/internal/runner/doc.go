//go:build unix

// Package runner runs a command under the leadership of an election: what
// "pgelector run" does. Package elector says when, package supervise does it.
//
// # How it goes
//
//	campaigning ── elected ──▶ leading: the command runs ── it ended ──▶ hold, resign ── --once ──▶ its exit status
//	     ▲                              │                                     │
//	     │                              │ the term was lost                   │ --restart
//	     │                              ▼                                     ▼
//	     │                     TERM, grace, KILL ── --once ──▶ exit 75     back off
//	     └───────────────────────────── --restart ◀───────────────────────────┘
//
// While a command runs, signals are its own: they are forwarded, and leadership
// goes on for as long as the command takes to heed them. Where none runs, they
// end this program.
//
// The lock is released only after lead has returned, and lead returns only when
// nothing of the command is left.
package runner

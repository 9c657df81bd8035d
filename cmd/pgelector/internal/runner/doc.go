//go:build unix

// Package runner implements "pgelector run": it runs a command while package elector leads
// an election, with package supervise.
//
// # States
//
//	campaigning ── elected ──▶ leading: the command runs ── it ended ──▶ hold, resign ── --once ──▶ its exit status
//	     ▲                              │                                     │
//	     │                              │ the term was lost                   │ --restart
//	     │                              ▼                                     ▼
//	     │                     TERM, grace, KILL ── --once ──▶ exit 75     back off
//	     └───────────────────────────── --restart ◀───────────────────────────┘
//
// While a command runs, signals are forwarded to it, and the term goes on until the command
// ends. Otherwise signals end this program.
//
// The lock is released only after lead returns, and lead returns only when no process of
// the command is left.
package runner

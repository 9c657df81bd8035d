//go:build linux

// Package fleet runs candidates of an election, each in a process of its own, for
// the programs that do harm to servers and networks and then judge what was
// recorded: e2e/torture and e2e/ha.
//
// A program that uses it calls [Be] first in main: its candidates are copies of
// the program. What they do and believe is recorded (package history); leaders
// write to the tables of [Schema], in fenced transactions.
//
// # Reading order
//
// fleet.go is the side of the program; candidate.go, lead.go, register.go and
// sample.go are the side of a candidate; checks.go judges what both know.
package fleet

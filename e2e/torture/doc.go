//go:build linux

// Command torture holds an election to its promise under everything that can be
// done to it: make torture MINUTES=2.
//
// Candidates of every kind, each in a process of its own, stand in one election,
// over both drivers, and reach the server by different routes: directly, through
// a proxy, through pgbouncer, and from a network namespace of their own. A
// nemesis draws faults from a deck, by a seed that it prints: each kind once, in
// random order, then again; now and then two at a time. Between them it waits
// until somebody leads. Leaders write, in fenced transactions, to a register.
//
// What every process did and believed is recorded (package history), and at the
// end the record is held to the promise: see checks.go. A run that fails keeps
// its history, and says where.
//
// # Where
//
// Linux. As root, the program moves into network and mount namespaces of its own
// first: links can be cut there, and a disk filled, and nothing of it is left
// behind, however the program ends. Elsewhere those faults are left out, and said
// so.
//
// # Reading order
//
// main.go, run.go (one run from its beginning to its end), stage.go (the servers,
// and the routes to them), fleet.go (the processes, which package fleet runs),
// nemesis.go and the four files of faults, checks.go, report.go.
package main

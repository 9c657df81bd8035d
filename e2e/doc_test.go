//go:build unix

// Package e2e_test holds the election to its promise on real servers, through
// real drivers, among real processes, and with real faults.
//
// # What is asserted, and what is not
//
// Machines are noisy, so no test asserts a figure of the wall clock. What is
// asserted is order (the leader stepped down, then the server freed the lock),
// counts (one statement per heartbeat), and that a thing happens at all, within
// a patience that is long. Tests wait for events, never for time to pass.
//
// # Reading order
//
// main_test.go has the cluster that most tests share, drivers_test.go what each
// test is repeated over, and harness_test.go a candidate inside this process,
// with the check that each of them leaves nothing behind. A candidate in a
// process of its own is candidate_test.go; fleet_test.go starts, commands and
// kills such processes, and history_test.go judges what they told. Every other
// file is one theme.
package e2e_test

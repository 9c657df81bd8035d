// Package electortest is a PostgreSQL server for tests, in memory, that is a
// *sql.DB. An elector runs on it as it is, without a database to install and, in a
// testing/synctest bubble, without waiting: an hour of an election takes a moment,
// and a test brings about at the very instant that it wants what is hard to have
// of a real server.
//
//	synctest.Test(t, func(t *testing.T) {
//		server := electortest.NewServer()
//		defer server.Close()
//		pool := server.Open()
//		defer pool.Close()
//		e, err := elector.New(pool, "orders")
//		…
//	})
//
// # What it does as PostgreSQL does
//
// It understands the statements of this library, by their text: sessions and their
// settings, advisory locks with their two key spaces, modes, counts and queues,
// transactions, timeouts, cancels, pg_locks and pg_stat_activity, hot standbys,
// promotions and timelines, crashes that forget what was not on the disk. That it
// does so as PostgreSQL does is tested: the scripts in e2e/conformance/testdata are
// played to it and to a real server, which must answer the same.
//
// Statements of your own it does not understand: a [Handler] answers them, and
// fails or commits as you say.
//
// # Faults
//
// A [Server] can be stopped, crash, stall, be promoted, run out of locks or
// connections, be upgraded, lose its synchronous standbys, and end a session. A [Process] is what connects to it: it can be cut
// off, one way or both, be slow, be frozen, be killed, have its clock set. A
// [Pooler] shares backends among clients, which the elector must refuse.
//
// # What it is not
//
// It stores nothing, and has one database, one role and no rights. Deadlocks are
// not found; isolation levels are not told apart. A statement happens at one instant
// except where it waits. It speaks no protocol: what concerns a real driver, a real
// network or the server's log must be tested with those.
//
// # Time and goroutines
//
// All its waiting is on channels and timers, as testing/synctest wants it. In a
// bubble a server must be made inside and closed before the bubble's function
// returns, like the pools. Each connection has a goroutine, which ends with it.
package electortest

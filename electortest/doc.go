// Package electortest is an in-memory stand-in for a PostgreSQL server, for tests. Electors
// run on it unchanged, through a *sql.DB. In a testing/synctest bubble they run without
// waiting, and a test can inject faults at exact times.
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
// # What it implements
//
// It implements the statements of this library, which it recognizes by their text:
// sessions and their settings; advisory locks with key spaces, modes, counts and queues;
// transactions, timeouts and cancels; pg_locks and pg_stat_activity; hot standbys,
// promotions and timelines; crashes that lose what was not flushed. The scripts in
// e2e/conformance/scripts.txt run on it and on a real server, and must get the same answers.
//
// Your program's own statements go to another pool, such as one of go-sqlmock ([Server.Forward]), or a
// [Handler] answers them.
//
// # Faults
//
// A [Server] can stop, crash, stall, be promoted or upgraded, run out of locks or
// connections, lose its synchronous standbys, and end a session. A [Process] connects to
// it: it can be cut off in one or both directions, be slow, frozen or killed, and have its
// clock set. A [Pooler] shares backends among clients.
//
// # Limits
//
// It stores no data, and has one database, one role and no privileges. It delivers no
// notifications, and has no roster. It does not detect deadlocks or distinguish isolation
// levels. A statement takes no time except where it waits. It implements no wire protocol:
// test drivers, networks and the server's log with a real server.
//
// # Time and goroutines
//
// It waits only on channels and timers, as testing/synctest requires. In a bubble, create
// servers and pools inside, and close them before the bubble's function returns. Each
// connection has a goroutine, which ends with it.
package electortest

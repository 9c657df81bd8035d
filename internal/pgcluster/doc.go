//go:build unix

// Package pgcluster starts throw-away PostgreSQL clusters: for the demo, the end-to-end tests and the
// benchmarks. It can hurt them in every way that a leader election must survive: restart, crash, freeze,
// fail over to a standby, cut the network, put a pooler in between.
//
// # What it is not for
//
// Nothing here is durable (fsync is off) or protected (every local user may connect as superuser).
// Never keep data in such a cluster.
//
// # A cluster
//
//	c, err := pgcluster.Start(ctx)   // about a third of a second; the first one on a machine takes longer
//	defer c.Stop()                   // its processes and its directory are gone after
//	db, err := sql.Open("pgx", c.DSN())
//
// It listens on 127.0.0.1 only, on a free port that it keeps through restarts. Its directory:
//
//	$TMPDIR/pgelector-<random>/
//	    data/         PGDATA
//	    server.log    what ServerLog returns
//	    run/<pid>     one empty file per process that runs here
//
// A method of a cluster, and of what was made from it, must not run concurrently with another method of
// the same object.
//
// # Nothing is left behind
//
// Each directory has a reaper: a small shell script (reaper.sh) in a session of its own, whose standard
// input is a pipe that only this process holds. The pipe closes when Stop closes it, and also when this
// process ends in whatever way: return, panic, Ctrl-C, kill -9. Then the reaper ends what is listed in
// run/ and removes the directory. Stop cleans up in no other way, so what every test uses is also what
// works after a crash.
//
//	Go process ──pipe──▶ reaper (own session) ──SIGQUIT, SIGKILL──▶ postmaster (own session) ─▶ backends
//
// Servers too run in sessions of their own: a Ctrl-C in the terminal reaches the Go process only.
// PostgreSQL and pgbouncer refuse to run as root, so for root they run as the user postgres, or nobody.
// The package builds on Unix systems only.
//
// One thing is kept on purpose: cache.go tells what, below the user's cache directory, makes the next start
// fast.
//
// # Reading order
//
// cluster.go, then sandbox.go (the directory and its reaper) and process.go; server.go starts and stops
// the postmaster; faults.go, standby.go, wal.go, proxy.go and bouncer.go are each on their own.
package pgcluster

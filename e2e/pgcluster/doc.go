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
// Each directory is that of a sandbox (package sandbox), whose reaper ends its processes and removes it: when
// Stop asks for it, and also when this process ends in whatever way: return, panic, Ctrl-C, kill -9.
//
//	Go process ──pipe──▶ reaper (own session) ──SIGQUIT, SIGKILL──▶ postmaster (own session) ─▶ backends
//
// The package builds on Unix systems only.
//
// One thing is kept on purpose: cache.go tells what, below the user's cache directory, makes the next start
// fast.
//
// # Reading order
//
// cluster.go, then package sandbox; server.go starts and stops the postmaster; faults.go, standby.go,
// wal.go, proxy.go and bouncer.go are each on their own.
package pgcluster

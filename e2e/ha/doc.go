//go:build linux

// Command ha holds elections to their promises on a high-availability cluster as
// people run them, and measures what each fault costs: make ha MINUTES=20.
//
// The cluster (package cluster) is etcd, three members of PostgreSQL under Patroni,
// HAProxy and PgBouncer. Candidates of every kind, each in a process of its own
// (package fleet), stand in one election over both drivers, and reach the primary by
// multi-host DSNs, HAProxy, and PgBouncer on either side of it. Faults are drawn by
// seed, each in turn, with asynchronous and with synchronous replication, and with
// WithSynchronousStandby. Leaders
// write in fenced transactions, and probes write to each member directly.
//
// What every process did and believed is recorded (package history), and at the end
// the record is held to the promises: see judge.go. A run that fails keeps its
// history, and says where.
//
// # Reading order
//
// main.go, run.go (one run from its beginning to its end), seats.go (the candidates
// and their routes), nemesis.go and faults.go, probe.go, judge.go, measure.go,
// report.go.
package main

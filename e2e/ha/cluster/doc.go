//go:build unix

// Package cluster runs a high-availability PostgreSQL cluster as people run them, on
// loopback: etcd, three members of PostgreSQL under Patroni, HAProxy with Patroni's
// health checks, and PgBouncer in session mode, both in front of HAProxy and behind
// it.
//
//	client ─ multi-host DSN ──────────────────────────▶ members
//	client ─▶ HAProxy (Cutting, Plain) ───────────────▶ the primary
//	client ─▶ PgBouncer (Front) ─▶ HAProxy (Plain) ───▶ the primary
//	client ─▶ HAProxy (Behind) ─▶ each member's PgBouncer ─▶ the primary
//
// Members reach each other through proxies, so that replication can be cut.
//
// Everything works in one sandbox (package sandbox): nothing is left behind, in
// whatever way this process ends. It needs Debian's packages postgresql, patroni,
// etcd-server, haproxy and pgbouncer, or the like; [Missing] tells.
//
// Nothing here is durable or protected. The methods of a cluster and of its members
// must not be called concurrently, but for those that only read: DSN, Members,
// [Member.Addr].
package cluster

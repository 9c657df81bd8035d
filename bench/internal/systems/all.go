package systems

import (
	"time"

	"github.com/pressly/goose/v3/lock"

	"github.com/pgelector/pgelector/elector"
)

// The names that the goals and the plans speak of.
const (
	RawPgx     = "raw lock, pgx"
	RawPq      = "raw lock, lib/pq"
	DefaultPgx = "pgelector default, pgx"
	DefaultPq  = "pgelector default, lib/pq"
	FastPgx    = "pgelector fast, pgx"
	FastPq     = "pgelector fast, lib/pq"
	FastestPgx = "pgelector fastest, pgx"
	Session    = "pgelector session, pgx"
	EtcdFast   = "etcd, fastest"
	GooseFast  = "goose session, fastest"
)

// All is every system, in the order of the tables.
func All() []System {
	quick := []Fault{Resign, Kill, Terminate}
	watching := []elector.Option{elector.WithStandby(elector.Wait), elector.WithWatch()}
	const defaults = "defaults: poll every 1 s, lease 10 s, heartbeat 2 s"
	const fast = "WithStandby(Wait), WithWatch(); lease 10 s, heartbeat 2 s"
	table := gooseTable("goose table, fastest", "retry and heartbeat 100 ms, lease 1 s",
		lock.WithTableLockTimeout(100*time.Millisecond, 1<<31), lock.WithTableHeartbeatInterval(100*time.Millisecond),
		lock.WithTableLeaseDuration(time.Second))
	return []System{
		raw(pgx, "pgx"),
		raw(pq, "lib/pq"),
		library(pgx, DefaultPgx, defaults, forDefault, nil),
		library(pq, DefaultPq, defaults, forDefault, nil),
		library(pgx, FastPgx, fast, forFast, quick, watching...),
		library(pq, FastPq, fast, forFast, quick, watching...),
		library(pgx, FastestPgx, "as fast, and WithLease(1s), the shortest", forFast, nil, append(watching, elector.WithLease(time.Second))...),
		shared(pgx, Session, "NewSession, "+defaults),
		riverLeader(),
		vaultLock(),
		gooseSession("goose session, default", "retried every 5 s", 5*time.Second),
		gooseSession(GooseFast, "retried every 1 s, the shortest", time.Second),
		table,
		migrateLock(),
		etcdElection("etcd, default", "session TTL 60 s", 60),
		etcdElection(EtcdFast, "session TTL 1 s, which the server lengthens to 2 s", 1),
	}
}

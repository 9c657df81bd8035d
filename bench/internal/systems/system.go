// Package systems has one adapter for each way to elect a leader that is measured. An adapter runs inside a
// candidate process and does what a user of that system would write, and nothing more; what it observes it
// tells a Reporter.
package systems

import (
	"context"
	"time"

	"github.com/pressly/goose/v3/lock"

	"github.com/pgelector/pgelector/elector"
)

// Fault is what befalls a leader.
type Fault string

// The faults, in the order of the tables.
const (
	Resign    Fault = "clean resignation"
	Kill      Fault = "kill -9"
	Terminate Fault = "pg_terminate_backend"
	Freeze    Fault = "SIGSTOP"
	BlackHole Fault = "black-holed link"
	Restart   Fault = "server restart"
)

// Faults is all of them.
var Faults = []Fault{Resign, Kill, Terminate, Freeze, BlackHole, Restart}

// System is one way to elect a leader, at one choice of its settings.
type System struct {
	Name     string
	Settings string // said in the tables
	For      string // what it is made for, and where it is better
	Etcd     bool   // it needs etcd and no PostgreSQL

	// Quick systems are expected to fail over in milliseconds after these faults: they are measured alone.
	Quick []Fault
	// Phase is the longest interval of its own clockwork: a fault comes at a random moment of it.
	Phase time.Duration
	// Cap is how long to wait for the next leader before giving up.
	Cap time.Duration
	// Cannot says why a fault is not tried.
	Cannot map[Fault]string
	// Never says why nobody takes over after a fault: tried once, to be sure.
	Never map[Fault]string

	// Blind says why the leader never learns of a loss. Empty if it does.
	Blind string

	// Prepare makes the tables that an election needs. Nil if none.
	Prepare func(ctx context.Context, dsn, election string) error
	// Run is a candidate. It returns after a resignation, or an error.
	Run func(ctx context.Context, env Env, out *Reporter) error
}

// Env is what a candidate is given.
type Env struct {
	System    string
	ID        string // also the application_name of every connection
	DSN       string
	Etcd      string
	Election  string
	Elections int // how many, named Election-0, Election-1, …; one is just Election

	Candidates int // how many of them the process plays, each with its own pool; 0 is 1

	Resign <-chan struct{} `json:"-"` // closed when the leader is to resign
}

// IsQuick reports whether the system is to be measured alone for this fault.
func (s System) IsQuick(f Fault) bool {
	for _, q := range s.Quick {
		if q == f {
			return true
		}
	}
	return false
}

// Find returns the system of that name.
func Find(name string) (System, bool) {
	for _, s := range All() {
		if s.Name == name {
			return s, true
		}
	}
	return System{}, false
}

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

// Package systems has one adapter per system under test. An adapter runs inside a candidate process. It contains
// only what a user of that system would write, and reports events to a Reporter.
package systems

import (
	"context"
	"slices"
	"time"

	"github.com/pressly/goose/v3/lock"

	"github.com/pgelector/pgelector/bench/internal/servers"
	"github.com/pgelector/pgelector/elector"
)

// A Fault ends a leadership.
type Fault string

// The faults, in the order of the tables.
const (
	Resign    Fault = "clean resignation"
	Kill      Fault = "kill -9"
	KillAgain Fault = "second kill -9" // of the next leader, with one more follower
	Terminate Fault = "pg_terminate_backend"
	Freeze    Fault = "SIGSTOP"
	BlackHole Fault = "black-holed link"
	Restart   Fault = "server restart"
)

// Faults is all of them.
var Faults = []Fault{Resign, Kill, KillAgain, Terminate, Freeze, BlackHole, Restart}

// System is one way to elect a leader, with one choice of settings.
type System struct {
	Name     string
	Settings string // for the report
	For      string // its purpose, and where it is better
	Server   string // what it uses in place of PostgreSQL: a name of package servers
	Own      bool   // it is this library
	Pooled   bool   // its candidates connect through PgBouncer in transaction mode

	// Quick are the faults after which the system elects within milliseconds. They are measured one at a time.
	Quick []Fault
	// Phase is the system's longest interval. The fault comes at a random moment of it.
	Phase time.Duration
	// Replaced is about how long a silent leader is not replaced, if that follows from no Phase.
	Replaced time.Duration
	// Cap is how long to wait for the next leader before giving up.
	Cap time.Duration
	// Cannot says why a fault is not measured.
	Cannot map[Fault]string
	// Never says why no other candidate leads after a fault. It is measured once, to confirm that.
	Never map[Fault]string

	// Blind says why a leader does not notice a loss. It is empty for a system whose leader does.
	Blind string

	// Prepare creates the tables that an election needs. It may be nil.
	Prepare func(ctx context.Context, dsn, election string) error
	// Run runs a candidate. It returns after a resignation or with an error.
	Run func(ctx context.Context, env Env, out *Reporter) error
}

// IsQuick reports whether f is among s.Quick.
func (s System) IsQuick(f Fault) bool { return slices.Contains(s.Quick, f) }

// Built reports whether the system's server is built, and runs only while such systems are measured.
func (s System) Built() bool { return servers.Programs[s.Server].Module != "" }

// Find returns the system with a name.
func Find(name string) (System, bool) {
	for _, s := range All() {
		if s.Name == name {
			return s, true
		}
	}
	return System{}, false
}

// Names returns the names of All, in their order.
func Names() (names []string) {
	for _, s := range All() {
		names = append(names, s.Name)
	}
	return names
}

// The names that goals and plans refer to.
const (
	RawPgx     = "raw lock, pgx"
	RawPq      = "raw lock, lib/pq"
	DefaultPgx = "pgelector default, pgx"
	DefaultPq  = "pgelector default, lib/pq"
	WaitPgx    = "pgelector wait, pgx"
	WaitPq     = "pgelector wait, lib/pq"
	FastestPgx = "pgelector fastest, pgx"
	FastestPq  = "pgelector fastest, lib/pq"
	PollPgx    = "pgelector poll, pgx"
	Session    = "pgelector session, pgx"
	Migrate    = "golang-migrate"
	Etcd       = "etcd, default"
	EtcdFast   = "etcd, fastest"
	River      = "river"
	GooseFast  = "goose session, fastest"
)

// All returns every system, in the order of the tables.
func All() []System {
	quick := []Fault{Resign, Kill, Terminate}
	wait, poll := elector.WithTakeover(elector.Wait), elector.WithTakeover(elector.Poll)
	fastest := []elector.Option{wait, elector.WithLease(time.Second)}
	const fastestText = "WithTakeover(Wait), WithLease(1s), the shortest"
	return []System{
		raw(pgx, RawPgx),
		raw(pq, RawPq),
		library(pgx, DefaultPgx, "no options", forDefault, quick),
		library(pq, DefaultPq, "no options", forDefault, quick),
		library(pgx, WaitPgx, "WithTakeover(Wait)", forWait, quick, wait),
		library(pq, WaitPq, "WithTakeover(Wait)", forWait, quick, wait),
		library(pgx, FastestPgx, fastestText, forFastest, quick, fastest...),
		library(pq, FastestPq, fastestText, forFastest, quick, fastest...),
		library(pgx, PollPgx, "WithTakeover(Poll)", forPoll, nil, poll),
		library(pgx, "pgelector lock delay, pgx", "WithLockDelay(10s)", forDelay, quick, elector.WithLockDelay(10*time.Second)),
		shared(pgx, Session, "NewSession without options"),
		pooled(library(pgx, "pgelector pooled, pgx", "no options, through PgBouncer in transaction mode", forPooled, nil)),
		pooled(library(pgx, "pgelector pooled deputy, pgx", "the same with WithTakeover(Deputy)", forPooledDeputy, nil, elector.WithTakeover(elector.Deputy))),
		riverLeader(),
		vaultLock(),
		gooseSession("goose session, default", "retried every 5 s", 5*time.Second),
		gooseSession(GooseFast, "retried every 1 s, the shortest", time.Second),
		gooseTable("goose table, fastest", "retry and heartbeat 100 ms, lease 1 s",
			lock.WithTableLockTimeout(100*time.Millisecond, 1<<31), lock.WithTableHeartbeatInterval(100*time.Millisecond),
			lock.WithTableLeaseDuration(time.Second)),
		migrateLock(),
		etcdElection(Etcd, "session TTL 60 s", 60),
		etcdElection(EtcdFast, "session TTL 1 s, which the server lengthens to 2 s", 1),
		consulLock("consul, default", "session TTL 15 s, lock delay 15 s", 15*time.Second, 15*time.Second),
		consulLock("consul, fastest", "session TTL 10 s, the shortest; lock delay 1 ms", 10*time.Second, time.Millisecond),
		kubernetesLease("client-go, default", 15*time.Second, 10*time.Second, 2*time.Second),
		kubernetesLease("client-go, fastest", time.Second, 750*time.Millisecond, 200*time.Millisecond),
	}
}

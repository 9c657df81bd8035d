package systems

import (
	"context"
	"time"
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

package electortest

import (
	"cmp"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Server stands in for a PostgreSQL server. It is made by [NewServer]; its
// methods may be called from any goroutine.
type Server struct {
	version int

	mu          sync.Mutex
	backends    map[int32]*backend
	locks       lockTable
	lastPID     int32
	most        int // connections; 0 is no limit
	down        bool
	recovery    bool
	timeline    int64
	started     time.Time
	epoch       string // pgelector.epoch of the database; "0" if it is not set
	lastXID     int64
	durable     int64 // the last transaction id that a crash does not forget
	clockRate   float64
	flush       time.Duration
	stalled     chan struct{} // closed when the server goes on; nil while it does
	handler     Handler
	replication replication
	trace       func(Event)
}

// Defaults of a new server.
const (
	defaultVersion = 150000
	firstPID       = 1000
	firstXID       = 700
	pidsApart      = 100_000 // those of a standby from its primary's
)

// NewServer starts a server: a primary on timeline 1, of version 15, without
// latency or limits. In a testing/synctest bubble it must be made inside, and
// closed by [Server.Close] before the bubble's test returns.
func NewServer() *Server {
	return &Server{version: defaultVersion, backends: map[int32]*backend{}, locks: lockTable{locks: map[lockID]*lock{}},
		lastPID: firstPID, timeline: 1, epoch: "0", started: time.Now(), lastXID: firstXID, durable: firstXID, clockRate: 1}
}

// Open returns a pool of connections to the server, of a process of its own. The
// caller closes it.
func (s *Server) Open() *sql.DB { return s.NewProcess().Open() }

// Close ends every connection, and refuses new ones.
func (s *Server) Close() {
	s.Resume()
	s.Stop()
}

// SetVersion makes the server one of another version, such as 170000 (as
// server_version_num says it), for connections that are made from now on. Which
// parameters are known depends on it. Default 150000.
func (s *Server) SetVersion(num int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = num
}

// SetTokenEpoch is ALTER DATABASE … SET pgelector.epoch = setting: it counts from the
// next election on. A setting that is no number from 0 to 32766 makes elections
// fail with [elector.ErrTokenEpoch]. A new server has none, which is 0.
func (s *Server) SetTokenEpoch(setting string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch = setting
}

// versionText is what version() says.
func versionText(num int) string {
	return fmt.Sprintf("PostgreSQL %d.%d (electortest)", num/10000, num%10000)
}

// Handle has handler answer every statement that is not of this library, from
// now on. Without one such statements fail.
func (s *Server) Handle(handler Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = handler
}

// Trace has fn told of all that happens on the server, from now on, in order; nil
// ends that. fn is called on the server's goroutines, one at a time; it must return
// soon, and not call the server.
func (s *Server) Trace(fn func(Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = fn
}

// An Event is something that happened on the server.
type Event struct {
	At          time.Time
	PID         int32  // of the backend
	Application string // its application_name: the candidate id, once it is a session
	What        string // "connected", "ended", the name of a statement of this library, or the text of another
	Done        bool   // whether the statement is answered; false as it begins
	Args        []any  // of the statement
	Held        []Lock // what a backend that ends had held
	Err         error  // why it failed, or why the server ended the backend; nil if its client left
}

// tell is called with the mutex held.
func (s *Server) tell(b *backend, e Event) {
	if s.trace == nil {
		return
	}
	e.At, e.PID = time.Now(), b.pid
	e.Application, _ = b.settings.get("application_name")
	if e.What == "ended" {
		e.Held = slices.DeleteFunc(s.lockRows(), func(l Lock) bool { return l.PID != b.pid || !l.Granted })
	}
	s.trace(e)
}

// A Lock is one line of pg_locks: an advisory lock that a backend holds or waits for.
type Lock struct {
	Key         int64
	Guard       bool // in the key space of two integers: an election's guard lock, or one of WithWatch
	Shared      bool
	PID         int32
	Application string // the backend's application_name
	Granted     bool
	Since       time.Time // of waiting; zero if granted
}

// Locks lists the advisory locks: by key, an election's own before its guard, who
// holds it before those that wait, the longest first.
func (s *Server) Locks() []Lock {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lockRows()
}

func (s *Server) lockRows() (rows []Lock) {
	for id, l := range s.locks.locks {
		for _, h := range l.holders {
			for _, m := range []mode{exclusive, shared} {
				if h.holds(m) {
					rows = append(rows, lockRow(id, m, h.b, time.Time{}))
				}
			}
		}
		for _, w := range l.queue {
			rows = append(rows, lockRow(id, w.mode, w.b, w.since))
		}
	}
	slices.SortStableFunc(rows, func(a, b Lock) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), a.id().compare(b.id()))
	})
	return rows
}

func (l Lock) id() lockID {
	if l.Guard {
		return lockID{objsubid: 2, key: l.Key}
	}
	return bigint(l.Key)
}

func lockRow(id lockID, m mode, b *backend, since time.Time) Lock {
	application, _ := b.settings.get("application_name")
	return Lock{Key: id.key, Guard: id.objsubid == 2, Shared: m == shared, PID: b.pid,
		Application: application, Granted: since.IsZero(), Since: since}
}

// Connections counts the backends.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.backends)
}

// connect starts a backend.
func (s *Server) connect() (*backend, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down:
		return nil, errRefused
	case s.most > 0 && len(s.backends) >= s.most:
		return nil, newError(tooManyConnections, "sorry, too many clients already")
	}
	s.lastPID++
	b := &backend{server: s, pid: s.lastPID, started: time.Now().Truncate(time.Microsecond), settings: settings{version: s.version},
		wake: make(chan struct{}, 1), cancelled: make(chan struct{}, 1), gone: make(chan struct{})}
	s.backends[b.pid] = b
	s.tell(b, Event{What: "connected", Done: true})
	go b.serve()
	return b, nil
}

// end ends a backend, with the mutex held: its transaction is rolled back and its
// locks are free. The client reads err; nil is for one that has left.
func (s *Server) end(b *backend, err error) {
	if s.backends[b.pid] != b {
		return
	}
	s.tell(b, Event{What: "ended", Done: true, Err: err})
	delete(s.backends, b.pid)
	s.locks.forget(b)
	b.tx = nil
	b.final = err
	close(b.gone)
}

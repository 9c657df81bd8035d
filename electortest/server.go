package electortest

import (
	"cmp"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// A Server is a stand-in for a PostgreSQL server, made by [NewServer]. Its methods may be
// called from any goroutine.
type Server struct {
	mu           sync.Mutex
	backends     map[int32]*backend
	locks        lockTable
	lastPID      int32
	maxBackends  int // 0 means no limit
	down         bool
	recovery     bool
	timeline     int64
	started      time.Time
	epoch        string // pgelector.epoch of the database; "0" if not set
	lastXID      int64
	transactions int64    // that clients have begun
	stamps       int64    // given to transactions
	committed    []string // the last fenced transactions that were, by their names
	durable      int64    // the last transaction id that a crash does not lose
	clockRate    float64
	flush        time.Duration
	stalled      chan struct{} // closed by Resume; nil unless stalled
	dead         chan struct{} // closed when it answers again; nil unless its host has died
	silent       []*backend    // that ended with their host, and whose clients know nothing of it
	checkpoint   checkpoint    // the last one
	handler      Handler
	forward      *forward // nil unless the tested program's statements go to another database
	replication  replication
	trace        func(Event)
	pools        map[*connector]*sql.DB // that its processes have opened, and nobody has closed
	remote       map[*backend]bool      // that have sent a statement to another database, and have not ended
}

// Defaults of a new server.
const (
	versionNum  = 150000
	versionText = "PostgreSQL 15.0 (electortest)"
	firstPID    = 1000
	firstXID    = 700
	pidsApart   = 100_000 // between the process ids of a primary and its standby
)

// NewServer starts a server: a primary on timeline 1, version 15, without latency or limits.
// In a testing/synctest bubble, create it inside and call [Server.Close] before the bubble's
// function returns.
func NewServer() *Server {
	return &Server{backends: map[int32]*backend{}, pools: map[*connector]*sql.DB{}, remote: map[*backend]bool{}, locks: lockTable{locks: map[lockID]*lock{}},
		lastPID: firstPID, timeline: 1, epoch: "0", started: time.Now(), lastXID: firstXID, durable: firstXID, clockRate: 1,
		checkpoint: checkpoint{timeline: 1, began: time.Now()}}
}

// start is when the server started, in seconds since 1970.
func (s *Server) start() string {
	return fmt.Sprintf("%d.%06d", s.started.Unix(), s.started.Nanosecond()/int(time.Microsecond))
}

// Open returns a pool of a new [Process]. The caller closes it, or Close does.
func (s *Server) Open() *sql.DB { return s.NewProcess().Open() }

// Close closes the pools, ends every connection and refuses new ones. With [Server.Forward] it waits until the
// transactions of the connections are rolled back.
func (s *Server) Close() {
	s.mu.Lock()
	pools, remote := maps.Clone(s.pools), slices.Collect(maps.Keys(s.remote))
	s.mu.Unlock()
	for _, pool := range pools {
		_ = pool.Close()
	}
	s.Resume()
	s.Stop()
	s.revive()
	s.Reset()
	for _, b := range remote {
		<-b.served
	}
}

// SetTokenEpoch acts as ALTER DATABASE … SET pgelector.epoch = setting, from the next
// election on. Unless the setting is a number from 0 to 32766, elections fail with
// elector.ErrTokenEpoch. Default 0.
func (s *Server) SetTokenEpoch(setting string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch = setting
}

// Handle sets the handler of all statements that are not of this library. Without one, and without
// [Server.Forward], such statements fail.
func (s *Server) Handle(handler Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = handler
}

// Trace makes the server call fn with each event, in order; nil ends that. fn is called on
// the server's goroutines, one call at a time. It must return soon and not call the server.
func (s *Server) Trace(fn func(Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = fn
}

// An Event is an event on the server.
type Event struct {
	At          time.Time
	PID         int32  // of the backend
	Application string // its application_name: the candidate id, if it is a session
	What        string // "connected", "ended", the name of a statement of this library, or another statement's text
	Done        bool   // false at the beginning of a statement
	Args        []any  // of the statement
	Held        []Lock // the locks of a backend that ends
	Err         error  // why the statement failed or the server ended the backend; nil if its client left
}

// report is called with the mutex held.
func (s *Server) report(b *backend, e Event) {
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

// A Lock is a row of pg_locks: an advisory lock that a backend holds or waits for.
type Lock struct {
	Key         int64
	Guard       bool // in the key space of two integers, such as a guard lock or a seat
	Shared      bool
	PID         int32
	Application string // the backend's application_name
	Granted     bool
	Since       time.Time // start of the wait; zero if granted
}

// Locks lists the advisory locks by key: an election's lock before its guard lock, the
// holder before the waiters in order. It omits those by which a session only tells its lease,
// and since when it leads.
func (s *Server) Locks() []Lock {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lockRows()
}

func (s *Server) lockRows() (rows []Lock) {
	for id, l := range s.locks.locks {
		if id.tells() {
			continue
		}
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
	case s.maxBackends > 0 && len(s.backends) >= s.maxBackends:
		return nil, newError(tooManyConnections, "sorry, too many clients already")
	}
	s.lastPID++
	b := &backend{server: s, pid: s.lastPID, started: time.Now().Truncate(time.Microsecond),
		wake: make(chan struct{}, 1), cancelled: make(chan struct{}, 1), served: make(chan struct{}), gone: make(chan struct{}), told: make(chan struct{})}
	s.backends[b.pid] = b
	s.report(b, Event{What: "connected", Done: true})
	go b.serve()
	return b, nil
}

// end ends a backend: it rolls back its transaction and releases its locks. The client reads
// err; nil means that the client left. The caller holds the mutex.
func (s *Server) end(b *backend, err error) {
	if s.backends[b.pid] == b {
		s.endSilently(b, err)
		close(b.told)
	}
}

// endSilently ends a backend, and tells its client nothing.
func (s *Server) endSilently(b *backend, err error) {
	s.report(b, Event{What: "ended", Done: true, Err: err})
	delete(s.backends, b.pid)
	s.locks.forget(b)
	b.tx = nil
	b.final = err
	close(b.gone)
}

// A Handler answers the statements of the tested program: those that are not of this
// library. It is called on the server's goroutines, one call at a time for each connection,
// and may block, which prolongs the statement. Its error fails the statement.
type Handler func(Statement) (Answer, error)

// A Statement is a statement that a client sent.
type Statement struct {
	SQL  string
	Args []any // int64, float64, bool, []byte, string, time.Time or nil
	PID  int32 // of the backend that executes it

	tx *transaction
}

// OnCommit registers fn to be called if the statement's transaction commits, before its
// locks are released and its client is answered. fn must not block or call the server.
func (s Statement) OnCommit(fn func()) { s.tx.commit = append(s.tx.commit, fn) }

// An Answer is the result of a statement. The zero value has no rows, and affects none.
type Answer struct {
	Columns  []string // may be nil: the names are then empty
	Rows     [][]any  // values that driver.IsValue accepts
	Affected int64

	result driver.Result // of a forwarded statement; nil otherwise
	rows   *remoteRows   // of a forwarded query; nil otherwise
}

// others executes a statement of the tested program.
func others(x *execution, m *message) (Answer, error) {
	if x.server.forward != nil {
		return x.forwarded(m)
	}
	handler := x.server.handler
	if handler == nil {
		return Answer{}, newError(unsupported, "electortest has no handler for statements other than pgelector's (Server.Handle, Server.Forward): %s", m.query)
	}
	x.server.mu.Unlock()
	defer x.server.mu.Lock()
	return handler(Statement{SQL: m.query, Args: m.args, PID: x.pid, tx: x.tx})
}

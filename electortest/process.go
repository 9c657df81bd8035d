package electortest

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// A Process is a client process: its pools, and its network to the server. Its methods
// inject faults into all of its pools, until they are undone. They may be called at any
// time, from any goroutine.
type Process struct {
	mu      sync.Mutex
	server  *Server
	pooler  *Pooler // nil if there is none
	driver  Driver
	latency func() time.Duration
	cut     [2]bool
	frozen  bool
	killed  bool
	shift   time.Duration // of the wall clock
	changed chan struct{} // closed at the next change
	conns   map[*conn]bool
}

// NewProcess returns a process that connects to the server without latency.
func (s *Server) NewProcess() *Process {
	return &Process{server: s, changed: make(chan struct{}), conns: map[*conn]bool{}}
}

// Open returns a pool of connections of the process. The caller closes it, or [Server.Close] does.
func (p *Process) Open() *sql.DB {
	p.mu.Lock()
	c := &connector{p: p, home: p.server}
	p.mu.Unlock()
	pool := sql.OpenDB(c)
	c.home.mu.Lock()
	defer c.home.mu.Unlock()
	c.home.pools[c] = pool
	return pool
}

// change makes a change and wakes all who wait for one.
func (p *Process) change(what func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what()
	close(p.changed)
	p.changed = make(chan struct{})
}

// ConnectTo makes new connections reach another server, as after a failover. Existing ones
// stay.
func (p *Process) ConnectTo(server *Server) {
	if p.pooler != nil {
		p.pooler.connectTo(server)
	}
	p.change(func() { p.server = server })
}

// A Driver is the driver that a process's connections imitate.
type Driver int

const (
	// PGX returns from a call when its context ends, and checks an idle connection
	// before reuse. A leader learns at once that its connection has ended. It is the default.
	PGX Driver = iota
	// PQ on a dead network waits for an answer, even after the context ends. It does not
	// check idle connections. A leader learns within 250 ms that its connection has ended.
	PQ
)

// SetDriver sets the driver to imitate: PGX or PQ. Call it before the process connects. Within a transaction both behave as PGX,
// because with PQ database/sql would wait on a mutex, which stops the virtual time of
// testing/synctest.
func (p *Process) SetDriver(d Driver) { p.change(func() { p.driver = d }) }

// SetLatency sets a function that returns the travel time of each message, in each
// direction. Default nil: none. It is called concurrently.
func (p *Process) SetLatency(latency func() time.Duration) { p.change(func() { p.latency = latency }) }

// A direction is a direction of the network.
type direction int

const (
	requests direction = iota
	answers
)

// A Loss says what a cut network loses.
type Loss int

// The directions that [Process.Cut] can cut.
const (
	Both     Loss = iota // in both directions
	Requests             // from the process
	Answers              // from the server
)

// Cut cuts the network silently: messages do not arrive before Mend.
func (p *Process) Cut(loss Loss) {
	p.change(func() { p.cut = [2]bool{loss != Answers, loss != Requests} })
}

// Mend repairs the network.
func (p *Process) Mend() { p.change(func() { p.cut = [2]bool{} }) }

// Freeze stops the process as SIGSTOP does, as far as the library can tell: it sends
// nothing, driver calls do not return, and calls that read the clock, such as IsLeader,
// block until Thaw. The program's goroutines go on, and a call within a transaction returns
// when its context ends.
func (p *Process) Freeze() { p.change(func() { p.frozen = true }) }

// Thaw ends a Freeze.
func (p *Process) Thaw() { p.change(func() { p.frozen = false }) }

// ErrKilled is returned by the calls of a killed process.
var ErrKilled = errors.New("electortest: the process was killed")

// Kill ends the process as SIGKILL does: its connections close. It cannot stop the program's
// goroutines, but all later calls of their pools fail with [ErrKilled].
func (p *Process) Kill() {
	var all []*conn
	p.change(func() {
		p.killed, p.frozen = true, false
		all = slices.Collect(maps.Keys(p.conns))
	})
	for _, c := range all {
		if c.end != nil {
			c.end.post(&message{kind: aBye, from: p})
		}
	}
	if p.pooler != nil {
		p.pooler.hangUp(p, all)
	}
}

// blocked returns nil if messages pass in that direction, or a channel that the next change
// closes.
func (p *Process) blocked(d direction) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut[d] {
		return p.changed
	}
	return nil
}

// ShiftClock sets the process's wall clock forward, or back if d is negative. To the library
// this looks like a machine whose monotonic clock stopped while it slept.
func (p *Process) ShiftClock(d time.Duration) { p.change(func() { p.shift += d }) }

// ClockShift is called by the library on drivers that simulate a process.
func (d processDriver) ClockShift() time.Duration {
	for stopped := d.p.stopped(); stopped != nil; stopped = d.p.stopped() {
		<-stopped
	}
	d.p.mu.Lock()
	defer d.p.mu.Unlock()
	return d.p.shift
}

// stopped returns nil unless the process is frozen.
func (p *Process) stopped() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen {
		return p.changed
	}
	return nil
}

// imitates returns the driver to imitate.
func (p *Process) imitates() Driver {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.driver
}

// thaws waits while the process is frozen, and reports whether it is not before ctx is done.
func (p *Process) thaws(ctx context.Context) bool {
	p.awaitThaw(ctx, true)
	return ctx.Err() == nil
}

func (p *Process) isKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// delay returns the travel time of the next message.
func (p *Process) delay() time.Duration {
	p.mu.Lock()
	latency := p.latency
	p.mu.Unlock()
	if latency == nil {
		return 0
	}
	return latency()
}

// next returns a channel that the next change closes.
func (p *Process) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// awaitThaw waits while the process is frozen. In a transaction it also returns when ctx
// ends.
func (p *Process) awaitThaw(ctx context.Context, inTx bool) {
	var done <-chan struct{}
	if inTx {
		done = ctx.Done()
	}
	for stopped := p.stopped(); stopped != nil; stopped = p.stopped() {
		select {
		case <-stopped:
		case <-done:
			return
		}
	}
}

// arrive waits for an answer to arrive. It returns false if done is closed first.
func (p *Process) arrive(done <-chan struct{}) bool {
	t := newTimer(p.delay())
	defer t.Stop()
	if t.C != nil {
		select {
		case <-t.C:
		case <-done:
			return false
		}
	}
	for blocked := p.blocked(answers); blocked != nil && !p.isKilled(); blocked = p.blocked(answers) {
		select {
		case <-blocked:
		case <-done:
			return false
		}
	}
	return true
}

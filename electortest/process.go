package electortest

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"
)

// A Process is a client of the server: its pools, and the network between them.
// Faults of a process and of its network are methods of it; they concern all of its
// pools, may be made at any time, from any goroutine, and last until they are undone.
type Process struct {
	mu      sync.Mutex
	server  *Server
	pooler  *Pooler // in between; nil if there is none
	driver  Driver
	latency func() time.Duration
	cut     [2]bool
	frozen  bool
	killed  bool
	shift   time.Duration // of the wall clock
	changed chan struct{} // closed at the next change of these
	conns   map[*conn]bool
}

// NewProcess returns a process that connects to the server, at once and without
// latency.
func (s *Server) NewProcess() *Process {
	return &Process{server: s, changed: make(chan struct{}), conns: map[*conn]bool{}}
}

// Open returns a pool of connections of the process. The caller closes it.
func (p *Process) Open() *sql.DB { return sql.OpenDB(connector{p}) }

// change makes one change, and has all who wait for one look again.
func (p *Process) change(what func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what()
	close(p.changed)
	p.changed = make(chan struct{})
}

// ConnectTo makes the process's next connections reach another server, as after a
// failover. Those that it has stay where they are.
func (p *Process) ConnectTo(server *Server) { p.change(func() { p.server = server }) }

// A Driver is the driver after which the connections of a process behave.
type Driver int

const (
	// PGX returns from a call when its context ends, and looks whether an idle
	// connection still lives before it is used again. It is the default.
	PGX Driver = iota
	// PQ waits, on a dead network, for an answer whatever the context says, and
	// learns that an idle connection is dead from the statement that fails on it.
	PQ
)

// SetDriver sets after which driver the process's connections behave: PGX or PQ.
// Within a transaction all behave as PGX: database/sql would wait for the other
// on a mutex, which stops the virtual time of testing/synctest.
func (p *Process) SetDriver(d Driver) { p.change(func() { p.driver = d }) }

// SetLatency has latency asked for how long each message is under way, in each
// direction. Default nil: no time at all. It is called from many goroutines.
func (p *Process) SetLatency(latency func() time.Duration) { p.change(func() { p.latency = latency }) }

// A direction is one of the network's two.
type direction int

const (
	requests direction = iota
	answers
)

// A Loss is what a cut network loses.
type Loss int

// What [Process.Cut] can cut off.
const (
	Both     Loss = iota // in both directions
	Requests             // what the process sends
	Answers              // what the server sends
)

// Cut cuts the network: what is sent does not arrive before Mend, and nobody is
// told. A connection whose end has closed it meanwhile is found closed then.
func (p *Process) Cut(loss Loss) {
	p.change(func() { p.cut = [2]bool{loss != Answers, loss != Requests} })
}

// Mend makes the network whole again.
func (p *Process) Mend() { p.change(func() { p.cut = [2]bool{} }) }

// Freeze stops the process as SIGSTOP does, as far as the library can tell: it
// sends nothing, no call of its driver returns, and whoever looks at the time to
// see whether a lease holds, as IsLeader does, stands still until Thaw. Goroutines
// of the program itself go on, and so does a call within a transaction whose
// context ends.
func (p *Process) Freeze() { p.change(func() { p.frozen = true }) }

// Thaw ends a Freeze.
func (p *Process) Thaw() { p.change(func() { p.frozen = false }) }

// ErrKilled is what the calls of a process return that was killed.
var ErrKilled = errors.New("electortest: the process was killed")

// Kill ends the process as SIGKILL does: the server sees its connections closed.
// It cannot stop the program's goroutines, but whatever they ask of their pools
// fails from now on with [ErrKilled].
func (p *Process) Kill() {
	var ends []*backend
	p.change(func() {
		p.killed, p.frozen = true, false
		for c := range p.conns {
			ends = append(ends, c.end)
		}
	})
	for _, b := range ends {
		if b != nil {
			b.post(&message{kind: aBye, from: p})
		}
	}
}

// blocked is nil if messages pass in that direction, else closed at the next change.
func (p *Process) blocked(d direction) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut[d] {
		return p.changed
	}
	return nil
}

// ShiftClock sets the wall clock of the process forward, or back if d is negative,
// as far as the library reads it. A machine that slept, and whose monotonic clock
// stood still meanwhile, looks the same.
func (p *Process) ShiftClock(d time.Duration) { p.change(func() { p.shift += d }) }

// ClockShift is what the library asks a driver that stands for a process of its own.
func (d processDriver) ClockShift() time.Duration {
	for stopped := d.p.stopped(); stopped != nil; stopped = d.p.stopped() {
		<-stopped
	}
	d.p.mu.Lock()
	defer d.p.mu.Unlock()
	return d.p.shift
}

// stopped is nil unless the process is frozen.
func (p *Process) stopped() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen {
		return p.changed
	}
	return nil
}

func (p *Process) isKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// delay is how long the next message is under way.
func (p *Process) delay() time.Duration {
	p.mu.Lock()
	latency := p.latency
	p.mu.Unlock()
	if latency == nil {
		return 0
	}
	return latency()
}

// next is closed at the next change.
func (p *Process) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// awaitThaw waits while the process is frozen. In a transaction it does not
// outlast its context.
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

// arrive waits for a message to come back. If done is closed first, it reports that.
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

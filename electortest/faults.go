package electortest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// errRefused is the error of connecting to a server that is down.
var errRefused = fmt.Errorf("electortest: %w", &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})

// ErrPrimary is returned by Promote if the server is a primary already.
var ErrPrimary = errors.New("electortest: the server is not a standby")

// Terminate ends a backend as pg_terminate_backend does, and reports whether it existed.
// elector.Leader has the leader's process id.
func (s *Server) Terminate(pid int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.backends[pid]
	if b != nil {
		s.end(b, newError(adminShutdown, "terminating connection due to administrator command"))
	}
	return b != nil
}

// Cancel cancels a backend's statement as pg_cancel_backend does, and reports whether the
// backend exists.
func (s *Server) Cancel(pid int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.backends[pid]
	if b != nil {
		b.cancel()
	}
	return b != nil
}

// Stop shuts the server down. It ends every backend with an error, and releases all locks.
func (s *Server) Stop() {
	s.endAll(func() error { return newError(adminShutdown, "terminating connection due to administrator command") })
}

// Crash is like Stop, but breaks the connections without an error message, and loses
// transactions that were not flushed.
func (s *Server) Crash() {
	s.endAll(func() error { return errCut })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastXID = s.durable
}

// LosePower ends the server as the death of its host does: a power loss, a kernel that panics, a
// virtual machine that is ended. It loses what a crash loses, and tells no client. The connections stay
// silent until [Server.Reset], and new ones wait for [Server.Start].
func (s *Server) LosePower() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pid := range slices.Sorted(maps.Keys(s.backends)) {
		b := s.backends[pid]
		s.endSilently(b, ErrHostDied)
		b.final = errCut
		s.silent = append(s.silent, b)
	}
	s.lastXID, s.down = s.durable, true
	if s.dead == nil {
		s.dead = make(chan struct{})
	}
}

// ErrHostDied is the error with which [Server.Trace] shows the end of a backend by LosePower.
var ErrHostDied = errors.New("electortest: the host has died")

// Reset resets the connections that LosePower has left silent. A host that is up again does so when it
// hears from their clients. Close does so, too.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.silent {
		close(b.told)
	}
	s.silent = nil
}

// answers returns nil if the server answers those who connect, or a channel that is closed when it does.
func (s *Server) answers() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// Start starts a server after Stop, Crash or LosePower. A server that runs goes on.
func (s *Server) Start() {
	s.mu.Lock()
	if s.down {
		s.down, s.started, s.transactions = false, time.Now(), 0
	}
	s.mu.Unlock()
	s.revive()
}

// revive lets the server answer, or refuse, those who connect.
func (s *Server) revive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead != nil {
		close(s.dead)
		s.dead = nil
	}
}

// A checkpoint belongs to the timeline on which the server was a primary.
type checkpoint struct {
	timeline int64
	began    time.Time
}

// Checkpoint makes a checkpoint, as a server does now and then, and soon after its promotion. This
// server makes none by itself.
func (s *Server) Checkpoint() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkpoint = checkpoint{s.timeline, time.Now()}
}

func (s *Server) endAll(why func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	for _, pid := range slices.Sorted(maps.Keys(s.backends)) { // deterministic order
		s.end(s.backends[pid], why())
	}
}

// Stall stops all work of the server, as a hanging disk does, until Resume. Timeouts that
// expire meanwhile take effect then.
func (s *Server) Stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stalled == nil {
		s.stalled = make(chan struct{})
	}
}

// Resume ends a Stall.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stalled != nil {
		close(s.stalled)
		s.stalled = nil
	}
}

// SetFlush sets how long a durable commit takes, such as that of an election. Default 0. The
// transaction keeps its locks meanwhile.
func (s *Server) SetFlush(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush = d
}

// SetClockRate makes the server's clock, and so its timeouts, run faster (above 1) or slower
// than its clients' clocks. Default 1. A rate that is not positive means 1.
func (s *Server) SetClockRate(rate float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !(rate > 0) {
		rate = 1
	}
	s.clockRate = rate
}

// onClock converts a duration of the server's clock.
func (s *Server) onClock(d time.Duration) time.Duration {
	return time.Duration(float64(d) / s.clockRate)
}

// LimitLocks sets the size of the lock table: how many advisory locks can be held, counted
// for each backend. One more fails with SQLSTATE 53200. Default 0: no limit.
func (s *Server) LimitLocks(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locks.size = n
}

// LimitConnections sets how many connections there can be. One more fails with SQLSTATE
// 53300. Default 0: no limit.
func (s *Server) LimitConnections(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxBackends = n
}

// NewStandby starts a hot standby. It does not know its primary's locks, and has replayed
// all of its transactions except the last lag ones.
func (s *Server) NewStandby(lag int) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	standby := NewServer()
	standby.timeline, standby.epoch, standby.recovery = s.timeline, s.epoch, true
	standby.checkpoint = s.checkpoint
	standby.lastXID = max(s.durable-int64(lag), 0)
	standby.durable = standby.lastXID
	standby.lastPID = s.lastPID + pidsApart
	standby.handler, standby.forward, standby.trace = s.handler, s.forward, s.trace
	return standby
}

// Promote makes a standby a primary, on the next timeline. Its old primary goes on, if it
// runs. If the server is no standby, Promote returns ErrPrimary.
func (s *Server) Promote() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.recovery {
		return ErrPrimary
	}
	s.recovery = false
	s.timeline++
	return nil
}

// Upgrade restarts the server on timeline 1, as pg_upgrade does. Transaction ids and the
// epoch stay, but tokens fall if there was a promotion before.
func (s *Server) Upgrade() {
	s.Stop()
	s.mu.Lock()
	s.timeline = 1
	s.mu.Unlock()
	s.Start()
}

// A Pooler shares a few backends among clients, as pgbouncer does in transaction mode: a
// client keeps a backend for one transaction. Electors lead inside a transaction there.
type Pooler struct {
	server *Server
	size   int

	mu    sync.Mutex
	all   []*backend
	idle  []*backend    // the last used comes first
	freed chan struct{} // closed at the next change
}

// NewPooler returns a pooler with the given number of backends, at least 1.
func (s *Server) NewPooler(backends int) *Pooler {
	return &Pooler{server: s, size: max(backends, 1), freed: make(chan struct{})}
}

// Open returns a pool of connections to the pooler. The caller closes it. Closing the server
// ends the pooler's backends.
func (p *Pooler) Open() *sql.DB { return p.NewProcess().Open() }

// NewProcess returns a process that connects to the pooler. Its ConnectTo makes the pooler
// connect to another server, for all clients of the pooler.
func (p *Pooler) NewProcess() *Process {
	process := p.server.NewProcess()
	process.pooler = p
	return process
}

// Restart ends all backends of the pooler, as its end does.
func (p *Pooler) Restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.all {
		b.server.mu.Lock()
		b.server.end(b, errCut)
		b.server.mu.Unlock()
	}
	p.idle = nil
}

// connectTo takes new backends from another server, and ends idle backends.
func (p *Pooler) connectTo(server *Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
	for _, b := range p.idle {
		b.server.mu.Lock()
		b.server.end(b, nil)
		b.server.mu.Unlock()
	}
	p.idle = nil
}

// hangUp ends the backends that are kept for these clients of a process.
func (p *Pooler) hangUp(process *Process, clients []*conn) {
	p.mu.Lock()
	all := slices.Clone(p.all)
	p.mu.Unlock()
	for _, b := range all {
		b.server.mu.Lock()
		client := b.client
		b.server.mu.Unlock()
		if slices.Contains(clients, client) {
			b.post(&message{kind: aBye, from: process, client: client, after: p.put})
		}
	}
}

// take waits for a backend, for a client of a process.
func (p *Pooler) take(ctx context.Context, process *Process) (*backend, error) {
	for {
		changed := process.next()
		if process.isKilled() {
			return nil, ErrKilled
		}
		b, freed, err := p.tryTake()
		if b != nil || err != nil {
			return b, err
		}
		select {
		case <-freed:
		case <-changed:
		case <-ctx.Done():
			return nil, closedBy(ctx)
		}
	}
}

func (p *Pooler) tryTake() (*backend, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, (*backend).isGone)
	p.idle = slices.DeleteFunc(p.idle, (*backend).isGone)
	if last := len(p.idle) - 1; last >= 0 {
		b := p.idle[last]
		p.idle = p.idle[:last]
		return b, nil, nil
	}
	if len(p.all) >= p.size {
		return nil, p.freed, nil
	}
	b, err := p.server.connect()
	if err == nil {
		p.all = append(p.all, b)
		go func() { // those who wait may connect another one
			<-b.gone
			p.mu.Lock()
			defer p.mu.Unlock()
			p.free()
		}()
	}
	return b, nil, err
}

// free wakes those who wait for a backend. The caller holds the mutex.
func (p *Pooler) free() {
	close(p.freed)
	p.freed = make(chan struct{})
}

// put takes a backend back unless its client's transaction is open. The backend's goroutine
// calls it.
func (p *Pooler) put(b *backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.server.mu.Lock() // others may end the backend
	switch {
	case b.tx != nil || b.isGone():
	case b.server != p.server:
		b.server.end(b, nil)
	default:
		b.client = nil
		p.idle = append(p.idle, b)
	}
	b.server.mu.Unlock()
	p.free()
}

func (b *backend) isGone() bool {
	select {
	case <-b.gone:
		return true
	default:
		return false
	}
}

// route returns the backend for a message: the connection's, the transaction's, or any.
func (c *conn) route(ctx context.Context, m *message) (*backend, error) {
	if c.p.pooler == nil {
		return c.b, nil
	}
	if c.b == nil {
		b, err := c.p.pooler.take(ctx, c.p)
		if err != nil {
			return nil, err
		}
		b.server.mu.Lock()
		b.client = c
		b.server.mu.Unlock()
		c.b = b
		if c.p.isKilled() { // Kill may have missed that the backend is kept for it
			c.abort()
			return nil, ErrKilled
		}
	}
	b := c.b
	m.after = c.p.pooler.put
	if c.tx == nil || m.kind == aCommit || m.kind == aRollback {
		c.b = nil
	}
	return b, nil
}

package electortest

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"syscall"
	"time"
)

// errRefused is what a client gets that connects to a server that is down.
var errRefused = fmt.Errorf("electortest: %w", &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})

// ErrPrimary is returned by Promote on a server that is a primary already.
var ErrPrimary = errors.New("electortest: the server is not a standby")

// Terminate ends a backend as pg_terminate_backend does, and reports whether
// there was one of that process id. [elector.Leader] has the leader's.
func (s *Server) Terminate(pid int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.backends[pid]
	if b != nil {
		s.end(b, newError(adminShutdown, "terminating connection due to administrator command"))
	}
	return b != nil
}

// Cancel cancels a backend's statement as pg_cancel_backend does, and reports
// whether there is a backend of that process id.
func (s *Server) Cancel(pid int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.backends[pid]
	if b != nil {
		b.cancel()
	}
	return b != nil
}

// Stop shuts the server down: it ends every backend and tells its client why. No
// lock survives that.
func (s *Server) Stop() {
	s.endAll(func() error { return newError(adminShutdown, "terminating connection due to administrator command") })
}

// Crash is Stop of a server that had no time for farewells: the connections just
// break, and transactions that had not reached the disk are forgotten.
func (s *Server) Crash() {
	s.endAll(func() error { return errCut })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastXID = s.durable
}

// Start starts a server that was stopped or has crashed.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.started = false, time.Now()
}

func (s *Server) endAll(why func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	for _, pid := range slices.Sorted(maps.Keys(s.backends)) { // in a fixed order
		s.end(s.backends[pid], why())
	}
}

// Stall makes the server do nothing, as one whose disk hangs, until Resume.
// Timeouts that run out meanwhile are acted upon when it goes on.
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

// SetFlush sets how long it takes to commit what must survive a crash, such as the
// statement that elects: default 0. Its transaction keeps its locks meanwhile.
func (s *Server) SetFlush(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush = d
}

// SetClockRate lets the server's clock run faster (above 1) or slower than that
// of its clients: its timeouts run out sooner, or later. Default 1; a rate that is
// not positive is taken for 1.
func (s *Server) SetClockRate(rate float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !(rate > 0) {
		rate = 1
	}
	s.clockRate = rate
}

// onClock is how long a time of the server's clock is.
func (s *Server) onClock(d time.Duration) time.Duration {
	return time.Duration(float64(d) / s.clockRate)
}

// LimitLocks sets how many advisory locks can be held at once, each counted once
// for each backend that holds it: one more fails with SQLSTATE 53200, as with a
// lock table that is full. Default 0: no limit.
func (s *Server) LimitLocks(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locks.room = n
}

// LimitConnections sets how many connections there can be at once: one more fails
// with SQLSTATE 53300. Default 0: no limit.
func (s *Server) LimitConnections(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = n
}

// NewStandby starts a hot standby of the server: it knows of no lock of its
// primary's and has, as yet, replayed all of its transactions but the last few,
// lag of them.
func (s *Server) NewStandby(lag int) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	standby := NewServer()
	standby.version, standby.timeline, standby.epoch, standby.recovery = s.version, s.timeline, s.epoch, true
	standby.lastXID = max(s.durable-int64(lag), 0)
	standby.durable = standby.lastXID
	standby.lastPID = s.lastPID + pidsApart
	standby.handler, standby.trace = s.handler, s.trace
	return standby
}

// Promote makes a standby a primary, on the next timeline. Its old primary, if it
// still runs, is not told. It returns ErrPrimary if there is nothing to promote.
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

// Upgrade restarts the server on timeline 1, as pg_upgrade does: transaction ids go
// on, and so does the epoch, but tokens fall if there was a promotion before.
func (s *Server) Upgrade() {
	s.Stop()
	s.mu.Lock()
	s.timeline = 1
	s.mu.Unlock()
	s.Start()
}

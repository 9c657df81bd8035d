//go:build unix

package pgcluster

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// errDown is returned by the faults that need a running server.
var errDown = errors.New("pgcluster: the server is down; Resume starts it")

// Kill ends the postmaster and every backend by SIGKILL, as a crash of the whole machine would, and
// returns when they have ended. Resume starts the server again.
func (c *Cluster) Kill() error {
	pids, err := c.stopAll()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	<-c.server.done
	// The orphans are not ours to wait for, but until they are gone the server cannot start again.
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if alive, err := anyAlive(pids); err != nil || !alive {
			return err
		}
	}
	return fmt.Errorf("pgcluster: of the processes %v some survived SIGKILL for 10 seconds", pids)
}

// KillBackend ends one backend by SIGKILL, as the out-of-memory killer does. The server then ends all
// other sessions and goes through crash recovery; WaitReady waits for its end.
func (c *Cluster) KillBackend(pid int) error {
	return c.signalBackend(pid, syscall.SIGKILL)
}

// Freeze stops every process of the server by SIGSTOP: connections stay open and nothing answers.
func (c *Cluster) Freeze() error {
	_, err := c.stopAll()
	return err
}

// Thaw lets a frozen server go on. It does nothing to one that is not frozen.
func (c *Cluster) Thaw() error {
	if !c.running() {
		return errDown
	}
	children, err := childrenOf(c.server.pid)
	if err != nil {
		return err
	}
	for _, pid := range append(children, c.server.pid) {
		syscall.Kill(pid, syscall.SIGCONT)
	}
	return nil
}

// stopAll freezes the server's processes and returns them, the postmaster first: from then on it can
// start no other, and the list is complete.
func (c *Cluster) stopAll() ([]int, error) {
	if !c.running() {
		return nil, errDown
	}
	if err := syscall.Kill(c.server.pid, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("pgcluster: stop the postmaster: %w", err)
	}
	children, err := childrenOf(c.server.pid)
	if err != nil {
		return nil, errors.Join(err, syscall.Kill(c.server.pid, syscall.SIGCONT))
	}
	for _, pid := range children {
		syscall.Kill(pid, syscall.SIGSTOP)
	}
	return append([]int{c.server.pid}, children...), nil
}

// FreezeBackend stops one backend by SIGSTOP, ThawBackend lets it go on.
func (c *Cluster) FreezeBackend(pid int) error { return c.signalBackend(pid, syscall.SIGSTOP) }

// ThawBackend lets a backend that FreezeBackend stopped go on.
func (c *Cluster) ThawBackend(pid int) error { return c.signalBackend(pid, syscall.SIGCONT) }

// signalBackend refuses a process that is not this server's: a wrong id must not hit a stranger.
func (c *Cluster) signalBackend(pid int, signal syscall.Signal) error {
	if !c.running() {
		return errDown
	}
	children, err := childrenOf(c.server.pid)
	if err != nil {
		return err
	}
	if !slices.Contains(children, pid) {
		return fmt.Errorf("pgcluster: process %d is not a backend of this server", pid)
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return fmt.Errorf("pgcluster: signal backend %d: %w", pid, err)
	}
	return nil
}

//go:build unix

package pgcluster

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// errDown is returned by the faults that need a running server.
var errDown = errors.New("pgcluster: the server is down; Resume starts it")

// Kill ends the postmaster and every backend by SIGKILL, as a crash of the whole machine would, and
// returns when they have ended. Resume starts the server again.
func (c *Cluster) Kill() error {
	if !c.running() {
		return errDown
	}
	err := sandbox.Kill(c.server.PID)
	<-c.server.Done
	return err
}

// KillBackend ends one backend by SIGKILL, as the out-of-memory killer does. The server then ends all
// other sessions and goes through crash recovery; WaitReady waits for its end.
func (c *Cluster) KillBackend(pid int) error {
	return c.signalBackend(pid, syscall.SIGKILL)
}

// Freeze stops every process of the server by SIGSTOP: connections stay open and nothing answers.
func (c *Cluster) Freeze() error {
	if !c.running() {
		return errDown
	}
	_, err := sandbox.Freeze(c.server.PID)
	return err
}

// Thaw lets a frozen server go on. It does nothing to one that is not frozen.
func (c *Cluster) Thaw() error {
	if !c.running() {
		return errDown
	}
	return sandbox.Thaw(c.server.PID)
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
	children, err := sandbox.ChildrenOf(c.server.PID)
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

//go:build unix

package pgcluster

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// errDown is returned by faults that need a running server.
var errDown = errors.New("pgcluster: the server is down; Resume starts it")

// Kill ends the postmaster and every backend with SIGKILL, as a crash of the machine would,
// and returns when they have ended. Resume starts the server again.
func (c *Cluster) Kill() error {
	if !c.running() {
		return errDown
	}
	err := sandbox.Kill(c.server.PID)
	<-c.server.Done
	return err
}

// KillBackend ends one backend with SIGKILL, as the out-of-memory killer does. The server then
// ends all other sessions and goes through crash recovery; WaitReady waits until it is ready.
func (c *Cluster) KillBackend(pid int) error {
	return c.signalBackend(pid, syscall.SIGKILL)
}

// Freeze stops every process of the server with SIGSTOP: connections stay open and nothing
// answers.
func (c *Cluster) Freeze() error {
	if !c.running() {
		return errDown
	}
	_, err := sandbox.Freeze(c.server.PID)
	return err
}

// Thaw resumes a frozen server. It does nothing to a running one.
func (c *Cluster) Thaw() error {
	if !c.running() {
		return errDown
	}
	return sandbox.Thaw(c.server.PID)
}

// FreezeBackend stops one backend with SIGSTOP.
func (c *Cluster) FreezeBackend(pid int) error { return c.signalBackend(pid, syscall.SIGSTOP) }

// ThawBackend resumes a backend after FreezeBackend.
func (c *Cluster) ThawBackend(pid int) error { return c.signalBackend(pid, syscall.SIGCONT) }

// signalBackend refuses a process that is not a backend of this server, so that a wrong id
// does no harm.
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

// ErrNoClock is returned by Start when WithClock is not available.
var ErrNoClock = errors.New("pgcluster: a server's clock is set by a preloaded C library, which needs Linux and a C compiler; " +
	"install one (Debian and Ubuntu: apt-get install gcc libc6-dev)")

//go:embed clock/clock.c
var clockSource string

// WithClock makes the server's wall clock settable with SetClock. Its standbys use the
// machine's clock.
func WithClock() Option {
	return func(o *options) error {
		o.clock = true
		return nil
	}
}

// SetClock sets the server's wall clock to the machine's clock plus the offset, in all its
// processes at once. As with a real clock, the monotonic clock and running timers do not
// change. The cluster must have been started WithClock.
func (c *Cluster) SetClock(offset time.Duration) error {
	file, err := os.OpenFile(c.clockFile(), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("pgcluster: set the clock of a server that was started WithClock: %w", err)
	}
	// A write of eight aligned bytes is atomic: the server sees the old offset or the new one.
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(offset)), 0)
	return errors.Join(err, file.Close())
}

// preloadClock builds the library and makes later starts of the server load it.
func (c *Cluster) preloadClock(ctx context.Context) error {
	compiler, err := exec.LookPath("cc")
	if err != nil || runtime.GOOS != "linux" {
		return ErrNoClock
	}
	source, library := c.box.Path("clock.c"), c.box.Path("clock.so")
	if err := errors.Join(c.box.WriteFile(source, clockSource), c.box.WriteFile(c.clockFile(), "\x00\x00\x00\x00\x00\x00\x00\x00")); err != nil {
		return err
	}
	if err := c.box.Run(ctx, compiler, "-shared", "-fPIC", "-O1", "-o", library, source); err != nil {
		return fmt.Errorf("%w: %w", ErrNoClock, err)
	}
	c.preload = []string{"LD_PRELOAD=" + library, "CLOCK_OFFSET_FILE=" + c.clockFile()}
	return nil
}

func (c *Cluster) clockFile() string { return c.box.Path("clock") }

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
	"time"
)

// ErrNoClock is returned by Start when WithClock was asked for where it cannot be had.
var ErrNoClock = errors.New("pgcluster: a server's clock is set by a preloaded C library, which needs Linux and a C compiler; " +
	"install one (Debian and Ubuntu: apt-get install gcc libc6-dev)")

//go:embed clock/clock.c
var clockSource string

// WithClock makes the wall clock of the server settable, by SetClock. Its standbys have the machine's.
func WithClock() Option {
	return func(o *options) error {
		o.clock = true
		return nil
	}
}

// SetClock sets the server's wall clock to the machine's plus the offset, in all its processes at once.
// As on a machine whose clock is set, the monotonic clock and timers that run are not touched.
// The cluster must have been started WithClock.
func (c *Cluster) SetClock(offset time.Duration) error {
	file, err := os.OpenFile(c.clockFile(), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("pgcluster: set the clock of a server that was started WithClock: %w", err)
	}
	// One write of eight aligned bytes: the server sees the old offset or the new one.
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(offset)), 0)
	return errors.Join(err, file.Close())
}

// preloadClock builds the library and has every later start of the server load it.
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

//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// Mode is how a server is shut down, as in pg_ctl --mode.
type Mode syscall.Signal

const (
	// Fast ends every session with an error (57P01) and shuts down cleanly.
	Fast = Mode(syscall.SIGINT)
	// Immediate ends every session without ceremony; the next start goes through crash recovery.
	Immediate = Mode(syscall.SIGQUIT)
)

const (
	readyTimeout = time.Minute           // for a server to accept connections, recovery included
	readyPoll    = 10 * time.Millisecond // between two attempts to connect
)

// errPortTaken is returned by boot when another process has the port.
var errPortTaken = errors.New("another process listens on the port")

// firstBoot configures the server for a free port and starts it.
func (c *Cluster) firstBoot(ctx context.Context) (err error) {
	for range sandbox.PortAttempts {
		if c.port, err = sandbox.FreePort(); err != nil {
			return err
		}
		port := []setting{{"port", strconv.Itoa(c.port)}}
		if err = c.configure(slices.Concat(throwAway, c.settings, port)); err != nil {
			return err
		}
		if err = c.boot(ctx); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// configure appends to postgresql.conf, where the last line for a setting counts.
func (c *Cluster) configure(settings []setting) error {
	conf, err := os.OpenFile(filepath.Join(c.dataDir(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}
	_, err = conf.WriteString(confLines(settings))
	return errors.Join(err, conf.Close())
}

// boot starts the postmaster and waits until it accepts connections.
func (c *Cluster) boot(ctx context.Context) error {
	before, _ := os.Stat(c.logFile())
	command := append(slices.Clone(c.preload), c.bin.path("postgres"), "-D", c.dataDir())
	server, err := c.box.Start(c.logFile(), "/usr/bin/env", command...)
	if err != nil {
		return err
	}
	c.server = server
	err = c.WaitReady(ctx)
	if err == nil || !server.Ended() {
		return err
	}
	said := logSince(c.logFile(), before)
	// The server has no other way to tell.
	if strings.Contains(said, "could not bind") {
		return fmt.Errorf("pgcluster: port %d: %w; the server said:\n%s", c.port, errPortTaken, said)
	}
	return fmt.Errorf("pgcluster: the server did not start (%w); it said:\n%s", server.Err, said)
}

func logSince(path string, before os.FileInfo) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if before != nil {
		content = content[min(int(before.Size()), len(content)):]
	}
	return string(content)
}

// WaitReady returns when the server accepts connections: after KillBackend, for instance, it goes through
// crash recovery first. It gives up when ctx ends, after a minute, or when the server has ended.
func (c *Cluster) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := c.answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-c.server.Done:
			return fmt.Errorf("pgcluster: the server has ended: %v", c.server.Err)
		case <-ctx.Done():
			return fmt.Errorf("pgcluster: the server does not accept connections (%w); the last attempt: %w",
				context.Cause(ctx), err)
		case <-time.After(readyPoll):
		}
	}
}

// answers asks the server one question. It connects only once the server has announced itself: an earlier
// attempt would leave a FATAL line in its log, or reach a stranger on the same port.
func (c *Cluster) answers(ctx context.Context) error {
	if err := c.announced(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return c.Exec(ctx, "SELECT")
}

// announced looks for what pg_ctl looks for: our postmaster's id in the first line of postmaster.pid and
// its state in the eighth.
func (c *Cluster) announced() error {
	content, err := os.ReadFile(filepath.Join(c.dataDir(), "postmaster.pid"))
	if err != nil {
		return err
	}
	lines := strings.Split(string(content), "\n")
	if len(lines) < 8 || lines[0] != strconv.Itoa(c.server.PID) || strings.TrimSpace(lines[7]) != "ready" {
		return fmt.Errorf("postmaster.pid says %q", lines)
	}
	return nil
}

func (c *Cluster) running() bool { return c.server != nil && !c.server.Ended() }

// Shutdown shuts the server down and returns when it has ended. The directory stays: Resume starts the
// server again. A frozen server must be thawed first. When ctx ends first, the shutdown goes on.
func (c *Cluster) Shutdown(ctx context.Context, mode Mode) error {
	if !c.running() {
		return errors.New("pgcluster: the server is down already")
	}
	if err := syscall.Kill(c.server.PID, syscall.Signal(mode)); err != nil {
		return fmt.Errorf("pgcluster: signal the server: %w", err)
	}
	select {
	case <-c.server.Done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pgcluster: the server has not shut down yet: %w", context.Cause(ctx))
	}
}

// Resume starts a server that was shut down or killed, on the port that it had, and returns when it
// accepts connections.
func (c *Cluster) Resume(ctx context.Context) error {
	if c.running() {
		return errors.New("pgcluster: the server is running; shut it down before Resume")
	}
	return c.boot(ctx)
}

// Restart is Shutdown and Resume.
func (c *Cluster) Restart(ctx context.Context, mode Mode) error {
	if err := c.Shutdown(ctx, mode); err != nil {
		return err
	}
	return c.Resume(ctx)
}

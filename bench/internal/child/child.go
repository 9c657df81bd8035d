// Package child runs a candidate in its own process, which executes this program again. The first line of the
// process's standard input is a systems.Env as JSON, the others are commands. It prints one systems.Event per line.
// It ends with its standard input or its parent.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/bench/internal/systems"
)

// Child is a running candidate.
type Child struct {
	Env systems.Env
	PID int

	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // closed when the process has ended

	mu     sync.Mutex
	events []systems.Event // without those named systems.Led
	led    []int64         // the times of those
	added  chan struct{}   // closed and replaced with each event
}

// Execute starts this program again, with a role as its argument. The process ends with this one.
func Execute(role string) (cmd *exec.Cmd, in io.WriteCloser, out io.ReadCloser, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd = exec.Command(program, role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, nil, err
	}
	return cmd, in, out, cmd.Start()
}

// Start starts a candidate.
func Start(env systems.Env) (*Child, error) {
	cmd, in, out, err := Execute(Role)
	if err != nil {
		return nil, err
	}
	c := &Child{Env: env, PID: cmd.Process.Pid, cmd: cmd, in: in, done: make(chan struct{}), added: make(chan struct{})}
	go c.listen(out)
	if err := json.NewEncoder(in).Encode(env); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *Child) listen(out io.Reader) {
	defer close(c.done)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e systems.Event
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			c.mu.Lock()
			if e.Name == systems.Led {
				c.led = append(c.led, e.At)
			} else {
				c.events = append(c.events, e)
			}
			close(c.added)
			c.added = make(chan struct{})
			c.mu.Unlock()
		}
	}
	_ = c.cmd.Wait()
}

// After returns the first event with a name at or after an instant, if there is one.
func (c *Child) After(name string, at int64) (e systems.Event, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.events, func(e systems.Event) bool { return e.Name == name && e.At >= at })
	if i < 0 {
		return e, false
	}
	return c.events[i], true
}

// Led returns when the candidate came to lead each of many elections.
func (c *Child) Led() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.led)
}

// Wait waits for the first event with a name.
func (c *Child) Wait(ctx context.Context, name string, within time.Duration) (systems.Event, error) {
	return c.waitAfter(ctx, name, 0, within)
}

// waitAfter waits for the first event with a name at or after an instant.
func (c *Child) waitAfter(ctx context.Context, name string, at int64, within time.Duration) (systems.Event, error) {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		c.mu.Lock()
		added := c.added
		c.mu.Unlock()
		if e, ok := c.After(name, at); ok {
			return e, nil
		}
		if failed, ok := c.After(systems.Failed, 0); ok {
			return failed, fmt.Errorf("%s: %s", c.Env.System, failed.Error)
		}
		select {
		case <-added:
		case <-c.done:
			return systems.Event{}, fmt.Errorf("%s: the candidate ended before it reported %q", c.Env.System, name)
		case <-timeout.C:
			return systems.Event{}, fmt.Errorf("%s: the candidate did not report %q within %v", c.Env.System, name, within)
		case <-ctx.Done():
			return systems.Event{}, context.Cause(ctx)
		}
	}
}

// Count returns how many events with one of the names there were at or after an instant.
func (c *Child) Count(at int64, names ...string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.At >= at && slices.Contains(names, e.Name) {
			n++
		}
	}
	return n
}

// Endure puts the process under a strain from now on.
func (c *Child) Endure(strain Strain) { fmt.Fprintln(c.in, commandEndure, strain) }

// Resign makes the candidate resign.
func (c *Child) Resign() { fmt.Fprintln(c.in, commandResign) }

// Sample starts systems.Reporter.Sample in the process, and waits for it.
func (c *Child) Sample(ctx context.Context) error {
	fmt.Fprintln(c.in, commandSample)
	_, err := c.Wait(ctx, systems.Sampling, 5*time.Second)
	return err
}

// Pinned returns how many connections of the process were in use at each call so far.
func (c *Child) Pinned(ctx context.Context) (int, error) {
	at := systems.Now()
	fmt.Fprintln(c.in, commandPinned)
	e, err := c.waitAfter(ctx, systems.Pinned, at, 5*time.Second)
	return e.Count, err
}

// Signal sends a signal to the process.
func (c *Child) Signal(s syscall.Signal) error { return syscall.Kill(c.PID, s) }

// Stop kills the process and waits for its end.
func (c *Child) Stop() {
	_ = c.in.Close()
	_ = c.cmd.Process.Kill()
	<-c.done
}

// Role is the argument of a process that runs a candidate.
const Role = "candidate"

const (
	commandResign = "resign"
	commandSample = "sample"
	commandPinned = "pinned"
	commandEndure = "endure" // and a Strain
)

// Main runs a candidate until in ends.
func Main(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		return lines.Err()
	}
	var env systems.Env
	if err := json.Unmarshal(lines.Bytes(), &env); err != nil {
		return err
	}
	system, ok := systems.Find(env.System)
	if !ok {
		return fmt.Errorf("unknown system %q", env.System)
	}
	resign := make(chan struct{})
	env.Resign = resign
	reporter := systems.NewReporter(out, env.Elections)
	for i := range max(env.Candidates, 1) {
		env := env
		if i > 0 {
			env.ID = fmt.Sprintf("%s.%d", env.ID, i)
		}
		go func() {
			if err := system.Run(context.Background(), env, reporter); err != nil {
				reporter.Fail(err)
			}
		}()
	}
	for lines.Scan() {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		switch command {
		case commandEndure:
			Strain(argument).begin()
		case commandResign:
			close(resign)
		case commandSample:
			reporter.Sample()
		case commandPinned:
			reporter.CountPinned()
		}
	}
	os.Exit(0) // ends candidates and connections
	return nil
}

// Package child is a candidate in a process of its own: the program started again, told by one line of JSON
// on its standard input what to be, and by further lines what to do. It prints events as lines of JSON. It
// ends when its standard input does, and with its parent.
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
	done chan struct{} // closed when it has ended

	mu     sync.Mutex
	events []systems.Event // but those that are counted
	led    []int64         // when each of many elections was led
	news   chan struct{}   // closed and replaced with each event
}

// Start starts a candidate.
func Start(env systems.Env) (*Child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, Role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &Child{Env: env, PID: cmd.Process.Pid, cmd: cmd, in: in, done: make(chan struct{}), news: make(chan struct{})}
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
			close(c.news)
			c.news = make(chan struct{})
			c.mu.Unlock()
		}
	}
	_ = c.cmd.Wait()
}

// After returns the first event of that name at or after an instant, without waiting; ok is false if there
// is none. The channel is closed when there is news.
func (c *Child) After(name string, at int64) (e systems.Event, ok bool, news <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.Name == name && e.At >= at {
			return e, true, c.news
		}
	}
	return e, false, c.news
}

// Led is when each of its many elections came to be led.
func (c *Child) Led() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.led)
}

// Wait waits for an event.
func (c *Child) Wait(ctx context.Context, name string, within time.Duration) (systems.Event, error) {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		e, ok, news := c.After(name, 0)
		if ok {
			return e, nil
		}
		if failed, bad, _ := c.After(systems.Failed, 0); bad {
			return e, fmt.Errorf("%s: %s", c.Env.System, failed.Error)
		}
		select {
		case <-news:
		case <-c.done:
			return e, fmt.Errorf("%s: the candidate ended before it was %s", c.Env.System, name)
		case <-timeout.C:
			return e, fmt.Errorf("%s: the candidate was not %s within %v", c.Env.System, name, within)
		case <-ctx.Done():
			return e, context.Cause(ctx)
		}
	}
}

// Resign orders it to resign.
func (c *Child) Resign() { fmt.Fprintln(c.in, orderResign) }

// Arm has its belief sampled, and waits until that goes on.
func (c *Child) Arm(ctx context.Context) error {
	fmt.Fprintln(c.in, orderArm)
	_, err := c.Wait(ctx, systems.Armed, 5*time.Second)
	return err
}

// Signal sends it a signal.
func (c *Child) Signal(s syscall.Signal) error { return syscall.Kill(c.PID, s) }

// Stop ends it by SIGKILL and waits for its end.
func (c *Child) Stop() {
	_ = c.in.Close()
	_ = c.cmd.Process.Kill()
	<-c.done
}

// Role is the argument that makes the program a candidate.
const Role = "candidate"

// The orders.
const (
	orderResign = "resign"
	orderArm    = "arm"
)

// Main is a candidate's life.
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
		return fmt.Errorf("no system is named %q", env.System)
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
	obey(lines, resign, reporter)
	os.Exit(0) // whatever still goes on: connections end with the process
	return nil
}

// obey carries out orders until there are no more.
func obey(lines *bufio.Scanner, resign chan struct{}, reporter *systems.Reporter) {
	for lines.Scan() {
		switch lines.Text() {
		case orderResign:
			close(resign)
		case orderArm:
			reporter.Arm()
		}
	}
}

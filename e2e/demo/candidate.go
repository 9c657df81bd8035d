//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
)

// The hidden subcommands.
const (
	candidateCommand = "demo-candidate"
	guardCommand     = "demo-guard"
)

// candidate is the demo's side of a candidate's process.
type candidate struct {
	spec
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  *history.Log
	said tail // its standard error

	dismissed atomic.Bool // it may end

	done chan struct{} // closed when the process has ended and the log has all its events
	err  error         // valid after done: why it ended, nil if it was dismissed
}

// startCandidate starts the process. It calls ended if the process ends undismissed.
func startCandidate(p spec, command func(args ...string) *exec.Cmd, g *guard, log *history.Log, ended func(error)) (*candidate, error) {
	arg, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	c := &candidate{spec: p, cmd: command(candidateCommand, string(arg)), log: log, done: make(chan struct{})}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches the demo only
	c.cmd.Stderr = &c.said
	in, inErr := c.cmd.StdinPipe()
	out, outErr := c.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("demo: start candidate %s: %w", p.Name, err)
	}
	c.in = in
	go func() {
		defer close(c.done)
		if c.err = c.follow(out, g); c.err != nil {
			ended(c.err)
		}
	}()
	if err := g.watch(c.pid()); err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

// follow collects the process's events and waits for its end.
func (c *candidate) follow(out io.Reader, g *guard) error {
	collected := c.log.Collect(out)
	if collected != nil {
		c.signal(syscall.SIGKILL) // otherwise it would block on a pipe that nobody reads
	}
	g.forget(c.pid())
	err := c.cmd.Wait()
	switch {
	case collected != nil:
		return fmt.Errorf("demo: candidate %s: %w", c.Name, collected)
	case !c.dismissed.Load():
		return fmt.Errorf("demo: candidate %s ended unexpectedly (%v): %s", c.Name, err, c.said.String())
	}
	return nil
}

func (c *candidate) pid() int { return c.cmd.Process.Pid }

// send sends a command.
func (c *candidate) send(command string) error {
	if _, err := fmt.Fprintln(c.in, command); err != nil {
		return fmt.Errorf("demo: send candidate %s the command %s: %w", c.Name, command, err)
	}
	return nil
}

// signal does nothing once the process has ended.
func (c *candidate) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) }

// mark records a fault that is about to be injected into the process.
func (c *candidate) mark(kind history.Kind, token int64) history.Time {
	at := history.Now()
	c.log.Add(history.Event{Process: c.Name, At: at, Kind: kind, Token: token})
	return at
}

func (c *candidate) freeze(token int64) history.Time {
	at := c.mark(history.Frozen, token)
	c.signal(syscall.SIGSTOP)
	return at
}

func (c *candidate) thaw(token int64) history.Time {
	at := c.mark(history.Thawed, token)
	c.signal(syscall.SIGCONT)
	return at
}

// kill ends the process with SIGKILL, in whatever state it is, and waits for its end.
func (c *candidate) kill() {
	c.dismissed.Store(true)
	c.signal(syscall.SIGKILL)
	<-c.done
}

// leave asks the process to leave, and kills it if it does not.
func (c *candidate) leave() error {
	c.dismissed.Store(true)
	c.in.Close()
	select {
	case <-c.done:
		return c.err
	case <-time.After(exitGrace + time.Second):
		c.kill()
		return fmt.Errorf("demo: candidate %s did not leave: %s", c.Name, c.said.String())
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailLength = 2000

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailLength):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if said := strings.TrimSpace(string(t.text)); said != "" {
		return said
	}
	return "it said nothing"
}

// The guard process kills the candidates if the demo is killed: a frozen candidate cannot
// exit.

// runGuard runs the guard process (a hidden subcommand). It reads "+pid" for each process
// to guard and "-pid" for each that has ended. When in ends, it kills the rest.
func runGuard(in io.Reader) error {
	guarded := make(map[int]bool)
	for {
		var mark rune
		var pid int
		_, err := fmt.Fscanf(in, "%c%d\n", &mark, &pid)
		if err != nil {
			break // the end, or an incomplete line
		}
		if mark == '+' {
			guarded[pid] = true
		} else {
			delete(guarded, pid)
		}
	}
	var errs []error
	for pid := range guarded {
		if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// guard is the demo's side of the guard process.
type guard struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func startGuard(command func(args ...string) *exec.Cmd) (*guard, error) {
	cmd := command(guardCommand)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C and the end of the terminal do not reach it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("demo: start the guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("demo: start the guard: %w", err)
	}
	return &guard{cmd: cmd, in: in}, nil
}

// watch guards a process. It must be called before the process is frozen: until then the
// process exits unaided.
func (g *guard) watch(pid int) error {
	if _, err := fmt.Fprintf(g.in, "+%d\n", pid); err != nil {
		return fmt.Errorf("demo: the guard has ended: %w", err)
	}
	return nil
}

// forget must be called before the process is waited for, while its id is still in use.
func (g *guard) forget(pid int) {
	_, _ = fmt.Fprintf(g.in, "-%d\n", pid) // a guard that has ended kills nobody
}

// stop ends the guard. It must be called after all candidates have ended.
func (g *guard) stop() error {
	g.in.Close()
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("demo: the guard: %w", err)
	}
	return nil
}

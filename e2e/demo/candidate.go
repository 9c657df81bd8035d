//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/sandbox"
)

// candidateCommand is the hidden subcommand.
const candidateCommand = "demo-candidate"

// candidate is the demo's side of a candidate's process.
type candidate struct {
	spec
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  *history.Log
	said bytes.Buffer // its standard error; read when it has ended

	listed string // its file in the sandbox, whose reaper kills it if the demo is killed

	dismissed atomic.Bool // it may end

	done chan struct{} // closed when the process has ended and the log has all its events
	err  error         // valid after done: why it ended, nil if it was dismissed
}

// startCandidate starts the process. It calls ended if the process ends undismissed.
func startCandidate(p spec, box *sandbox.Sandbox, log *history.Log, ended func(error)) (*candidate, error) {
	arg, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("demo: find this program, to run it again for the candidates: %w", err)
	}
	c := &candidate{spec: p, cmd: exec.Command(program, candidateCommand, string(arg)), log: log, done: make(chan struct{})}
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
	c.listed = box.Path("run", strconv.Itoa(c.pid()))
	listing := box.WriteFile(c.listed, "") // before it is frozen: until then it exits unaided
	go func() {
		defer close(c.done)
		if c.err = c.follow(out); c.err != nil {
			ended(c.err)
		}
	}()
	if listing != nil {
		c.kill()
		return nil, listing
	}
	return c, nil
}

// follow collects the process's events and waits for its end.
func (c *candidate) follow(out io.Reader) error {
	collected := c.log.Collect(out)
	if collected != nil {
		c.signal(syscall.SIGKILL) // otherwise it would block on a pipe that nobody reads
	}
	_ = os.Remove(c.listed) // while its process id is still in use
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
func (c *candidate) signal(s syscall.Signal) { _ = sandbox.Signal(c.cmd.Process, s) }

// mark records a fault that is about to be injected into the process.
func (c *candidate) mark(kind history.Kind, token int64) history.Time {
	at := history.Now()
	c.log.Add(history.Event{Process: c.Name, At: at, Kind: kind, Token: token})
	return at
}

// severing records that do ended the session of the process's term. It returns when do began.
func (c *candidate) severing(token int64, do func() error) (began history.Time, err error) {
	began = history.Now()
	err = do()
	c.log.Add(history.Event{Process: c.Name, At: began, Kind: history.Severed, Token: token, Took: history.Now().Sub(began)})
	return began, err
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

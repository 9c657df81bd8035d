//go:build unix

package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// enlist enters its own process id into the sandbox's run directory and then becomes the command.
// Being entered before the command starts is what makes the reaper's list complete: when the reaper has
// closed the directory this fails, and the command never runs.
const enlist = `: >"$0/$$" && exec "$@"`

// Process is a running program of a sandbox.
type Process struct {
	PID  int           // also the id of its process group and session
	Done chan struct{} // closed when the process has ended
	Err  error         // how it ended; valid after Done
}

// Start runs a program in a session of its own, with its output appended to logFile.
func (s *Sandbox) Start(logFile, program string, args ...string) (*Process, error) {
	return s.StartIn("/", logFile, program, args...) // the current directory may be closed to the owner
}

// StartIn does what Start does, in a working directory. If that is below the sandbox's, the reaper ends what
// the program leaves behind, daemons too (on Linux).
func (s *Sandbox) StartIn(dir, logFile, program string, args ...string) (*Process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	defer log.Close()

	cmd := exec.Command("/bin/sh", append([]string{"-c", enlist, s.Path("run"), program}, args...)...)
	cmd.Dir = dir
	cmd.Env = cleanEnvironment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: s.owner.credential()}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("sandbox: start %s: %w", filepath.Base(program), err)
	}

	p := &Process{PID: cmd.Process.Pid, Done: make(chan struct{})}
	s.waiters.Go(func() {
		defer close(p.Done)
		p.Err = cmd.Wait()
		// The system may reuse the id now: take it off the reaper's list.
		os.Remove(s.Path("run", strconv.Itoa(p.PID)))
	})
	return p, nil
}

// Run runs a program to its end. When ctx ends first, the program is killed.
func (s *Sandbox) Run(ctx context.Context, program string, args ...string) error {
	return s.RunIn(ctx, "/", program, args...)
}

// RunIn does what Run does, in a working directory: see StartIn.
func (s *Sandbox) RunIn(ctx context.Context, dir, program string, args ...string) error {
	name := filepath.Base(program)
	logFile := s.Path(name + ".log")
	p, err := s.StartIn(dir, logFile, program, args...)
	if err != nil {
		return err
	}
	select {
	case <-p.Done:
	case <-ctx.Done():
		syscall.Kill(-p.PID, syscall.SIGKILL)
		<-p.Done
		return fmt.Errorf("sandbox: %s was stopped: %w", name, context.Cause(ctx))
	}
	if p.Err != nil {
		return fmt.Errorf("sandbox: %s failed (%w); it said:\n%s", name, p.Err, Tail(logFile))
	}
	return nil
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// cleanEnvironment is ours without what would redirect PostgreSQL's programs, such as PGPORT or PGDATA.
func cleanEnvironment() []string {
	env := []string{}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PG") && !strings.HasPrefix(entry, "LC_") && !strings.HasPrefix(entry, "LANG") {
			env = append(env, entry)
		}
	}
	return append(env, "LC_ALL=C", "TZ=UTC")
}

// Tail returns the end of a file, for an error message.
func Tail(path string) string {
	const most = 4000
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-most):])
}

//go:build unix

package pgcluster

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

// process is a running program of a sandbox.
type process struct {
	pid  int           // also the id of its process group and session
	done chan struct{} // closed when the process has ended
	err  error         // how it ended; valid after done
}

// start runs a program in a session of its own, with its output appended to logFile.
func (s *sandbox) start(logFile, program string, args ...string) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("pgcluster: %w", err)
	}
	defer log.Close()

	cmd := exec.Command("/bin/sh", append([]string{"-c", enlist, s.path("run"), program}, args...)...)
	cmd.Dir = "/" // the current directory may be closed to the owner
	cmd.Env = cleanEnvironment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: s.owner.credential()}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("pgcluster: start %s: %w", filepath.Base(program), err)
	}

	p := &process{pid: cmd.Process.Pid, done: make(chan struct{})}
	s.waiters.Go(func() {
		defer close(p.done)
		p.err = cmd.Wait()
		// The system may reuse the id now: take it off the reaper's list.
		os.Remove(s.path("run", strconv.Itoa(p.pid)))
	})
	return p, nil
}

// run runs a program to its end. When ctx ends first, the program is killed.
func (s *sandbox) run(ctx context.Context, program string, args ...string) error {
	name := filepath.Base(program)
	logFile := s.path(name + ".log")
	p, err := s.start(logFile, program, args...)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		syscall.Kill(-p.pid, syscall.SIGKILL)
		<-p.done
		return fmt.Errorf("pgcluster: %s was stopped: %w", name, context.Cause(ctx))
	}
	if p.err != nil {
		return fmt.Errorf("pgcluster: %s failed (%w); it said:\n%s", name, p.err, tail(logFile))
	}
	return nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
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

// tail returns the end of a file, for an error message.
func tail(path string) string {
	const most = 4000
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-most):])
}

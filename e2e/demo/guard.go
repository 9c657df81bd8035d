//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// The guard outlives a demo that is killed, and then kills the candidates that
// it was told of: a frozen one cannot end by itself.

// runGuard is the guard's process: what the hidden subcommand does. It reads "+pid"
// for each process to guard and "-pid" for each that has ended, and kills the
// rest when in ends.
func runGuard(in io.Reader) error {
	guarded := make(map[int]bool)
	for {
		var mark rune
		var pid int
		_, err := fmt.Fscanf(in, "%c%d\n", &mark, &pid)
		if err != nil {
			break // the end, or a line that broke off
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

// guard is the demo's side of it.
type guard struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func startGuard(command func(args ...string) *exec.Cmd) (*guard, error) {
	cmd := command(guardCommand)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of Ctrl-C and of the terminal's end
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("demo: start the guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("demo: start the guard: %w", err)
	}
	return &guard{cmd: cmd, in: in}, nil
}

// watch is told before a process is frozen: until then it ends by itself.
func (g *guard) watch(pid int) error {
	if _, err := fmt.Fprintf(g.in, "+%d\n", pid); err != nil {
		return fmt.Errorf("demo: the guard has ended: %w", err)
	}
	return nil
}

// forget is told before the process is waited for, when its id is still its own.
func (g *guard) forget(pid int) {
	_, _ = fmt.Fprintf(g.in, "-%d\n", pid) // a guard that has ended kills nobody
}

// stop ends the guard, after all that it guards.
func (g *guard) stop() error {
	g.in.Close()
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("demo: the guard: %w", err)
	}
	return nil
}

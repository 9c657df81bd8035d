//go:build unix

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// enlist creates a file named after its process id in the sandbox's run directory and then
// executes the command. The file exists before the command starts, so the reaper's list is
// complete. Once the reaper has closed the directory, enlist fails and the command never runs.
const enlist = `: >"$0/$$" && exec "$@"`

// Process is a running program of a sandbox.
type Process struct {
	PID  int           // also the id of its process group and session
	Done chan struct{} // closed when the process has ended
	Err  error         // how it ended; valid after Done
}

// Start runs a program in a separate session and appends its output to logFile.
func (s *Sandbox) Start(logFile, program string, args ...string) (*Process, error) {
	return s.StartIn("/", logFile, program, args...) // the owner may not be able to enter the current directory
}

// StartIn is Start with a working directory. If that is below the sandbox's directory, the
// reaper also ends what the program leaves behind, daemons too (on Linux).
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
		// The system may reuse the process id now.
		os.Remove(s.Path("run", strconv.Itoa(p.PID)))
	})
	return p, nil
}

// Run runs a program and waits until it ends. If ctx ends first, Run kills the program.
func (s *Sandbox) Run(ctx context.Context, program string, args ...string) error {
	return s.RunIn(ctx, "/", program, args...)
}

// RunIn is Run with a working directory: see StartIn.
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
		return fmt.Errorf("sandbox: %s failed (%w); its output:\n%s", name, p.Err, Tail(logFile))
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

// cleanEnvironment returns this process's environment without variables that affect
// PostgreSQL's programs, such as PGPORT or PGDATA.
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

// Info is one line of the system's process table.
type Info struct {
	PID, Parent int
	State       string // starts with Z for a zombie
}

// Processes lists the processes of the system. It reads /proc on Linux, since slim containers
// have no ps, and runs ps elsewhere.
func Processes() ([]Info, error) {
	if runtime.GOOS == "linux" {
		return procTable()
	}
	out, err := exec.Command("ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "state=").Output()
	if err != nil {
		return nil, fmt.Errorf("sandbox: list processes by ps: %w", err)
	}
	var table []Info
	for line := range strings.Lines(string(out)) {
		var p Info
		if _, err := fmt.Sscan(line, &p.PID, &p.Parent, &p.State); err == nil {
			table = append(table, p)
		}
	}
	return table, nil
}

func procTable() ([]Info, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("sandbox: /proc is not mounted (%v)", err)
	}
	var table []Info
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended since
		}
		// The line is "pid (name) state ppid …". The name may contain parentheses.
		open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		if open < 0 || end < open {
			continue
		}
		var p Info
		line := string(stat[:open]) + string(stat[end+1:])
		if _, err := fmt.Sscan(line, &p.PID, &p.State, &p.Parent); err == nil {
			table = append(table, p)
		}
	}
	return table, nil
}

// Leftovers returns the files in dir, and the other processes that name dir in their
// arguments or work in it (on Linux). Tests use it to check a clean-up.
func Leftovers(dir string) ([]string, error) {
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, err
	}
	table, err := Processes()
	if err != nil {
		return nil, err
	}
	for _, p := range table {
		if p.PID == os.Getpid() || strings.HasPrefix(p.State, "Z") {
			continue
		}
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.PID))
		if strings.Contains(string(args), dir) || strings.HasPrefix(cwd, dir) {
			left = append(left, fmt.Sprintf("process %d: %q in %s", p.PID, args, cwd))
		}
	}
	return left, nil
}

// ChildrenOf returns the living children of a process.
func ChildrenOf(pid int) ([]int, error) {
	table, err := Processes()
	if err != nil {
		return nil, err
	}
	var children []int
	for _, p := range table {
		if p.Parent == pid && !strings.HasPrefix(p.State, "Z") {
			children = append(children, p.PID)
		}
	}
	return children, nil
}

// AnyAlive reports whether one of the processes is running.
func AnyAlive(pids []int) (bool, error) {
	table, err := Processes()
	if err != nil {
		return false, err
	}
	wanted := make(map[int]bool)
	for _, pid := range pids {
		wanted[pid] = true
	}
	for _, p := range table {
		if wanted[p.PID] && !strings.HasPrefix(p.State, "Z") {
			return true, nil
		}
	}
	return false, nil
}

// Freeze stops a process and its children with SIGSTOP and returns their ids, the process
// first. A stopped process cannot start others, so the list is complete.
func Freeze(pid int) ([]int, error) {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("sandbox: stop process %d: %w", pid, err)
	}
	children, err := ChildrenOf(pid)
	if err != nil {
		return nil, errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
	}
	for _, child := range children {
		syscall.Kill(child, syscall.SIGSTOP)
	}
	return append([]int{pid}, children...), nil
}

// Thaw resumes a process and its children after Freeze.
func Thaw(pid int) error {
	children, err := ChildrenOf(pid)
	if err != nil {
		return err
	}
	for _, one := range append(children, pid) {
		syscall.Kill(one, syscall.SIGCONT)
	}
	return nil
}

// Kill ends a process and its children with SIGKILL, as a crash of the whole machine would,
// and returns when they have ended.
func Kill(pid int) error {
	pids, err := Freeze(pid)
	if err != nil {
		return err
	}
	for _, one := range pids {
		syscall.Kill(one, syscall.SIGKILL)
	}
	// The server cannot start again until these orphans are gone.
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if alive, err := AnyAlive(pids); err != nil || !alive {
			return err
		}
	}
	return fmt.Errorf("sandbox: some of the processes %v have survived SIGKILL for 10 seconds", pids)
}

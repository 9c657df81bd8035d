//go:build unix

// Package sandbox runs programs in a temporary directory. It ends the programs and removes the directory even
// if this process is killed.
//
// Each sandbox has a reaper: a small shell script (reaper.sh) in a separate session. Its standard input is a
// pipe that only this process holds. The pipe closes when [Sandbox.Destroy] closes it, and also when this
// process ends in any way: return, panic, Ctrl-C, kill -9. Then the reaper ends the processes listed in run/,
// and on Linux every process that works in a directory below, and removes the directory. Destroy uses the same
// path, so every test exercises the clean-up after a crash.
//
// Each program runs in a separate session: a Ctrl-C in the terminal reaches the Go process only. If this
// process runs as root, programs run as the user postgres or nobody, since PostgreSQL and pgbouncer refuse to
// run as root.
package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

//go:embed reaper.sh
var reaperScript string

// reapTimeout bounds how long Destroy waits for the reaper. The reaper gives servers 8 seconds,
// twice, and then repeats the removal for 5. On a busy machine each takes several times longer.
const reapTimeout = 2 * time.Minute

// readyPoll is the time between two attempts of AwaitReady.
const readyPoll = 10 * time.Millisecond

// Sandbox is a directory, the processes that run for it, and the reaper that removes both.
type Sandbox struct {
	dir   string
	owner *owner // who owns the directory and runs the processes

	reaper  *exec.Cmd
	leash   io.Closer // the reaper acts when this closes, also when this process dies
	waiters sync.WaitGroup
	destroy func() error // once
}

// New creates a sandbox. The caller must call Destroy.
func New() (*Sandbox, error) {
	owner, err := processOwner()
	if err != nil {
		return nil, err
	}
	tmp, err := filepath.Abs(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	if err := owner.canEnter(tmp); err != nil {
		return nil, err
	}
	s := &Sandbox{dir: filepath.Join(tmp, "pgelector-"+rand.Text()), owner: owner}
	// Start the reaper first, so that the directory never exists without one.
	if err := s.startReaper(); err != nil {
		return nil, err
	}
	s.destroy = sync.OnceValue(s.reap)
	for _, dir := range []string{s.dir, s.Path("run")} {
		if err := s.Mkdir(dir); err != nil {
			return nil, errors.Join(err, s.destroy())
		}
	}
	return s, nil
}

func (s *Sandbox) startReaper() error {
	s.reaper = exec.Command("/bin/sh", "-c", reaperScript, "sh", s.dir)
	s.reaper.Dir = "/"
	s.reaper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	leash, err := s.reaper.StdinPipe()
	if err != nil {
		return fmt.Errorf("sandbox: pipe to the reaper: %w", err)
	}
	s.leash = leash
	if err := s.reaper.Start(); err != nil {
		return fmt.Errorf("sandbox: start the reaper (it needs /bin/sh): %w", err)
	}
	return nil
}

// Destroy ends the processes, in whatever state they are, and removes the directory. Later
// calls return the result of the first.
func (s *Sandbox) Destroy() error { return s.destroy() }

// Dir returns the directory.
func (s *Sandbox) Dir() string { return s.dir }

// ReaperPID returns the process id of the reaper.
func (s *Sandbox) ReaperPID() int { return s.reaper.Process.Pid }

// Own gives a file, or a link, to the user that runs the processes.
func (s *Sandbox) Own(path string) error { return s.owner.chown(path) }

// reap triggers the reaper and returns when the processes and the directory are gone.
func (s *Sandbox) reap() error {
	s.leash.Close()
	timer := time.AfterFunc(reapTimeout, func() { s.reaper.Process.Kill() })
	defer timer.Stop()
	err := s.reaper.Wait()
	if _, statErr := os.Lstat(s.dir); statErr == nil {
		return fmt.Errorf("sandbox: %s could not be removed (%v); end what still runs there and remove it", s.dir, err)
	}
	s.waiters.Wait()
	return nil
}

// Path returns a path below the directory.
func (s *Sandbox) Path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// Mkdir makes a directory that only the owner can access.
func (s *Sandbox) Mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return s.owner.chown(dir)
}

// WriteFile writes a file that only the owner can access.
func (s *Sandbox) WriteFile(path, content string) error {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return s.owner.chown(path)
}

// owner is the user that runs the servers and owns their files. A nil owner is the current
// user.
type owner struct {
	uid, gid uint32
}

// processOwner returns nil for an ordinary user. For root, as which PostgreSQL and pgbouncer
// refuse to run, it returns an unprivileged user.
func processOwner() (*owner, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("sandbox: user %s: %w", name, err)
		}
		return &owner{uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("sandbox: PostgreSQL refuses to run as root, and there is no user postgres or nobody " +
		"to run it as; run as an ordinary user, or create the user postgres")
}

func (o *owner) chown(path string) error {
	if o == nil {
		return nil
	}
	if err := os.Lchown(path, int(o.uid), int(o.gid)); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return nil
}

// canEnter returns an error if the owner is another user and may not be able to enter dir.
func (o *owner) canEnter(dir string) error {
	if o == nil {
		return nil
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
		if info.Mode()&0o001 == 0 {
			return fmt.Errorf("sandbox: servers started by root run as user id %d, which cannot enter %s; "+
				"set TMPDIR to a directory that every user can enter, such as /tmp", o.uid, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func (o *owner) credential() *syscall.Credential {
	if o == nil {
		return nil
	}
	return &syscall.Credential{Uid: o.uid, Gid: o.gid}
}

// Loopback is the only address that programs of a sandbox use.
const Loopback = "127.0.0.1"

// PortAttempts is how many ports a start tries: another process can take a port between
// FreePort and its use.
const PortAttempts = 5

// OnFreePorts sets the ports to free ones and calls start, with others again if that fails: few
// programs say that a port was taken.
func OnFreePorts(ctx context.Context, start func() error, ports ...*int) (err error) {
	for range PortAttempts {
		for _, port := range ports {
			if *port, err = FreePort(); err != nil {
				return err
			}
		}
		if err = start(); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// Find looks for a program, also in directories that an ordinary user's $PATH lacks.
func Find(program string) (path string, err error) {
	for _, dir := range []string{"", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"} {
		if path, err = exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	return "", err
}

// FreePort returns a port that is free at the time of the call. It is below those from which
// the kernel takes one for each outgoing connection (on Linux from 32768): such a connection
// could take the port of a server that is restarted.
func FreePort() (port int, err error) {
	const first, last = 12000, 32000
	for range 100 {
		port = first + mathrand.IntN(last-first)
		var l net.Listener
		if l, err = net.Listen("tcp4", net.JoinHostPort(Loopback, strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("sandbox: look for a free port: %w", err)
}

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

// AwaitReady calls ready until it returns nil. It fails, with the end of the log, once the process
// or ctx has ended.
func (p *Process) AwaitReady(ctx context.Context, log string, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil && !p.Ended() {
			return nil
		}
		select {
		case <-p.Done:
			return fmt.Errorf("sandbox: the program has ended (%v); its output:\n%s", p.Err, Tail(log))
		case <-ctx.Done():
			return fmt.Errorf("sandbox: the program is not ready (%w); the last attempt: %w; its output:\n%s", context.Cause(ctx), err, Tail(log))
		case <-time.After(readyPoll):
		}
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
		if table := statsOf("/proc/[0-9]*/stat"); len(table) > 0 {
			return table, nil
		}
		return nil, errors.New("sandbox: /proc is not mounted")
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

// statsOf reads the files of /proc that match a pattern, of processes or of threads.
func statsOf(pattern string) (table []Info) {
	files, _ := filepath.Glob(pattern)
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
	return table
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

// Signal sends a signal. After SIGSTOP it waits as Stop does.
func Signal(p *os.Process, sig os.Signal) error {
	err := p.Signal(sig)
	if err == nil && sig == syscall.SIGSTOP {
		err = awaitStop(p.Pid)
	}
	return err
}

// Stop stops a process with SIGSTOP, and waits until it stands still. The signal wakes one of its threads,
// and this one stops the others: on a busy machine they run on for a while, and answer what comes. It is an
// error if the process has ended.
func Stop(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("sandbox: stop process %d: %w", pid, err)
	}
	return awaitStop(pid)
}

// awaitStop waits until all threads of the process have stopped. Without /proc it does not wait.
func awaitStop(pid int) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	const patience = 10 * time.Second
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		threads := statsOf(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		threads = slices.DeleteFunc(threads, func(t Info) bool { return t.State == "Z" })
		switch {
		case len(threads) == 0:
			return fmt.Errorf("sandbox: process %d has ended before it was stopped", pid)
		case !slices.ContainsFunc(threads, func(t Info) bool { return t.State != "T" }):
			return nil
		}
	}
	return fmt.Errorf("sandbox: process %d runs %v after SIGSTOP", pid, patience)
}

// Freeze stops a process and its children, as Stop does, and returns their ids, the process
// first. A stopped process cannot start others, so the list is complete.
func Freeze(pid int) ([]int, error) {
	if err := Stop(pid); err != nil {
		return nil, err
	}
	children, err := ChildrenOf(pid)
	if err != nil {
		return nil, errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
	}
	for _, child := range children {
		_ = Stop(child) // it may have ended
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

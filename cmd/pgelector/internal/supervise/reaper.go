//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Reaper reaps every child of this process: the guards, and orphans that the kernel gives
// it. The program must not wait for processes by other means.
type Reaper struct {
	mu     sync.Mutex
	waited map[int]chan struct{} // closed when that child has ended: a guard, or one from before
}

// Check returns an error if this system cannot run commands.
func Check() error {
	_, err := childrenOf(os.Getpid())
	if !followsAll || err == nil {
		_, err = program()
	}
	if err != nil {
		return fmt.Errorf("run needs /proc, to find the processes of the command: mount -t proc proc /proc: %w", err)
	}
	return nil
}

// NewReaper starts to reap, and makes this process the parent of its orphaned descendants.
// It runs until the program ends.
func NewReaper() (*Reaper, error) {
	if err := adopt(); err != nil {
		return nil, err
	}
	r := &Reaper{waited: make(map[int]chan struct{})}
	before, _ := childrenOf(os.Getpid()) // of a script that has called exec: they belong to no command
	for _, pid := range before {
		r.waited[pid] = make(chan struct{})
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for range ended {
			r.mu.Lock()
			r.reap()
			r.mu.Unlock()
		}
	}()
	return r, nil
}

// reap reports whether children are left. The caller holds mu.
func (r *Reaper) reap() bool {
	return reap(0, func(pid int, _ syscall.WaitStatus) {
		if done, ok := r.waited[pid]; ok {
			close(done)
			delete(r.waited, pid)
		}
	})
}

// sweep kills the family of a guard, and reports whether a process of it may be left.
func (r *Reaper) sweep(f family, guard int) (left bool) {
	r.mu.Lock() // no guard starts, and no child is reaped, meanwhile
	defer r.mu.Unlock()
	left = f.left(r.reap())
	if f.others = r.guardsBut(guard); len(f.others) > 0 {
		left = f.orphans()
	}
	if left {
		f.signal(syscall.SIGKILL)
	}
	return left
}

// kill kills a guard. Outside Linux, where descendants are unknown, no other signal reaches it.
func (r *Reaper) kill(guard int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, left := r.waited[guard]; left { // so its id is not reused
		_ = syscall.Kill(guard, syscall.SIGKILL)
	}
}

func (r *Reaper) others(guard int) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.guardsBut(guard)
}

func (r *Reaper) guardsBut(guard int) (others []int) {
	for pid := range r.waited {
		if pid != guard {
			others = append(others, pid)
		}
	}
	return others
}

// start starts a process that inherits the files under their numbers, which are free in it: no
// descriptor that this process has inherited has them. ended is closed when the process has ended.
func (r *Reaper) start(args []string, attr *os.ProcAttr, files ...*os.File) (pid int, ended <-chan struct{}, err error) {
	program, err := program()
	if err != nil {
		return 0, nil, err
	}
	r.mu.Lock()         // otherwise reap may miss it
	defer r.mu.Unlock() // after the files are closed: no other process that is started may inherit them
	for _, f := range files {
		defer f.Close()
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return 0, nil, err
		}
	}
	p, err := os.StartProcess(program, args, attr)
	if err != nil {
		return 0, nil, err
	}
	pid = p.Pid
	_ = p.Release()
	done := make(chan struct{})
	r.waited[pid] = done
	return pid, done, nil
}

// A family is the processes of a command: its process group, and on Linux every descendant
// of this process, in any group or session, except those below other guards.
type family struct {
	group int
	led   bool // the command was not reaped yet, so the group's id cannot be reused

	others []int // guards of other commands, whose processes are not of this family
}

// signal sends the signals to the family. It signals the group as a whole, so that no fork
// escapes, but only while a process of the group is known to live: the id of an empty group
// may be reused.
func (f family) signal(signals ...syscall.Signal) {
	if f.led {
		f.signalGroup(signals...)
	}
	members, err := descendants(f.others...)
	groupLives := err != nil && !f.led // descendants unknown: signal the group
	for _, p := range members {
		if f.group != 0 && p.group == f.group {
			groupLives = !f.led
			continue
		}
		for _, sig := range signals {
			_ = syscall.Kill(p.pid, sig)
		}
	}
	if groupLives {
		f.signalGroup(signals...)
	}
}

func (f family) signalGroup(signals ...syscall.Signal) {
	if f.group <= 1 {
		return
	}
	for _, sig := range signals {
		_ = syscall.Kill(-f.group, sig)
	}
}

// left reports whether a process of the family lives, given whether this process has
// children.
func (f family) left(children bool) bool {
	if followsAll || children {
		return children
	}
	return f.groupLives()
}

func (f family) groupLives() bool {
	return f.group > 1 && !errors.Is(syscall.Kill(-f.group, 0), syscall.ESRCH)
}

// orphans reports whether this process has a child that is no guard of another command, living
// or not. If its children are unknown, it reports whether a process of the group lives. Do not
// reap meanwhile: a process whose parent ends moves up to this one, and a search of the whole
// tree would miss it, but the topmost of those that ended stays a child until it is reaped.
func (f family) orphans() bool {
	children, err := childrenOf(os.Getpid())
	if err != nil {
		return f.groupLives()
	}
	return slices.ContainsFunc(children, func(pid int) bool { return !slices.Contains(f.others, pid) })
}

// reap reaps every ended child, and with WUNTRACED also reports stopped ones. It returns
// whether children are left.
func reap(options int, each func(pid int, status syscall.WaitStatus)) (children bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|options, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return false // ECHILD
		case pid == 0:
			return true
		default:
			each(pid, status)
		}
	}
}

// lives reports whether a descendant of this process other than the guard and zombies lives.
// If the descendants are unknown, it reports whether a process of the group lives.
func (f family) lives(guard int) bool {
	members, err := descendants(f.others...)
	if err != nil {
		return f.groupLives()
	}
	for _, p := range members {
		if p.pid != guard {
			return true
		}
	}
	return false
}

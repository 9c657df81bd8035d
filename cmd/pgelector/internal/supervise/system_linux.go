package supervise

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// blockTTOU blocks SIGTTOU on this thread until restore.
func blockTTOU() (restore func()) {
	var set, old unix.Sigset_t
	set.Val[0] = 1 << (uint(syscall.SIGTTOU) - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old); err != nil {
		return func() {}
	}
	return func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) }
}

// instant is a time that two processes of one machine can compare: nanoseconds since boot,
// including sleep.
type instant int64

func now() instant {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return instant(time.Now().UnixNano()) // in both processes
	}
	return instant(t.Nano())
}

// adopt makes this process the parent of its orphaned descendants.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// rename changes the process name, so that killall pgelector does not hit the guard.
func rename(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

// tie makes the kernel kill the command when the guard's thread ends.
func tie(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// program returns the path of this program, even if its file was replaced.
func program() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}

// followsAll says that wait4's ECHILD means that no descendant is left.
const followsAll = true

// process is an entry of the process table.
type process struct {
	pid, parent, group int
	zombie             bool
}

// descendants lists the living descendants of this process, without those given and what is
// below them.
func descendants(without ...int) ([]process, error) {
	var all []process
	for queue := []int{os.Getpid()}; len(queue) > 0; queue = queue[1:] {
		children, err := childrenOf(queue[0])
		if err != nil {
			return nil, err
		}
		children = slices.DeleteFunc(children, func(pid int) bool { return slices.Contains(without, pid) })
		queue = append(queue, children...)
		for _, pid := range children {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil {
				continue // ended meanwhile
			}
			if p, ok := parseStat(stat); ok && !p.zombie {
				all = append(all, p)
			}
		}
	}
	return all, nil
}

// childrenOf reads each thread's list of children, or if the kernel lacks that list, all
// processes.
func childrenOf(pid int) (children []int, err error) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended
		for field := range bytes.FieldsSeq(text) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				children = append(children, child)
			}
		}
	}
	if len(lists) > 0 {
		return children, nil
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("/proc is not mounted (%v)", err)
	}
	for _, file := range files {
		stat, _ := os.ReadFile(file)
		if p, ok := parseStat(stat); ok && p.parent == pid {
			children = append(children, p.pid)
		}
	}
	return children, nil
}

// parseStat parses "pid (name) state ppid pgrp …". The name may contain anything.
func parseStat(stat []byte) (p process, ok bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return p, false
	}
	var state string
	_, err := fmt.Sscanf(string(stat[:open])+" "+string(stat[end+1:]), "%d %s %d %d", &p.pid, &state, &p.parent, &p.group)
	p.zombie = state == "Z" || state == "X"
	return p, err == nil
}

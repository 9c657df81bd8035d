package supervise

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of all its descendants that lose theirs.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// rename gives the process another short name, so that what is meant for the
// supervisor (killall pgelector) does not hit the guard, too.
func rename(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

// tie has the kernel kill the command when the guard's thread ends.
func tie(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// program is this very program, even if its file was replaced since it started.
func program() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}

// followsAll says that wait4's ECHILD means that nothing is left.
const followsAll = true

// process is one line of the process table.
type process struct {
	pid, parent, group int
	zombie             bool
}

// descendants lists the living processes below this one.
func descendants() ([]process, error) {
	var all []process
	for queue := []int{os.Getpid()}; len(queue) > 0; queue = queue[1:] {
		children, err := childrenOf(queue[0])
		if err != nil {
			return nil, err
		}
		queue = append(queue, children...)
		for _, pid := range children {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil {
				continue // it has ended since
			}
			if p, ok := parseStat(stat); ok && !p.zombie {
				all = append(all, p)
			}
		}
	}
	return all, nil
}

// childrenOf asks the kernel's own list, which each thread has, where it was
// built in, and otherwise looks through all processes.
func childrenOf(pid int) (children []int, err error) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended since
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

// parseStat reads "pid (name) state ppid pgrp …"; the name may hold anything,
// parentheses too.
func parseStat(stat []byte) (p process, ok bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return p, false
	}
	var state string
	_, err := fmt.Sscan(string(stat[:open])+string(stat[end+1:]), &p.pid, &state, &p.parent, &p.group)
	p.zombie = state == "Z" || state == "X"
	return p, err == nil
}

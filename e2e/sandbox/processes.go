//go:build unix

package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Info is one line of the system's process table.
type Info struct {
	PID, Parent int
	State       string // starts with Z for a process that has ended and was not waited for
}

// Processes lists the processes of the system: from /proc on Linux, since slim containers have no
// ps, and from ps elsewhere.
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
		// pid (name) state ppid …, and the name may hold anything, parentheses too.
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

// AnyAlive reports whether one of the processes lives.
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

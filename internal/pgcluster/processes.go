//go:build unix

package pgcluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// processInfo is one line of the system's process table.
type processInfo struct {
	pid, parent int
	state       string // starts with Z for a process that has ended and was not waited for
}

// processTable lists the processes of the system: from /proc on Linux, since slim containers have no
// ps, and from ps elsewhere.
func processTable() ([]processInfo, error) {
	if runtime.GOOS == "linux" {
		return procTable()
	}
	out, err := exec.Command("ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "state=").Output()
	if err != nil {
		return nil, fmt.Errorf("pgcluster: list processes by ps: %w", err)
	}
	var table []processInfo
	for line := range strings.Lines(string(out)) {
		var p processInfo
		if _, err := fmt.Sscan(line, &p.pid, &p.parent, &p.state); err == nil {
			table = append(table, p)
		}
	}
	return table, nil
}

func procTable() ([]processInfo, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("pgcluster: /proc is not mounted (%v)", err)
	}
	var table []processInfo
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
		var p processInfo
		line := string(stat[:open]) + string(stat[end+1:])
		if _, err := fmt.Sscan(line, &p.pid, &p.state, &p.parent); err == nil {
			table = append(table, p)
		}
	}
	return table, nil
}

// childrenOf returns the living children of a process.
func childrenOf(pid int) ([]int, error) {
	table, err := processTable()
	if err != nil {
		return nil, err
	}
	var children []int
	for _, p := range table {
		if p.parent == pid && !strings.HasPrefix(p.state, "Z") {
			children = append(children, p.pid)
		}
	}
	return children, nil
}

// anyAlive reports whether one of the processes lives.
func anyAlive(pids []int) (bool, error) {
	table, err := processTable()
	if err != nil {
		return false, err
	}
	wanted := make(map[int]bool)
	for _, pid := range pids {
		wanted[pid] = true
	}
	for _, p := range table {
		if wanted[p.pid] && !strings.HasPrefix(p.state, "Z") {
			return true, nil
		}
	}
	return false, nil
}

//go:build unix

package sandbox

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Freeze stops a process and its children by SIGSTOP and returns them, the process first: from then on it
// can start no other, and the list is complete.
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

// Thaw lets a process and its children go on that Freeze stopped.
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

// Kill ends a process and its children by SIGKILL, as a crash of the whole machine would, and returns when
// they have ended.
func Kill(pid int) error {
	pids, err := Freeze(pid)
	if err != nil {
		return err
	}
	for _, one := range pids {
		syscall.Kill(one, syscall.SIGKILL)
	}
	// Orphans are not ours to wait for, but until they are gone their server cannot start again.
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if alive, err := AnyAlive(pids); err != nil || !alive {
			return err
		}
	}
	return fmt.Errorf("sandbox: of the processes %v some survived SIGKILL for 10 seconds", pids)
}

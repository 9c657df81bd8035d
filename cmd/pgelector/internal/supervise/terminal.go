//go:build unix

package supervise

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is a standard input with the supervisor in its foreground. The command's
// process group is the foreground while it runs, so that it can read and Ctrl-C reaches it.
// It is nil if there is no such terminal.
type terminal struct {
	fd    int
	owner int // the supervisor's process group
}

// ours returns the terminal on standard input if the group is its foreground.
func ours(group int) *terminal {
	fd := int(os.Stdin.Fd())
	owner, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || owner != group {
		return nil
	}
	return &terminal{fd: fd, owner: owner}
}

// lend makes the group the foreground. It wakes the group, which may have been stopped
// because it tried to read earlier.
func (t *terminal) lend(group int) {
	if t == nil {
		return
	}
	t.give(group)
	_ = syscall.Kill(-group, syscall.SIGCONT)
}

// takeBack makes the supervisor the foreground again.
func (t *terminal) takeBack() {
	if t != nil {
		t.give(t.owner)
	}
}

// give sets the foreground. The kernel would stop this background process with SIGTTOU if
// that were not blocked.
func (t *terminal) give(group int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	restore := blockTTOU()
	defer restore()
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
}

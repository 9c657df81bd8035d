//go:build unix

package supervise

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is the standard input that the supervisor was in the foreground
// of. The command's process group takes that place while it runs, so that it can
// read, and Ctrl-C reaches it; nil if there is no such terminal.
type terminal struct {
	fd    int
	owner int // the process group that had it
}

// ours is the terminal on standard input if the group is its foreground.
func ours(group int) *terminal {
	fd := int(os.Stdin.Fd())
	owner, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || owner != group {
		return nil
	}
	return &terminal{fd: fd, owner: owner}
}

// lend makes the group the foreground. It may have tried to read before that,
// and been stopped for it.
func (t *terminal) lend(group int) {
	if t == nil {
		return
	}
	t.give(group)
	_ = syscall.Kill(-group, syscall.SIGCONT)
}

// takeBack gives the foreground back.
func (t *terminal) takeBack() {
	if t != nil {
		t.give(t.owner)
	}
}

// give sets the foreground from the background, for which the kernel would stop
// this process by SIGTTOU if that were not blocked. To ignore the signal instead
// would make the command ignore it, too.
func (t *terminal) give(group int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	restore := blockTTOU()
	defer restore()
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
}

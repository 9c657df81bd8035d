//go:build unix

package supervise

import (
	"errors"
	"syscall"
)

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

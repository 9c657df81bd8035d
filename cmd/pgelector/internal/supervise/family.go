//go:build unix

package supervise

import (
	"errors"
	"syscall"
)

// A family is what belongs to a command: its process group, and on Linux every
// process below this one, whatever group or session it is in.
type family struct {
	group int
	led   bool // the command was not waited for yet, so the group's number is surely its own
}

// signal sends the signals to all of the family. A group is signalled as a
// whole, which no fork can slip through, but only while one of its processes is
// known to live: the number of an empty group may be a stranger's.
func (f family) signal(signals ...syscall.Signal) {
	if f.led {
		f.signalGroup(signals...)
	}
	members, err := descendants()
	groupLives := err != nil && !f.led // not known: the group, as far as it goes
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

// left reports whether anything of the family lives, given whether this process
// has children.
func (f family) left(children bool) bool {
	if followsAll || children {
		return children
	}
	return f.groupLives()
}

func (f family) groupLives() bool {
	return f.group > 1 && !errors.Is(syscall.Kill(-f.group, 0), syscall.ESRCH)
}

// reap waits for every child that has ended, and with WUNTRACED also tells of
// those that were stopped. It reports whether children are left.
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

// lives reports whether a process below this one lives, besides the guard and zombies.
// Where descendants are not known, it reports whether one of the group does.
func (f family) lives(guard int) bool {
	members, err := descendants()
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

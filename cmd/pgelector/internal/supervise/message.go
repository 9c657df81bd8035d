//go:build unix

package supervise

import (
	"fmt"
	"syscall"
	"time"
)

// order is a line from the supervisor to the guard, as JSON.
type order struct {
	Do       string         `json:"do"`
	Deadline instant        `json:"deadline,omitempty"`
	Grace    time.Duration  `json:"grace,omitempty"`
	Signal   syscall.Signal `json:"signal,omitempty"`
}

const (
	doStart  = "start"  // the first one: with the grace and the first deadline
	doExtend = "extend" // the deadline
	doSignal = "signal" // the command's process group
	doStop   = "stop"
)

// report is a line from the guard to the supervisor, as JSON.
type report struct {
	Is      string             `json:"is"`
	PID     int                `json:"pid,omitempty"`
	Error   string             `json:"error,omitempty"`
	Code    int                `json:"code,omitempty"`    // of a command that could not be started
	Status  syscall.WaitStatus `json:"status,omitempty"`  // of the command
	Stopped bool               `json:"stopped,omitempty"` // the guard had begun to end it
	TTY     bool               `json:"tty,omitempty"`     // the command was the foreground of a terminal
}

const (
	isStarted = "started"
	isFailed  = "failed" // the command could not be started
	isExited  = "exited" // the command itself; others of its group may be left
	isGone    = "gone"   // nothing is left
)

// The exit codes by which shells tell why a command did not start.
const (
	CodeNotExecutable = 126
	CodeNotFound      = 127
	signalBase        = 128
)

// Result is how a command ended.
type Result struct {
	Code       int    // its exit status, 128+n after signal n, 126 or 127 if it did not start
	Stopped    bool   // it was ended from outside: the term was over, or the guard was killed
	GuardLost  bool   // the guard was killed, and the command for it
	FromTTY    bool   // a key of the terminal ended it, such as Ctrl-C
	StartError string // why it did not start
}

func (r Result) String() string {
	switch {
	case r.StartError != "":
		return r.StartError
	case r.Code > signalBase:
		return fmt.Sprintf("ended by signal %d (%v)", r.Code-signalBase, syscall.Signal(r.Code-signalBase))
	default:
		return fmt.Sprintf("exit status %d", r.Code)
	}
}

// codeOf is the exit code that a shell shows for a status.
func codeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return signalBase + int(status.Signal())
	}
	return status.ExitStatus()
}

//go:build unix

package supervise

import (
	"fmt"
	"syscall"
	"time"
)

// order is a JSON line from the supervisor to the guard.
type order struct {
	Do       string         `json:"do"`
	Deadline instant        `json:"deadline,omitempty"`
	Grace    time.Duration  `json:"grace,omitempty"`
	Signal   syscall.Signal `json:"signal,omitempty"`
}

const (
	doStart  = "start"  // the first order, with the grace and the deadline
	doExtend = "extend" // the new deadline
	doSignal = "signal" // to the command's process group
	doStop   = "stop"
)

// report is a JSON line from the guard to the supervisor.
type report struct {
	Is      string             `json:"is"`
	PID     int                `json:"pid,omitempty"`
	Error   string             `json:"error,omitempty"`
	Code    int                `json:"code,omitempty"`    // of a command that could not be started
	Status  syscall.WaitStatus `json:"status,omitempty"`  // of the command
	Stopped bool               `json:"stopped,omitempty"` // the guard was ending it
	TTY     bool               `json:"tty,omitempty"`     // the command was in the foreground of a terminal
}

const (
	isStarted = "started"
	isFailed  = "failed" // the command could not be started
	isExited  = "exited" // the command; others of its group may be left
	isGone    = "gone"   // no process is left
)

// The exit codes that shells use if a command did not start.
const (
	CodeNotExecutable = 126
	CodeNotFound      = 127
	signalBase        = 128
)

// Result says how a command ended.
type Result struct {
	Code       int    // its exit status, 128+n after signal n, 126 or 127 if it did not start
	Stopped    bool   // ended because the term was over, or because the guard was killed
	GuardLost  bool   // the guard was killed, and the command with it
	FromTTY    bool   // ended by a key of the terminal, such as Ctrl-C
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

// codeOf returns the exit code that a shell shows for a status.
func codeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return signalBase + int(status.Signal())
	}
	return status.ExitStatus()
}

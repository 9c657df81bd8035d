//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
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

// argvOf returns the arguments of the guard: the descriptors of its ends of the pipes come before the
// command.
func argvOf(o Options, control, reports *os.File) []string {
	argv := append(slices.Clone(o.Guard), strconv.Itoa(int(control.Fd())), strconv.Itoa(int(reports.Fd())))
	return append(argv, o.Command...)
}

// pipesOf returns the guard's ends of the pipes, and the command. The command does not inherit them.
func pipesOf(args []string) (control, reports *os.File, command []string, err error) {
	if len(args) <= 2 {
		return nil, nil, nil, errors.New("want two descriptors and a command")
	}
	var files [2]*os.File
	for i, arg := range args[:2] {
		fd, err := strconv.Atoi(arg)
		if err != nil {
			return nil, nil, nil, err
		}
		syscall.CloseOnExec(fd)
		files[i] = os.NewFile(uintptr(fd), "pipe")
	}
	return files[0], files[1], args[2:], nil
}

// report is a JSON line from the guard to the supervisor.
type report struct {
	Is      string             `json:"is"`
	PID     int                `json:"pid,omitempty"`
	Error   string             `json:"error,omitempty"`
	Code    int                `json:"code,omitempty"`    // of a command that was not started
	Status  syscall.WaitStatus `json:"status,omitempty"`  // of the command
	Stopped bool               `json:"stopped,omitempty"` // the guard was ending it, or did not start it, because the term was over
	TTY     bool               `json:"tty,omitempty"`     // the command was in the foreground of a terminal
}

const (
	isStarted = "started"
	isFailed  = "failed" // the command was not started
	isExited  = "exited" // the command; others of its group may be left
	isLent    = "lent"   // the terminal, to the command
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
	Code       int    // its exit status, 128+n after signal n, 126 or 127 if it could not be started
	Stopped    bool   // ended, or not started, because the term was over; or ended because the guard was killed
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

// forwarded are the signals that the supervisor passes on to the command.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT,
}

// Catch returns a channel of the signals to forward. Signals that were ignored when this
// program started, as by nohup, stay ignored. Catch also catches SIGPIPE: when nobody reads
// the log any more, writes fail, but the program goes on.
func Catch() <-chan os.Signal {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	caught := make(chan os.Signal, 16)
	for _, sig := range forwarded {
		if !signal.Ignored(sig) {
			signal.Notify(caught, sig)
		}
	}
	return caught
}

// Ends reports whether the signal asks the program to end. SIGHUP and SIGQUIT do only if no command
// runs: many programs reload their configuration on the one, and print their threads on the other.
func Ends(sig os.Signal, commandRuns bool) bool {
	if sig == syscall.SIGHUP || sig == syscall.SIGQUIT {
		return !commandRuns
	}
	return sig == syscall.SIGINT || sig == syscall.SIGTERM
}

// instantOf converts a time. It reads the shared clock first, so that a freeze between the
// readings makes the deadline too early, not too late. So does a sleep of the machine, which
// only the wall clock shows, and a wall clock that is set forward.
func instantOf(t time.Time) instant {
	n := now()
	return n.plus(min(time.Until(t), time.Until(t.Round(0))))
}

func (i instant) plus(d time.Duration) instant { return i + instant(d) }

// left returns the time until i.
func (i instant) left() time.Duration { return time.Duration(i - now()) }

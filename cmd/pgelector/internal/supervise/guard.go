//go:build unix

package supervise

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

const (
	sweepEvery = 20 * time.Millisecond // between two rounds of KILL, or two checks for processes left
	checkEvery = time.Second           // between two checks of the deadline: timers stop while the machine sleeps
)

// guard is the state of the guard. One goroutine uses it.
type guard struct {
	family
	reports  *json.Encoder
	parents  int       // the supervisor's process group
	terminal *terminal // lent to the command; may be nil

	phase    phase
	grace    time.Duration
	deadline instant // when to stop the command unless extended
	killAt   instant
	again    *time.Timer // the next check
}

type phase int

const (
	running  phase = iota
	stopping       // TERM was sent
	killing        // KILL is sent repeatedly
	gone
)

// Guard runs the command of these arguments, which follow those of Options.Guard, and returns when no
// process of it is left. Call it on the main goroutine of a process that Start started and that does
// nothing else.
func Guard(args []string) {
	runtime.LockOSThread() // never unlocked: tie depends on this thread
	rename("pge-guard")
	control, reports, command, err := pipesOf(args)
	if err != nil {
		return // a person started it
	}
	orders := json.NewDecoder(control)
	var first order
	if err := orders.Decode(&first); err != nil || first.Do != doStart {
		return // the supervisor is gone
	}
	g := &guard{reports: json.NewEncoder(reports), grace: first.Grace, deadline: first.Deadline,
		again: time.NewTimer(0)}
	g.parents, _ = syscall.Getpgid(os.Getppid())
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	catchForwarded()
	if err := adopt(); err != nil {
		g.report(report{Is: isFailed, Error: "become a subreaper: " + err.Error(), Code: CodeNotExecutable})
		return
	}
	if g.deadline.left() <= 0 { // the host froze meanwhile, and another may lead
		g.report(report{Is: isFailed, Error: "not started, because the term was over", Code: signalBase + int(syscall.SIGTERM), Stopped: true})
		return
	}
	if !g.start(command) {
		return
	}
	g.keep(receive(orders), children)
	g.terminal.takeBack()
	g.report(report{Is: isGone})
}

// catchForwarded catches signals that would end the guard. Ignoring them would make the command
// ignore them too.
func catchForwarded() {
	discarded := make(chan os.Signal, 1)
	for _, sig := range forwarded {
		if !signal.Ignored(sig) {
			signal.Notify(discarded, sig)
		}
	}
}

// receive returns a channel of orders, closed when the supervisor is gone.
func receive(orders *json.Decoder) <-chan order {
	received := make(chan order)
	go func() {
		defer close(received)
		for {
			var o order
			if err := orders.Decode(&o); err != nil {
				return
			}
			received <- o
		}
	}()
	return received
}

func (g *guard) start(command []string) bool {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	tie(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		g.report(report{Is: isFailed, Error: err.Error(), Code: StartCode(err)})
		return false
	}
	g.family = family{group: cmd.Process.Pid, led: true}
	g.report(report{Is: isStarted, PID: g.group})
	return true
}

// StartCode returns the exit code that a shell would use.
func StartCode(err error) int {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return CodeNotFound
	}
	return CodeNotExecutable
}

// keep returns when no process is left.
func (g *guard) keep(orders <-chan order, children <-chan os.Signal) {
	for g.phase != gone {
		select {
		case o, ok := <-orders:
			if !ok {
				orders = nil
			}
			g.handle(o, ok)
		case <-children:
		case <-g.again.C:
		}
		g.look()
	}
}

func (g *guard) handle(o order, ok bool) {
	switch {
	case !ok: // the supervisor is gone, so the lock is free
		g.phase = max(g.phase, killing)
	case o.Do == doExtend:
		g.deadline = o.Deadline
	case o.Do == doSignal && g.led:
		g.signalGroup(o.Signal)
		if Ends(o.Signal, true) {
			g.signalGroup(syscall.SIGCONT) // wakes stopped processes
		}
	case o.Do == doStop:
		g.stop()
	}
}

// stop sends TERM once. The grace starts at the deadline at the latest.
func (g *guard) stop() {
	if g.phase != running {
		return
	}
	g.phase = stopping
	g.killAt = min(now(), g.deadline).plus(g.grace)
	g.signal(syscall.SIGTERM, syscall.SIGCONT) // wakes stopped processes
}

// look does what is due, and schedules the next call.
func (g *guard) look() {
	children := reap(syscall.WUNTRACED, g.ended)
	if !g.family.left(children) {
		g.phase = gone
		return
	}
	if g.phase == running && (!g.led || g.deadline.left() <= 0) {
		g.stop()
	}
	if g.phase == stopping && (g.killAt.left() <= 0 || g.deadline.plus(g.grace).left() <= 0) {
		g.phase = killing
	}
	next := sweepEvery
	switch g.phase {
	case running:
		g.lend()
		next = min(g.deadline.left(), checkEvery)
	case stopping:
		if followsAll {
			next = min(g.killAt.left(), checkEvery)
		}
	case killing:
		g.signal(syscall.SIGKILL)
	}
	g.again.Reset(max(next, 0))
}

// lend lends the terminal to the command, if the supervisor has it. A shell may have brought the
// supervisor to the foreground since the last look.
func (g *guard) lend() {
	if t := ours(g.parents); t != nil {
		g.terminal = t
		g.report(report{Is: isLent}) // before: the supervisor takes it back if this process is killed
		t.lend(g.group)
	}
}

// ended records the end of the command. Other processes are only reaped.
func (g *guard) ended(pid int, status syscall.WaitStatus) {
	if pid != g.group || !g.led {
		return
	}
	if status.Stopped() {
		if status.StopSignal() == syscall.SIGTSTP && g.terminal != nil {
			g.signalGroup(syscall.SIGCONT) // Ctrl-Z: a leader cannot be suspended, because its lease runs on
		}
		return
	}
	g.led = false
	g.report(report{Is: isExited, Status: status, Stopped: g.phase != running, TTY: g.terminal != nil})
}

// report sends r to the supervisor, if it lives.
func (g *guard) report(r report) { _ = g.reports.Encode(r) }

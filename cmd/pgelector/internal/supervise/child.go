//go:build unix

// Package supervise runs a command so that no process of it outlives the term.
//
// # What is not promised
//
// A process in uninterruptible sleep, or one that became another user's, cannot be killed.
// The lock is then held as long as the session lives; after that the process runs on. If
// the guard and the supervisor are killed at the same instant, the kernel kills the
// command, but not its children. On systems other than Linux, processes that leave the
// command's process group are not followed.
//
// # Three processes
//
//	supervisor ──control pipe──▶ guard ──fork──▶ command (own process group) ─▶ its children
//	 the election   ◀──reports──   (own process group)
//
// The supervisor holds the lock. The guard, a second process of this program, is the
// command's parent. It ends the command on request, and in three cases that the supervisor
// cannot handle:
//
//   - The supervisor is frozen: the term's deadline passes, because no heartbeat extends
//     it. The guard's clock includes the time that the machine sleeps.
//   - The supervisor is killed: the control pipe closes. The lock is free at once, so the
//     guard kills at once.
//   - The guard is killed: the kernel kills the command (PR_SET_PDEATHSIG), and the
//     supervisor kills the command's children and takes the terminal back.
//
// Both are child subreapers (PR_SET_CHILD_SUBREAPER): orphans stay below them, and wait4
// returns ECHILD only when no process is left.
//
// A supervisor may have many guards, one for each command. A process below the supervisor belongs to
// a guard that was killed if it is not below a living guard, and not below a child that the supervisor
// had when it began.
//
// # How a command ends
//
//	running ── Stop, or the deadline passed, or the command ended ────────────▶ stopping: TERM to all
//	                                                                            │ the grace is over
//	                                                                            ▼
//	gone ◀── nothing is left ───────────────────────────────────────────── killing: KILL, until
//
// Reading order: child.go (the supervisor's side), message.go (the messages), guard.go (the
// states above), reaper.go (the command's processes).
package supervise

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Options say what to run and how to end it.
type Options struct {
	Guard    []string // argv of this program that makes it call Guard with the rest of its arguments
	Command  []string
	Env      []string // of the command
	Grace    time.Duration
	Drain    time.Duration // from Stop until this process kills what is left
	Deadline time.Time     // of the term
	NoInput  bool          // the command reads /dev/null: several cannot share a terminal
}

// A Child is the supervisor's side of a command under a guard.
type Child struct {
	reaper   *Reaper
	drain    time.Duration
	guardPID int
	guard    <-chan struct{} // closed when the guard's process has ended
	terminal *terminal       // that the guard has lent to the command; may be nil

	mu      sync.Mutex // guards control
	control *os.File

	halt    sync.Once
	stopped chan struct{} // closed by Stop
	started chan struct{} // closed when the command runs or cannot start
	gone    chan struct{} // closed when no process is left

	pid    atomic.Int32 // of the command, once started
	result Result       // once gone
}

// Start starts the guard, which starts the command with the descriptors that this process has
// inherited. Several children may run at the same time.
func (r *Reaper) Start(o Options) (*Child, error) {
	control, controlEnd, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	reportEnd, reports, err := os.Pipe()
	if err != nil {
		_ = control.Close()
		_ = controlEnd.Close()
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	defer control.Close()
	defer reports.Close()
	input := os.Stdin
	if o.NoInput {
		if input, err = os.Open(os.DevNull); err != nil {
			_ = controlEnd.Close()
			_ = reportEnd.Close()
			return nil, fmt.Errorf("start the guard: %w", err)
		}
		defer input.Close()
	}
	c := &Child{reaper: r, drain: o.Drain, control: controlEnd,
		stopped: make(chan struct{}), started: make(chan struct{}), gone: make(chan struct{})}
	c.guardPID, c.guard, err = r.start(argvOf(o, control, reports), &os.ProcAttr{
		Env:   o.Env,
		Files: []*os.File{input, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true}, // not reached by Ctrl-C
	}, control, reports)
	if err != nil {
		_ = controlEnd.Close()
		_ = reportEnd.Close()
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	c.send(order{Do: doStart, Grace: o.Grace, Deadline: instantOf(o.Deadline)})
	go c.keep(reportEnd)
	return c, nil
}

// Extend sends the term's new deadline to the guard.
func (c *Child) Extend(deadline time.Time) {
	c.send(order{Do: doExtend, Deadline: instantOf(deadline)})
}

// Signal sends a signal to the command's process group.
func (c *Child) Signal(sig os.Signal) {
	if number, ok := sig.(syscall.Signal); ok {
		c.send(order{Do: doSignal, Signal: number})
	}
}

// Stop begins to end the command: TERM, the grace, KILL.
func (c *Child) Stop() {
	c.halt.Do(func() {
		c.send(order{Do: doStop})
		close(c.stopped)
	})
}

// isStopped reports whether Stop was called.
func (c *Child) isStopped() bool {
	select {
	case <-c.stopped:
		return true
	default:
		return false
	}
}

// Started is closed when the command runs or cannot start.
func (c *Child) Started() <-chan struct{} { return c.started }

// PID returns the process id of the command and its group, or 0 if it did not start. Call it
// after Started is closed.
func (c *Child) PID() int { return int(c.pid.Load()) }

// Gone is closed when no process of the command is left.
func (c *Child) Gone() <-chan struct{} { return c.gone }

// Alive reports whether a process of the command lives now. Gone follows a little later,
// because the guard reports it.
func (c *Child) Alive() bool {
	select {
	case <-c.gone:
		return false
	default:
		return family{group: c.PID(), others: c.reaper.others(c.guardPID)}.lives(c.guardPID)
	}
}

// Result returns how the command ended. Call it after Gone is closed.
func (c *Child) Result() Result { return c.result }

// send sends an order. It does not block for long if the guard is gone or frozen. The first
// order finds an empty pipe, so it has no time limit, which a busy machine could exceed. An
// order that finds a full pipe is lost as a whole, since it is shorter than PIPE_BUF; a
// json.Encoder would drop all later ones, too.
func (c *Child) send(o order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Do != doStart {
		_ = c.control.SetWriteDeadline(time.Now().Add(sendTimeout))
	}
	line, _ := json.Marshal(o) // cannot fail
	_, _ = c.control.Write(append(line, '\n'))
}

const sendTimeout = 100 * time.Millisecond

// keep reads the reports until no process is left. It kills what the guard leaves, and takes the
// terminal back if the guard has not.
func (c *Child) keep(reports *os.File) {
	defer close(c.gone)
	defer c.control.Close()
	defer reports.Close()
	ended := make(chan bool, 1)
	go func() { ended <- c.listen(json.NewDecoder(reports)) }()
	var clean bool
	select {
	case clean = <-ended:
	case <-c.guard: // its last reports may be on the way
		_ = reports.SetReadDeadline(time.Now().Add(lastReports))
		clean = <-ended
	case <-c.overdue(): // the guard is frozen
		c.reaper.kill(c.guardPID)
		c.finish()
		<-c.guard
		_ = reports.SetReadDeadline(time.Now().Add(lastReports))
		<-ended
	}
	if !clean {
		c.finish()
		c.terminal.takeBack() // now that nobody is left who could take it again
	}
}

const lastReports = time.Second

// overdue is closed if the guard lives for the drain after Stop.
func (c *Child) overdue() <-chan struct{} {
	fire := make(chan struct{})
	go func() {
		select {
		case <-c.stopped:
		case <-c.guard:
			return
		}
		timer := time.NewTimer(c.drain)
		defer timer.Stop()
		select {
		case <-timer.C:
			close(fire)
		case <-c.guard:
		}
	}()
	return fire
}

// listen reports whether the guard said that no process is left.
func (c *Child) listen(reports *json.Decoder) (clean bool) {
	started := sync.OnceFunc(func() { close(c.started) })
	defer started()
	exited := false
	for {
		var r report
		if err := reports.Decode(&r); err != nil {
			if !exited { // the guard was killed, and the command with it
				c.result = Result{Code: signalBase + int(syscall.SIGKILL), Stopped: true, GuardLost: !c.isStopped()}
			}
			return false
		}
		switch r.Is {
		case isStarted:
			c.pid.Store(int32(r.PID))
			started()
		case isFailed:
			c.result = Result{Code: r.Code, Stopped: r.Stopped, StartError: r.Error}
			return true
		case isExited:
			exited = true
			code := codeOf(r.Status)
			c.result = Result{Code: code, Stopped: r.Stopped, FromTTY: r.TTY && r.Status.Signaled() &&
				(r.Status.Signal() == syscall.SIGINT || r.Status.Signal() == syscall.SIGQUIT)}
		case isLent:
			c.terminal = &terminal{fd: int(os.Stdin.Fd()), owner: syscall.Getpgrp()}
		case isGone:
			return true
		}
	}
}

// finish kills all descendants, except those of other guards, until none is left.
func (c *Child) finish() {
	for c.reaper.sweep(family{group: c.PID()}, c.guardPID) {
		time.Sleep(sweepEvery)
	}
}

//go:build linux

// Package fleet runs the candidates of an election, each in its own process. The programs
// e2e/torture and e2e/ha use it: they inject faults and then check what the candidates
// recorded.
//
// A candidate's process is a copy of the program, so main must call [RunIfCandidate]
// first. Candidates record what they do and believe (package history). Leaders write to
// the tables of [Schema] in fenced transactions.
//
// # Reading order
//
// fleet.go runs in the program; candidate.go and lead.go run in a candidate's process;
// checks.go checks the recorded writes.
package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
)

// Config is what a fleet needs of its program.
type Config struct {
	Seats []Seat
	// DSN is how a candidate reaches the server now.
	DSN func(*Member) string
	// Ended is called, by a goroutine of its own, for a process that was not told
	// to end. By then all that it recorded is in the log.
	Ended func(*Member)
	// Prepare, if it is not nil, may change how a process is started.
	Prepare func(*Member, *exec.Cmd)
	// Started, if it is not nil, is called before a process becomes a candidate.
	Started func(*Member) error
}

// Fleet is the candidates' processes. Its methods are called by one goroutine.
type Fleet struct {
	Config
	Log     history.Log
	Members map[string]*Member // by seat

	born  map[string]int           // so many, by seat
	read  int                      // of the log
	terms map[string]history.Event // the last sample of each process in the first election
}

// Member is a candidate's process.
type Member struct {
	part
	cmd  *exec.Cmd
	in   io.WriteCloser
	said bytes.Buffer

	dismissed atomic.Bool
	gone      chan struct{} // closed once it has ended and all that it told was read
	err       error         // how it ended
}

// New returns a fleet without a candidate.
func New(c Config) *Fleet {
	return &Fleet{Config: c, Members: map[string]*Member{}, born: map[string]int{}, terms: map[string]history.Event{}}
}

// Fill starts a candidate in each seat that is empty.
func (f *Fleet) Fill() error {
	for _, seat := range f.Seats {
		if f.Members[seat.ID] == nil {
			if err := f.start(seat); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Fleet) start(s Seat) error {
	f.born[s.ID]++
	m := &Member{part: part{Seat: s, Name: fmt.Sprint(s.ID, f.born[s.ID])}, gone: make(chan struct{})}
	told, err := json.Marshal(m.part)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	m.cmd = exec.Command(program)
	m.cmd.Env = append(os.Environ(), candidateVariable+"="+string(told))
	m.cmd.Stderr = &m.said
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // a frozen one cannot end by itself
	if f.Prepare != nil {
		f.Prepare(m, m.cmd)
	}
	in, inErr := m.cmd.StdinPipe()
	out, outErr := m.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, m.cmd.Start()); err != nil {
		return fmt.Errorf("start candidate %s: %w", m.Name, err)
	}
	m.in = in
	f.Members[s.ID] = m
	go f.follow(m, out)
	if f.Started != nil {
		if err := f.Started(m); err != nil {
			return err
		}
	}
	return m.Tell(cmdGo + " " + f.DSN(m))
}

// follow gathers what the process tells, and sees it to its end.
func (f *Fleet) follow(m *Member, out io.Reader) {
	defer close(m.gone)
	err := f.Log.Collect(out)
	if err != nil {
		_ = m.cmd.Process.Kill() // it would block on a pipe that nobody reads
	}
	m.err = errors.Join(err, m.cmd.Wait())
	if !m.dismissed.Load() {
		f.Ended(m)
	}
}

// Tell sends a command: Resign, Discard or Close.
func (m *Member) Tell(command string) error {
	if _, err := fmt.Fprintln(m.in, command); err != nil {
		return fmt.Errorf("tell candidate %s to %s: %w", m.Name, command, err)
	}
	return nil
}

// PID is the process's id.
func (m *Member) PID() int { return m.cmd.Process.Pid }

// Err is how a process ended that was not told to, once Ended was called for it.
func (m *Member) Err() error {
	return fmt.Errorf("candidate %s ended by itself (%v): %s", m.Name, m.err, m.said.String())
}

// Signal sends a signal to the process.
func (m *Member) Signal(s syscall.Signal) { _ = m.cmd.Process.Signal(s) }

// Kill ends a process by SIGKILL, in whatever state it is.
func (f *Fleet) Kill(m *Member) {
	delete(f.Members, m.ID)
	m.dismissed.Store(true)
	f.Log.Add(history.Event{Process: m.Name, At: history.Now(), Kind: history.Killed})
	m.Signal(syscall.SIGKILL)
	<-m.gone
}

// Leave lets a process end by itself, which it must.
func (f *Fleet) Leave(m *Member) error {
	delete(f.Members, m.ID)
	m.dismissed.Store(true)
	_ = m.in.Close()
	select {
	case <-m.gone:
	case <-time.After(Patience):
		f.Kill(m)
		return fmt.Errorf("candidate %s has not left within %v: %s", m.Name, Patience, m.said.String())
	}
	if m.err != nil {
		return fmt.Errorf("candidate %s left with %w: %s", m.Name, m.err, m.said.String())
	}
	return nil
}

// Dismiss lets all leave, at the same time.
func (f *Fleet) Dismiss() error {
	for _, m := range f.Members {
		m.dismissed.Store(true)
		_ = m.in.Close()
	}
	var errs []error
	for _, seat := range f.Seats {
		if m := f.Members[seat.ID]; m != nil {
			errs = append(errs, f.Leave(m))
		}
	}
	return errors.Join(errs...)
}

// Abandon kills whoever is left.
func (f *Fleet) Abandon() {
	for _, m := range f.Members {
		f.Kill(m)
	}
}

// Move gives every candidate the addresses that the stage has now.
func (f *Fleet) Move() error {
	var errs []error
	for _, m := range f.Members {
		errs = append(errs, m.Tell(cmdMove+" "+f.DSN(m)))
	}
	return errors.Join(errs...)
}

// update reads on in the log.
func (f *Fleet) update() {
	fresh := f.Log.Since(f.read)
	f.read += len(fresh)
	for _, e := range fresh {
		if e.Kind == history.Sample && e.Election == "" {
			f.terms[e.Process] = e
		}
	}
}

// Leader is who said last that it leads, and still might.
func (f *Fleet) Leader() (m *Member, token int64) {
	f.update()
	for _, one := range f.Members {
		if e := f.terms[one.Name]; e.Leading && e.Token > token && history.Now().Sub(e.At) < Lease {
			m, token = one, e.Token
		}
	}
	return m, token
}

// AwaitLeader returns the first who said after the moment that it leads.
func (f *Fleet) AwaitLeader(ctx context.Context, since history.Time) (history.Event, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Patience, fmt.Errorf("nobody led within %v", Patience))
	defer cancel()
	for {
		f.update()
		for _, e := range f.terms {
			if e.Leading && e.At >= since {
				return e, nil
			}
		}
		if _, err := f.Log.Await(ctx, f.read); err != nil {
			return history.Event{}, err
		}
	}
}

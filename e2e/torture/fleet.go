//go:build linux

package main

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

// fleet is the candidates' processes. Its methods are called by one goroutine.
type fleet struct {
	stage   *stage
	log     history.Log
	fail    context.CancelCauseFunc // told of a process that ends by itself
	members map[string]*member      // by seat
	born    map[string]int          // so many, by seat
	links   int                     // so far

	read  int                      // of the log
	terms map[string]history.Event // the last sample of each process in the first election
}

// member is a candidate's process.
type member struct {
	part
	cmd  *exec.Cmd
	in   io.WriteCloser
	said bytes.Buffer
	link *link // nil if there is none

	dismissed atomic.Bool
	gone      chan struct{} // closed once it has ended and all that it told was read
	err       error         // how it ended
}

func newFleet(s *stage, fail context.CancelCauseFunc) *fleet {
	return &fleet{stage: s, fail: fail, members: map[string]*member{}, born: map[string]int{}, terms: map[string]history.Event{}}
}

// fill starts a candidate in each seat that is empty.
func (f *fleet) fill() error {
	for _, seat := range seats {
		if f.members[seat.Seat] == nil {
			if err := f.start(seat); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *fleet) start(s seat) error {
	f.born[s.Seat]++
	m := &member{part: part{seat: s, Name: fmt.Sprint(s.Seat, f.born[s.Seat])}, gone: make(chan struct{})}
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
	own := s.Route == linked && f.stage.namespaces
	if own {
		m.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	}
	in, inErr := m.cmd.StdinPipe()
	out, outErr := m.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, m.cmd.Start()); err != nil {
		return fmt.Errorf("start candidate %s: %w", m.Name, err)
	}
	m.in = in
	f.members[s.Seat] = m
	go f.follow(m, out)
	if own {
		f.links++
		if m.link, err = wire(f.links, m.cmd.Process.Pid); err != nil {
			return err
		}
	}
	return m.tell(cmdGo + " " + f.stage.dsn(s, m.link))
}

// follow gathers what the process tells, and sees it to its end.
func (f *fleet) follow(m *member, out io.Reader) {
	defer close(m.gone)
	err := f.log.Collect(out)
	if err != nil {
		_ = m.cmd.Process.Kill() // it would block on a pipe that nobody reads
	}
	m.err = errors.Join(err, m.cmd.Wait())
	if !m.dismissed.Load() {
		f.fail(fmt.Errorf("candidate %s ended by itself (%v): %s", m.Name, m.err, m.said.String()))
	}
}

func (m *member) tell(command string) error {
	if _, err := fmt.Fprintln(m.in, command); err != nil {
		return fmt.Errorf("tell candidate %s to %s: %w", m.Name, command, err)
	}
	return nil
}

func (m *member) signal(s syscall.Signal) { _ = m.cmd.Process.Signal(s) }

// kill ends a process by SIGKILL, in whatever state it is.
func (f *fleet) kill(m *member) {
	delete(f.members, m.Seat)
	m.dismissed.Store(true)
	f.log.Add(history.Event{Process: m.Name, At: history.Now(), Kind: history.Killed})
	m.signal(syscall.SIGKILL)
	<-m.gone
}

// leave lets a process end by itself, which it must.
func (f *fleet) leave(m *member) error {
	delete(f.members, m.Seat)
	m.dismissed.Store(true)
	_ = m.in.Close()
	select {
	case <-m.gone:
	case <-time.After(patience):
		f.kill(m)
		return fmt.Errorf("candidate %s has not left within %v: %s", m.Name, patience, m.said.String())
	}
	if m.err != nil {
		return fmt.Errorf("candidate %s left with %w: %s", m.Name, m.err, m.said.String())
	}
	return nil
}

// dismiss lets all leave, at the same time.
func (f *fleet) dismiss() error {
	for _, m := range f.members {
		m.dismissed.Store(true)
		_ = m.in.Close()
	}
	var errs []error
	for _, seat := range seats {
		if m := f.members[seat.Seat]; m != nil {
			errs = append(errs, f.leave(m))
		}
	}
	return errors.Join(errs...)
}

// abandon kills whoever is left.
func (f *fleet) abandon() {
	for _, m := range f.members {
		f.kill(m)
	}
}

// move gives every candidate the addresses that the stage has now.
func (f *fleet) move() error {
	var errs []error
	for _, m := range f.members {
		errs = append(errs, m.tell(cmdMove+" "+f.stage.dsn(m.seat, m.link)))
	}
	return errors.Join(errs...)
}

// update reads on in the log.
func (f *fleet) update() {
	fresh := f.log.Since(f.read)
	f.read += len(fresh)
	for _, e := range fresh {
		if e.Kind == history.Sample && e.Election == "" {
			f.terms[e.Process] = e
		}
	}
}

// leader is who said last that it leads, and still might.
func (f *fleet) leader() (m *member, token int64) {
	f.update()
	for _, one := range f.members {
		if e := f.terms[one.Name]; e.Leading && e.Token > token && history.Now().Sub(e.At) < lease {
			m, token = one, e.Token
		}
	}
	return m, token
}

// awaitLeader returns the first who said after the moment that it leads.
func (f *fleet) awaitLeader(ctx context.Context, since history.Time) (history.Event, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("nobody led within %v", patience))
	defer cancel()
	for {
		f.update()
		for _, e := range f.terms {
			if e.Leading && e.At >= since {
				return e, nil
			}
		}
		if _, err := f.log.Await(ctx, f.read); err != nil {
			return history.Event{}, err
		}
	}
}

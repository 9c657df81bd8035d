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
// fleet.go runs in the program, and checks the recorded writes; candidate.go runs in a candidate's
// process; program.go has the programs' flags, and what a run leaves behind.
package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/register"
	"github.com/pgelector/pgelector/e2e/sandbox"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/preference"
)

// Config configures a Fleet.
type Config struct {
	Seats []Seat
	Seed  uint64 // decides what seats draw
	// DSN returns the current address of the server for a candidate.
	DSN func(*Member) string
	// Ended is called in a separate goroutine when a process has ended unexpectedly. By then
	// the log has all its events.
	Ended func(*Member)
	// Prepare, if not nil, may change the command that starts a process.
	Prepare func(*Member, *exec.Cmd)
	// Started, if not nil, is called before a process starts to campaign.
	Started func(*Member) error
}

// Fleet runs the candidates' processes. All methods must be called by one goroutine.
type Fleet struct {
	Config
	Log     history.Log
	Members map[string]*Member // by seat

	started map[string]int           // processes started, by seat
	read    int                      // events of the log that were read
	terms   map[string]history.Event // the last sample of each process in the first election
}

// Member is a candidate's process.
type Member struct {
	spec
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer

	dismissed atomic.Bool
	gone      chan struct{} // closed once it has ended and the log has all its events
	err       error         // how it ended
}

// New returns a fleet without candidates.
func New(c Config) *Fleet {
	return &Fleet{Config: c, Members: map[string]*Member{}, started: map[string]int{}, terms: map[string]history.Event{}}
}

// Fill starts a candidate in each empty seat.
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
	f.started[s.ID]++
	m := &Member{spec: spec{Seat: s.draw(f.Seed, f.started[s.ID]), Name: fmt.Sprint(s.ID, f.started[s.ID])}, gone: make(chan struct{})}
	text, err := json.Marshal(m.spec)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	m.cmd = exec.Command(program)
	m.cmd.Env = append(os.Environ(), candidateVariable+"="+string(text))
	m.cmd.Stderr = &m.stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // a frozen process cannot exit
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
	return m.Send(cmdGo + " " + f.DSN(m))
}

// follow collects the process's events and waits for its end.
func (f *Fleet) follow(m *Member, out io.Reader) {
	defer close(m.gone)
	err := f.Log.Collect(out)
	if err != nil {
		_ = m.cmd.Process.Kill() // otherwise it would block on a pipe that nobody reads
	}
	m.err = errors.Join(err, m.cmd.Wait())
	if !m.dismissed.Load() {
		f.Ended(m)
	}
}

// Send sends a command: Resign, Discard or Close.
func (m *Member) Send(command string) error {
	if _, err := fmt.Fprintln(m.in, command); err != nil {
		return fmt.Errorf("send candidate %s the command %s: %w", m.Name, command, err)
	}
	return nil
}

// PID returns the process id.
func (m *Member) PID() int { return m.cmd.Process.Pid }

// Err returns why a process ended unexpectedly. It may be called once Ended was called.
func (m *Member) Err() error {
	return fmt.Errorf("candidate %s ended unexpectedly (%v): %s", m.Name, m.err, m.stderr.String())
}

// Signal sends a signal to the process.
func (m *Member) Signal(s syscall.Signal) { _ = sandbox.Signal(m.cmd.Process, s) }

// Kill ends a process with SIGKILL, in whatever state it is.
func (f *Fleet) Kill(m *Member) {
	delete(f.Members, m.ID)
	m.dismissed.Store(true)
	f.Log.Add(history.Event{Process: m.Name, At: history.Now(), Kind: history.Killed})
	m.Signal(syscall.SIGKILL)
	<-m.gone
}

// Leave asks a process to leave and waits until it has.
func (f *Fleet) Leave(m *Member) error {
	delete(f.Members, m.ID)
	m.dismissed.Store(true)
	_ = m.in.Close()
	select {
	case <-m.gone:
	case <-time.After(Patience):
		f.Kill(m)
		return fmt.Errorf("candidate %s has not left within %v: %s", m.Name, Patience, m.stderr.String())
	}
	if m.err != nil {
		return fmt.Errorf("candidate %s left with %w: %s", m.Name, m.err, m.stderr.String())
	}
	return nil
}

// Dismiss asks all processes to leave, at the same time, and waits for them.
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

// Abandon kills the remaining processes.
func (f *Fleet) Abandon() {
	for _, m := range f.Members {
		f.Kill(m)
	}
}

// Move sends every candidate its current address.
func (f *Fleet) Move() error {
	var errs []error
	for _, m := range f.Members {
		errs = append(errs, m.Send(cmdMove+" "+f.DSN(m)))
	}
	return errors.Join(errs...)
}

// Mark records an event that belongs to no process.
func (f *Fleet) Mark(kind history.Kind, text string) history.Time {
	at := history.Now()
	f.Log.Add(history.Event{At: at, Kind: kind, Text: text})
	return at
}

// Pause waits for d. If ctx ends first, it returns the cause of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// update reads the new events of the log.
func (f *Fleet) update() {
	fresh := f.Log.Since(f.read)
	f.read += len(fresh)
	for _, e := range fresh {
		if e.Kind == history.Sample && e.Election == "" {
			f.terms[e.Process] = e
		}
	}
}

// Leader returns the candidate that last reported to lead, if its lease may still be valid.
func (f *Fleet) Leader() (m *Member, token int64) {
	f.update()
	for _, one := range f.Members {
		if e := f.terms[one.Name]; e.Leading && e.Token > token && history.Now().Sub(e.At) < one.LeaseLength() {
			m, token = one, e.Token
		}
	}
	return m, token
}

// AwaitLeader returns the first report after since that a candidate leads.
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

// A Seat describes the candidates of one seat. When a candidate is killed, the next one takes
// its seat.
type Seat struct {
	ID          string
	By          string // driver name in database/sql
	Route       Route
	Session     bool
	Takeover    elector.Takeover // not on a Session
	Interval    time.Duration    // WithDeputyInterval; 0 means the default
	Draws       bool             // each process draws its takeover, deputy interval, heartbeat interval and idleness
	Synchronous bool             // WithSynchronousStandby; not on a Session
	LockDelay   bool             // WithLockDelay
	Prefers     bool             // WithPriority; not on a Session
	Priority    int32            // if it prefers
	Retry       time.Duration    // 0 means the constant Retry
	Lease       time.Duration    // 0 means the constant Lease
	Heartbeat   time.Duration    // 0 means the constant Heartbeat, or with a Lease the elector's default
	Scope       elector.Scope    // WithScope
	Winds       time.Duration    // how long its work goes on when its term has ended
	Idle        bool             // as the leader it writes once: after that no statement between two heartbeats shows that its session has ended
}

// A Route names how a candidate reaches the server.
type Route string

// String describes the seat, for the log and the picture.
func (s Seat) String() string {
	text := map[elector.Takeover]string{elector.Deputy: "deputy", elector.Wait: "waits", elector.Poll: "polls"}[s.Takeover]
	switch {
	case s.Session:
		text = "session"
	case s.Draws:
		text = "draws its takeover"
	}
	return s.DriverName() + ", " + text + ", " + string(s.Route)
}

// DriverName returns the name that documents use for the driver.
func (s Seat) DriverName() string {
	if s.By == "postgres" {
		return "lib/pq"
	}
	return s.By
}

// LeaseLength returns the lease of the seat's candidates.
func (s Seat) LeaseLength() time.Duration { return cmp.Or(s.Lease, Lease) }

// The settings of every candidate whose seat has no others. The lease is short, so that much
// happens, and long enough that a busy machine loses few terms.
const (
	Lease     = 3 * time.Second
	Heartbeat = 300 * time.Millisecond
	Retry     = 200 * time.Millisecond
	Backoff   = time.Second
)

// The elector's margin and its default drain are these shares of the lease.
const (
	marginShare = 10
	drainShare  = 5
)

// Grace is how long a leader with that Lease may work after its last answered heartbeat.
const Grace = Lease - Lease/marginShare

// GraceOf returns the grace of a lease.
func GraceOf(lease time.Duration) time.Duration { return lease - lease/marginShare }

const (
	Sampling = 2 * time.Millisecond  // between two calls of IsLeader
	writing  = 60 * time.Millisecond // maximum pause between two writes of a leader
)

// Bound is when somebody must lead again once all faults have ended. A process that was
// frozen or cut off may hold the lock for one lease, and its transaction may block the
// next leader for two. With WithLockDelay nobody leads in the first lease of a server. Candidates try again after the backoff. The rest is for proxies
// that take a second to notice, and for a busy machine.
const Bound = 4*Lease + Backoff + 15*time.Second

// Patience bounds waits for expected events; after it the run has failed.
const Patience = time.Minute

func (p spec) options() []elector.SessionOption {
	opts := []elector.SessionOption{
		elector.WithCandidateID(p.Name),
		elector.WithLease(p.LeaseLength()),
		elector.WithRetryInterval(cmp.Or(p.Retry, Retry)),
	}
	if p.Lease == 0 || p.Heartbeat > 0 {
		opts = append(opts, elector.WithHeartbeatInterval(cmp.Or(p.Heartbeat, Heartbeat)))
	}
	if p.Idle {
		opts = append(opts, elector.WithValidateInterval(0))
	}
	if p.Scope != elector.Auto {
		opts = append(opts, elector.WithScope(p.Scope))
	}
	if p.LockDelay {
		opts = append(opts, elector.WithLockDelay(p.LeaseLength()))
	}
	if p.Prefers {
		preference.MinTerm = time.Second // of this process, which has one candidate
		opts = append(opts, elector.WithPriority(p.Priority), elector.WithPreemptDelay(cmp.Or(p.Retry, Retry)))
	}
	return opts
}

// Slowest is the longest heartbeat interval that a candidate draws: the constant Lease permits
// little more. An idle leader that was not told of a loss would believe for that long.
const Slowest = time.Second

// draw returns the seat of the process that is started as number n.
func (s Seat) draw(seed uint64, n int) Seat {
	if s.Draws {
		r := rand.New(rand.NewPCG(seed, uint64(n)<<8|uint64(s.ID[0])))
		s.Takeover = []elector.Takeover{elector.Deputy, elector.Wait, elector.Poll}[r.IntN(3)]
		s.Interval = 10*time.Millisecond + time.Duration(r.Int64N(int64(Heartbeat-10*time.Millisecond)))
		s.Heartbeat = Heartbeat + time.Duration(r.Int64N(int64(Slowest-Heartbeat)))
		s.Idle = r.IntN(2) == 0
	}
	return s
}

// Of returns the events of one election, and those that belong to no election.
func Of(election string, events []history.Event) []history.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool {
		common := e.Seq == 0 || e.Kind == history.Hello || e.Kind == history.Bye
		return e.Election != election && !common
	})
}

// Linearizable checks that the fenced writes to each register are linearizable: no write of a
// leader came after one of a later leader.
func Linearizable(events []history.Event) history.Proof {
	p := history.Proof{Claim: "fenced writes were linearizable"}
	registers, tally := operations(events)
	var names []string
	for name := range registers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if got := register.Linearizable(registers[name], 5*time.Minute); got != porcupine.Ok {
			p.Violations = append(p.Violations, fmt.Sprintf("%s, %d operations: %s", name, len(registers[name]), strings.ToLower(string(got))))
		}
	}
	p.Checked = fmt.Sprintf("%d registers, %d reads, %d writes succeeded, %d were refused, the outcome of %d is unknown",
		len(registers), tally.read, tally.done, tally.refused, tally.unknown)
	if tally.done == 0 {
		p.Violations = append(p.Violations, "nobody ever wrote")
	}
	return p
}

type tally struct{ read, done, refused, unknown int }

// operations returns the operations on each register. A write that began and has no recorded
// outcome, since its process was killed, may still take effect.
func operations(events []history.Event) (registers map[string][]register.Op, sum tally) {
	registers = map[string][]register.Op{}
	begun := map[string]history.Event{} // by written value
	where := map[string]string{}        // by written value: a writer may not learn the name that its first write gave to a register
	add := func(e history.Event, outcome register.Outcome) {
		if e.Register == "" {
			e.Register = where[e.New]
		}
		if e.Register == "" {
			return // if it took effect, it named a register that nobody read
		}
		registers[e.Register] = append(registers[e.Register], register.Op{Client: e.Process, Read: e.Kind == history.Read,
			Old: e.Old, New: e.New, Outcome: outcome, Call: int64(e.At), Return: int64(e.At.Add(e.Took))})
	}
	for _, e := range events {
		switch e.Kind {
		case history.Writes, history.Unsure:
			begun[e.New] = e
		case history.Read:
			sum.read++
			where[e.New] = e.Register
			add(e, register.Done)
		case history.Wrote:
			sum.done++
			add(e, register.Done)
			delete(begun, e.New)
		case history.Refused:
			sum.refused++
			add(e, register.Refused)
			delete(begun, e.New)
		}
	}
	for _, e := range begun {
		sum.unknown++
		add(e, register.Unknown)
	}
	return registers, sum
}

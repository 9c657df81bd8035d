//go:build unix

// Package history records what the processes of an election did, and checks from the
// record that the election kept its guarantees.
//
// # Recording
//
// Each process writes one [Event] per line, as JSON, with a [Recorder]. The program that
// started the processes collects the lines in a [Log] and adds the faults that it
// injected: killed, frozen, thawed, severed. All times come from the machine's monotonic
// clock, so times of different processes can be compared, and setting the wall clock does
// not change them.
//
// # Checking
//
// [Verify] returns a [Proof] per claim. A process counts as leading by what it did or
// believed, whatever the server says:
//
//   - its lead function was running: it began, took a step of its work, or returned;
//   - its IsLeader returned true. The result was valid at some moment between the call
//     and the return, so the process believed for certain from the first return of true
//     to the last call that returned true.
//
// A term lasts from the first of these moments to the last. A frozen process does and
// believes nothing, so its term ends with the last moment before the freeze. If it acts
// under that term after it thaws, the terms overlap and the proof fails.
//
// A write that was prepared during a term and arrives after it does not count as leading:
// no lock can prevent it. [LateWrites] checks that a fenced store refuses such writes.
//
// One overlap is allowed, because the library does not exclude it: if the server ends a
// leader's session (Severed), the leader is told, or looks, a moment later: see [Told]. Until then the
// next leader's term may overlap; the tokens tell the two apart. Proofs report these
// overlaps separately.
package history

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Log collects the events of all processes.
type Log = Records[Event]

// Records collects what processes record, in the order in which it arrives.
// Its methods may be called from any goroutine. The zero Records is empty.
type Records[E any] struct {
	mu     sync.Mutex
	events []E
	grown  chan struct{} // closed by the next Add; nil if no Await is waiting
}

// Add appends an event.
func (l *Records[E]) Add(e E) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
}

// Collect adds the events that a process writes to r, a line of JSON for each, until the end of r.
func (l *Records[E]) Collect(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var e E
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("history: %q is not an event: %w", lines.Text(), err)
		}
		l.Add(e)
	}
	return lines.Err()
}

// Save writes events to a file in the form that Load reads.
func Save(path string, events []Event) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(file)
	for _, e := range events {
		if err := lines.Encode(e); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return file.Close()
}

// Load reads the events in a file.
func Load(path string) ([]Event, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var log Log
	err = log.Collect(file)
	return log.events, err
}

// Since returns all events after the first n. The caller must not change them.
func (l *Records[E]) Since(n int) []E {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events[n:len(l.events):len(l.events)]
}

// Await waits until Since(n) has at least one event and returns it. If ctx ends first, it
// returns the cause of ctx.
func (l *Records[E]) Await(ctx context.Context, n int) ([]E, error) {
	for {
		l.mu.Lock()
		if len(l.events) > n {
			l.mu.Unlock()
			return l.Since(n), nil
		}
		if l.grown == nil {
			l.grown = make(chan struct{})
		}
		grown := l.grown
		l.mu.Unlock()
		select {
		case <-grown:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Recorder writes the events of one process, from any of its goroutines.
type Recorder struct {
	process string

	mu  sync.Mutex
	w   io.Writer
	seq int
	err error // the first error of w
}

// NewRecorder returns a recorder that makes one call of w.Write per event.
func NewRecorder(w io.Writer, process string) *Recorder {
	return &Recorder{process: process, w: w}
}

// Record numbers the event, sets its time unless it has one, and writes it. If a write
// fails, the history has a gap, which Verify reports.
func (r *Recorder) Record(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	e.Process, e.Seq = r.process, r.seq
	if e.At == 0 {
		e.At = Now()
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.w.Write(append(line, '\n'))
	}
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("history: record %s: %w", e.Kind, err)
	}
}

// Err returns the first write error.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Time is a reading of the machine's monotonic clock, in nanoseconds.
type Time int64

// Now reads the clock.
func Now() Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("history: no monotonic clock: %v", err)) // POSIX has one
	}
	return Time(ts.Nano())
}

// Sub returns the duration from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Add returns the time that is d later.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Kind is the kind of an event.
type Kind string

// The events that a process records about itself.
const (
	Hello    Kind = "hello"    // the first event; Text is free
	Sample   Kind = "sample"   // IsLeader returned Leading
	Elected  Kind = "elected"  // the hook was called
	Demoted  Kind = "demoted"  // the hook was called; Text is the reason
	Began    Kind = "began"    // lead was called, in a valid term
	Worked   Kind = "worked"   // lead took one step of its work
	Ended    Kind = "ended"    // lead is about to return
	Attempt  Kind = "attempt"  // a campaign attempt ended; Text is its outcome
	Failed   Kind = "failed"   // the error hook was called; Text is the error
	Resigned Kind = "resigned" // Resign returned; Text is its error, "" if the lock is known to be free
	Checked  Kind = "checked"  // IsLeader returned Leading, and a write in each Way follows
	Wrote    Kind = "wrote"    // a write succeeded
	Refused  Kind = "refused"  // a write was refused; Text is the error
	Unsure   Kind = "unsure"   // the outcome of a write is unknown; Text is the error
	Writes   Kind = "writes"   // a write to a register is about to start
	Read     Kind = "read"     // a register was read, at the start of a term
	Bye      Kind = "bye"      // the last event
)

// Quit means that a process ended unexpectedly; Text is why. Its Seq is 0, since another
// process records it.
const Quit Kind = "quit"

// The faults that were injected into a process. Their Seq is 0.
const (
	Killed  Kind = "killed"
	Frozen  Kind = "frozen"
	Thawed  Kind = "thawed"
	Severed Kind = "severed" // the session of the term Token is about to be ended on the server, until Took later; without a Process, any session may be ended
	Held    Kind = "held"    // what the server says to the process may come late, or be lost, until Took later
)

// The faults of servers, and of all processes. Their Seq is 0 and their Process empty.
const (
	Struck   Kind = "struck"   // the fault Text is about to start
	Healed   Kind = "healed"   // the fault Text has ended
	Calm     Kind = "calm"     // all faults have ended, and all servers are up
	Died     Kind = "died"     // the host of the server died, where Process led with Token, and told nobody; within Took of that another may lead beside
	Promoted Kind = "promoted" // a standby is about to become the primary of the new timeline Token, while the old primary runs
	Retired  Kind = "retired"  // the old primary is gone
	Remade   Kind = "remade"   // the server Text was reinitialized from the primary
)

// The results of probing a server again and again. Their Seq is 0 and their Process
// empty; Text is the server, Token the timeline. The result held from At until Took later.
const (
	Primary  Kind = "primary"  // it was not a standby
	Writable Kind = "writable" // it acknowledged writes
	Reached  Kind = "reached"  // new connections reached a primary; Text is the route
)

// Kept means that a leader's write New is in the database at the end; without a New, that
// Register is. Its Seq is 0, since the collecting program reads it.
const Kept Kind = "kept"

// Found is what the store holds after the writes: in the row of Way, the write of
// Process under Token. Its Seq is 0, since the collecting program reads it.
const Found Kind = "found"

// Way is how a write was fenced.
type Way string

// The ways in which a leader writes after Checked.
const (
	Unfenced Way = "unfenced"
	InTx     Way = "Term.InTx"
	ByToken  Way = "token"
)

// Ways lists them in display order.
var Ways = []Way{Unfenced, InTx, ByToken}

// Event is one line of a history. Fields that its kind does not use are zero.
type Event struct {
	Process  string        `json:"process"`
	Seq      int           `json:"seq,omitempty"` // counts the events of a process, from 1
	At       Time          `json:"at"`
	Kind     Kind          `json:"kind"`
	PID      int           `json:"pid,omitempty"`
	Driver   string        `json:"driver,omitempty"` // Hello: of the process, as documents call it
	Lease    time.Duration `json:"lease,omitempty"`  // Hello: of the process
	Idle     bool          `json:"idle,omitempty"`   // Hello: as the leader it does nothing after its first write
	Took     time.Duration `json:"took,omitempty"`   // Sample, Attempt, Read, Wrote, Refused, Unsure: from just before the call (At) to just after its return
	Leading  bool          `json:"leading,omitempty"`
	Token    int64         `json:"token,omitempty"`    // of the term it is about
	Stood    time.Duration `json:"stood,omitempty"`    // Sample: since the last call, if it is so long ago that the process was not running
	Deadline Time          `json:"deadline,omitempty"` // Sample: when the term ends unless extended
	Overdue  bool          `json:"overdue,omitempty"`  // Ended: later than the lease allows, so the process was not running
	Way      Way           `json:"way,omitempty"`      // Wrote, Refused, Unsure, Found
	Election string        `json:"election,omitempty"` // which one, if the process is a candidate in several
	Register string        `json:"register,omitempty"` // Read, and writes to one: which
	Old      string        `json:"old,omitempty"`      // writes to a register: the value that the writer expects there
	New      string        `json:"new,omitempty"`      // writes to a register: the new value; Read: the value read
	Text     string        `json:"text,omitempty"`
}

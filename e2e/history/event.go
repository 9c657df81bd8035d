//go:build unix

package history

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

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

// Kind is what an event tells.
type Kind string

// What a process tells of itself.
const (
	Hello    Kind = "hello"    // the first event; Text is free
	Sample   Kind = "sample"   // IsLeader was asked and answered Leading
	Elected  Kind = "elected"  // the hook was called
	Demoted  Kind = "demoted"  // the hook was called; Text is the reason
	Began    Kind = "began"    // lead was called, in a valid term
	Worked   Kind = "worked"   // lead took one step of its work
	Ended    Kind = "ended"    // lead is about to return
	Attempt  Kind = "attempt"  // an attempt to be elected was made; Text is its outcome
	Failed   Kind = "failed"   // the hook for errors was called; Text is the error
	Resigned Kind = "resigned" // Resign returned; Text is its error, "" if the lock is known to be free
	Checked  Kind = "checked"  // IsLeader was asked and answered Leading, and a write in each Way is about to come
	Wrote    Kind = "wrote"    // such a write went through
	Refused  Kind = "refused"  // such a write was refused; Text is the error
	Unsure   Kind = "unsure"   // it is not known whether such a write went through; Text is the error
	Writes   Kind = "writes"   // a write to a register is about to be made
	Read     Kind = "read"     // a register was read, at the beginning of a term
	Bye      Kind = "bye"      // the last event
)

// Quit is that a process ended although nobody had told it to; Text is why. It has
// the Seq 0, since another process has noticed.
const Quit Kind = "quit"

// What was done to a process. These have the Seq 0.
const (
	Killed  Kind = "killed"
	Frozen  Kind = "frozen"
	Thawed  Kind = "thawed"
	Severed Kind = "severed" // the server was about to be told to end the session of the term Token; without a Process, sessions of anybody, until Took later
)

// What was done to the servers, or to all. These have the Seq 0 and no Process.
const (
	Struck   Kind = "struck"   // a fault, Text, was about to begin
	Healed   Kind = "healed"   // the fault Text had been ended
	Calm     Kind = "calm"     // every fault had been ended, and every server was up
	Promoted Kind = "promoted" // a standby was about to become the primary of a new timeline, Token, while the old primary lived
	Retired  Kind = "retired"  // the old primary was gone
	Remade   Kind = "remade"   // the server Text was given a copy of the primary
)

// What a server answered, asked over and over. These have the Seq 0 and no Process;
// Text is the server, Token the timeline, and it answered so from At on, until Took later.
const (
	Primary  Kind = "primary"  // it was no standby
	Writable Kind = "writable" // it acknowledged writes
	Reached  Kind = "reached"  // new connections led to a primary; Text is the route
)

// Kept is that the write New, which a leader made, is in the database at the end; or,
// without a New, that Register is. It has the Seq 0, since whoever gathers has read it.
const Kept Kind = "kept"

// Found is what the store holds after the writes: in the row of Way, the write of
// Process under Token. It has the Seq 0, too, since whoever gathers has read it.
const Found Kind = "found"

// Way is how a write was fenced.
type Way string

// The ways in which a leader writes after Checked.
const (
	Unfenced Way = "unfenced"
	InTx     Way = "Term.InTx"
	ByToken  Way = "token"
)

// Ways are all of them, in the order in which they are shown.
var Ways = []Way{Unfenced, InTx, ByToken}

// Event is one line of a history. Fields that the kind has no use for are zero.
type Event struct {
	Process  string        `json:"process"`
	Seq      int           `json:"seq,omitempty"` // counts the events of a process, from 1
	At       Time          `json:"at"`
	Kind     Kind          `json:"kind"`
	PID      int           `json:"pid,omitempty"`
	Took     time.Duration `json:"took,omitempty"` // Sample, Attempt, Read, Wrote, Refused, Unsure: from just before the question (At) to just after the answer
	Leading  bool          `json:"leading,omitempty"`
	Token    int64         `json:"token,omitempty"`    // of the term it is about
	Deadline Time          `json:"deadline,omitempty"` // Sample: when the term ends unless extended
	Overdue  bool          `json:"overdue,omitempty"`  // Ended: later than the lease allows, so the process stood still
	Way      Way           `json:"way,omitempty"`      // Wrote, Refused, Unsure, Found
	Election string        `json:"election,omitempty"` // which one, if the process stands in several
	Register string        `json:"register,omitempty"` // Read, and writes to one: which
	Old      string        `json:"old,omitempty"`      // writes to a register: what it replaces, by the writer's memory
	New      string        `json:"new,omitempty"`      // writes to a register: what it says then; Read: what it says
	Text     string        `json:"text,omitempty"`
}

//go:build unix

// Package replay records what candidates and the server say to each other, and checks the record against package model:
// each event must be an action that the model permits, and each belief one of the model's.
//
//	tape.go     a tape, and what a proxy and the candidates write on it
//	wire.go     the protocol of PostgreSQL, as far as a tape must know it
//	replay.go   the check: a run, beliefs, work
//	session.go  the check: statements and ends of sessions
//	fence.go    the check: tokens and fenced transactions
package replay

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/pgelector/pgelector/e2e/history"
)

// The kinds of events.
const (
	Opened       = "opened"
	Sent         = "sent"     // a statement was read from the client
	Answered     = "answered" // all of its answer was read from the server
	Fatal        = "fatal"    // the server says that it ends the session
	ServerClosed = "server closed"
	ClientClosed = "client closed"
	Refused      = "refused" // the tape cannot follow the connection: TLS, or it has joined in the middle

	Starts   = "starts" // the process; Statement is its driver
	Cut      = "cut"    // nothing passes between a candidate and the server, until Mended
	Mended   = "mended"
	Believes = "believes"
	Works    = "works"
	Returns  = "returns" // the work
	Died     = "died"    // the process
	Thawed   = "thawed"  // the process goes on
)

// An Event is one line of a tape.
type Event struct {
	At        history.Time
	Who       string // the candidate
	Conn      int    `json:",omitempty"`
	Kind      string
	Statement string       `json:",omitempty"` // its name in queries/, or its first word
	Row       []string     `json:",omitempty"` // the start of the last row of the answer
	Tag       string       `json:",omitempty"` // the command tag of the answer
	State     string       `json:",omitempty"` // SQLSTATE
	Until     history.Time `json:",omitempty"` // Believes: the call returned
	Token     int64        `json:",omitempty"`
}

// A Tape collects events. Any goroutine may call its methods.
type Tape struct {
	mu     sync.Mutex
	events []Event
	conns  int
}

// Add adds an event that happens now, unless it has a time.
func (t *Tape) Add(e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.At == 0 {
		e.At = history.Now()
	}
	t.events = append(t.events, e)
}

// Events returns the tape with what the candidates recorded of themselves, in the order of time.
func (t *Tape) Events(candidates []history.Event) []Event {
	t.mu.Lock()
	all := slices.Clone(t.events)
	t.mu.Unlock()
	for _, h := range candidates {
		e := Event{At: h.At, Who: h.Process, Token: h.Token}
		switch h.Kind {
		case history.Hello:
			e.Kind, e.Statement = Starts, h.Driver
		case history.Sample:
			if !h.Leading || h.Token == 0 {
				continue
			}
			e.Kind, e.Until = Believes, h.At.Add(h.Took)
		case history.Began:
			e.Kind = Works
		case history.Ended:
			e.Kind = Returns
		case history.Killed:
			e.Kind = Died
		case history.Thawed:
			e.Kind = Thawed
		case history.Held:
			e.Kind = Cut
			all = append(all, Event{At: h.At.Add(h.Took), Who: h.Process, Kind: Mended})
		default:
			continue
		}
		all = append(all, e)
		if h.Kind == history.Sample && h.Stood > 0 { // the process did not run until then
			all = append(all, Event{At: h.At, Who: h.Process, Kind: Thawed})
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return int(a.At - b.At) })
	return all
}

// Of returns the events of one candidate. Its replay does not say whether it was alone.
func Of(who string, events []Event) []Event {
	return slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return e.Who != who })
}

// Save writes events to a file, a line each.
func Save(path string, events []Event) error {
	var b strings.Builder
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	}
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

// Load reads what Save has written.
func Load(path string) (events []Event, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for lines := json.NewDecoder(bytes.NewReader(text)); lines.More(); {
		var e Event
		if err := lines.Decode(&e); err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// Watch returns a watcher of one new connection of a candidate, for a proxy.
func (t *Tape) Watch(who string) *Wire {
	t.mu.Lock()
	t.conns++
	w := &Wire{tape: t, who: who, conn: t.conns, statements: map[string]string{}, portals: map[string]string{}}
	t.mu.Unlock()
	w.add(Event{Kind: Opened})
	return w
}

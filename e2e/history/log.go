//go:build unix

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
)

// Log collects the events of all processes, in the order in which they arrive.
// Its methods may be called from any goroutine. The zero Log is empty.
type Log struct {
	mu     sync.Mutex
	events []Event
	grown  chan struct{} // closed by the next Add; nil if no Await is waiting
}

// Add appends an event.
func (l *Log) Add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
}

// Collect adds the events that a process's Recorder writes to r, until the end of r.
func (l *Log) Collect(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var e Event
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
func (l *Log) Since(n int) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events[n:len(l.events):len(l.events)]
}

// Await waits until Since(n) has at least one event and returns it. If ctx ends first, it
// returns the cause of ctx.
func (l *Log) Await(ctx context.Context, n int) ([]Event, error) {
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

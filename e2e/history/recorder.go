//go:build unix

package history

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// Recorder writes the events of one process, from any of its goroutines.
type Recorder struct {
	process string

	mu  sync.Mutex
	w   io.Writer
	seq int
	err error // the first of w's
}

// NewRecorder returns a recorder that makes one call of w.Write per event.
func NewRecorder(w io.Writer, process string) *Recorder {
	return &Recorder{process: process, w: w}
}

// Record numbers the event, stamps it with the time unless it has one, and
// writes it. A history that cannot be written has a gap, which Verify reports.
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

// Err returns the first error of writing.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

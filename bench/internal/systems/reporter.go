package systems

import (
	"encoding/json"
	"io"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Event is one line that a candidate prints.
type Event struct {
	Name  string `json:"event"`
	At    int64  `json:"at"`              // by Now
	Error string `json:"error,omitempty"` // of "failed"
}

// The names of events.
const (
	Ready     = "ready"     // the campaign is about to begin
	Leading   = "leading"   // the leader's work starts: of the first election
	Led       = "led"       // one of many elections is led: once for each
	Resigning = "resigning" // the leader's work has ended, the release begins
	Armed     = "armed"     // belief is being sampled
	Stopped   = "stopped"   // At is when the candidate last believed that it leads
	Failed    = "failed"
)

// Now is the machine's monotonic clock: it can be compared between processes.
func Now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail for this clock
	return t.Nano()
}

// Reporter prints events. Its methods may be called from any goroutine.
type Reporter struct {
	elections int

	mu       sync.Mutex
	out      *json.Encoder
	led      int
	believes func() bool
}

// NewReporter makes a reporter for a candidate of so many elections.
func NewReporter(w io.Writer, elections int) *Reporter {
	return &Reporter{out: json.NewEncoder(w), elections: max(elections, 1)}
}

// Emit prints an event of now.
func (r *Reporter) Emit(name string) { r.emit(Event{Name: name, At: Now()}) }

// Fail prints an error.
func (r *Reporter) Fail(err error) { r.emit(Event{Name: Failed, At: Now(), Error: err.Error()}) }

func (r *Reporter) emit(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.out.Encode(e) // a parent that has gone needs no events
}

// Leading is to be called first thing in a leader's work; believes tells whether the process believes that
// this leadership goes on.
func (r *Reporter) Leading(believes func() bool) {
	at := Now()
	r.mu.Lock()
	r.led++
	defer r.mu.Unlock()
	if r.led == 1 || r.elections == 1 {
		r.believes = believes
		_ = r.out.Encode(Event{Name: Leading, At: at})
	}
	if r.elections > 1 {
		_ = r.out.Encode(Event{Name: Led, At: at})
	}
}

// Arm samples the belief in the present leadership until it ends, about once a millisecond.
func (r *Reporter) Arm() {
	r.mu.Lock()
	believes := r.believes
	r.mu.Unlock()
	if believes == nil {
		r.Emit(Armed)
		return
	}
	go func() {
		runtime.LockOSThread() // sleeps by itself, whatever the scheduler does
		last := Now()
		r.Emit(Armed)
		for {
			at := Now()
			if !believes() {
				break
			}
			last = at
			time.Sleep(500 * time.Microsecond)
		}
		r.emit(Event{Name: Stopped, At: last})
	}()
}

// always is the belief of a system that has no way to notice a loss.
func always() bool { return true }

package systems

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Env configures a candidate.
type Env struct {
	System    string
	ID        string // also the application_name of every connection
	DSN       string
	Server    string // the address of another server than PostgreSQL
	Election  string
	Elections int // above 1, the elections are named Election-0, Election-1, …

	Candidates int // candidates in the process, each with its own pool; 0 means 1

	Resign <-chan struct{} `json:"-"` // closed to make the leader resign
}

// elections returns the names of the candidate's elections.
func (e Env) elections() []string {
	if e.Elections <= 1 {
		return []string{e.Election}
	}
	all := make([]string, e.Elections)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", e.Election, i)
	}
	return all
}

// repeat calls attempt until it reports done, and waits for interval after each call.
func repeat(ctx context.Context, interval time.Duration, out *Reporter, attempt func() (done bool, err error)) error {
	out.Emit(Ready)
	for ctx.Err() == nil {
		if done, err := attempt(); done {
			return err
		}
		time.Sleep(interval)
	}
	return nil
}

// awaitResign waits for the request to resign and reports true, or false if lost or ctx ends first.
func awaitResign(ctx context.Context, env Env, lost <-chan struct{}, out *Reporter) bool {
	select {
	case <-env.Resign:
		out.Emit(Resigning)
		return true
	case <-lost:
		out.Emit(Lost)
	case <-ctx.Done():
		out.Emit(Lost)
	}
	return false
}

// open reports whether a channel is not closed.
func open(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

// Event is one line of a candidate's output.
type Event struct {
	Name  string `json:"event"`
	At    int64  `json:"at"`              // by Now
	Error string `json:"error,omitempty"` // of Failed
	Count int    `json:"count,omitempty"` // of InUse
}

// The names of events.
const (
	Ready     = "ready"     // the candidate is about to campaign
	Leading   = "leading"   // the leader's work starts; of many elections, in the first
	Led       = "led"       // the leader's work starts in one of many elections
	Resigning = "resigning" // the leader's work has ended, the release follows
	Lost      = "lost"      // the term has ended, and nobody asked for it
	Sampling  = "sampling"  // the process samples whether it regards itself as the leader
	Stopped   = "stopped"   // At is the last sample at which it did
	Pinned    = "pinned"    // Count is the number of pinned connections
	Failed    = "failed"
)

// Now reads the machine's monotonic clock, which is the same in all processes.
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
	isLeader func() bool
}

// NewReporter returns a Reporter for a candidate of that many elections.
func NewReporter(w io.Writer, elections int) *Reporter {
	return &Reporter{out: json.NewEncoder(w), elections: max(elections, 1)}
}

// Emit prints an event that happens now.
func (r *Reporter) Emit(name string) { r.emit(Event{Name: name, At: Now()}) }

// CountPinned prints how many connections of this process were in use at each call so far.
func (r *Reporter) CountPinned() { r.emit(Event{Name: Pinned, At: Now(), Count: pinned()}) }

// Fail prints an error.
func (r *Reporter) Fail(err error) { r.emit(Event{Name: Failed, At: Now(), Error: err.Error()}) }

func (r *Reporter) emit(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.out.Encode(e) // fails only if the parent process has ended
}

// Leading must be called at the start of a leader's work. isLeader reports whether the process still regards
// itself as the leader.
func (r *Reporter) Leading(isLeader func() bool) {
	at := Now()
	r.mu.Lock()
	r.led++
	defer r.mu.Unlock()
	if r.led == 1 || r.elections == 1 {
		r.isLeader = isLeader
		_ = r.out.Encode(Event{Name: Leading, At: at})
	}
	if r.elections > 1 {
		_ = r.out.Encode(Event{Name: Led, At: at})
	}
}

// Sample starts to sample isLeader, about once a millisecond until it reports false.
func (r *Reporter) Sample() {
	r.mu.Lock()
	isLeader := r.isLeader
	r.mu.Unlock()
	if isLeader == nil {
		r.Emit(Sampling)
		return
	}
	go func() {
		runtime.LockOSThread() // so that the Go scheduler does not delay the samples
		last := Now()
		r.Emit(Sampling)
		for {
			at := Now()
			if !isLeader() {
				break
			}
			last = at
			time.Sleep(500 * time.Microsecond)
		}
		r.emit(Event{Name: Stopped, At: last})
	}()
}

// always is isLeader of a system that does not notice a loss.
func always() bool { return true }

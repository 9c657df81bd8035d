// Package oplog turns events into log lines, the same for every logger. One fault is one line at its
// level, and at most one line when it is over.
package oplog

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// Level is the level of a line.
type Level int

// The levels, in increasing order.
const (
	Trace Level = iota // single attempts and heartbeats
	Info               // expected transitions
	Warn               // the election copes
	Error              // a person should look
)

// Write writes one line. fields alternates string keys and values.
type Write func(ctx context.Context, level Level, message string, fields ...any)

// Hook turns events into lines. Electors that run concurrently may share it.
type Hook struct {
	write Write

	mu         sync.Mutex
	candidates map[hooks.Origin]*candidate
	running    map[<-chan struct{}]overrun // by the channel that is closed at the return
}

// A candidate is what the lines of one candidate depend on.
type candidate struct {
	outage  outage // of the database
	deputy  bool   // it is the deputy
	inside  bool   // it is in transaction scope
	early   bool   // it waits because the server is too new to lead on
	deaf    bool   // it does not listen for the loss of its session
	leading bool   // between OnElected and OnDemoted
	lost    bool   // it has lost a term, and no attempt has succeeded since
	ill     bool   // it was told to be unhealthy
	blocker string // who keeps the lock from all, as was last told
	said    error  // of the last line that may have the error of another event
}

// outage is a series of failed attempts.
type outage struct {
	since   time.Time
	failed  int
	warned  bool // there was a line
	refused bool // a line says that the server refuses
}

// An overrun is work, or a hook, that runs on.
type overrun struct {
	ctx    context.Context
	report hooks.Failure
}

var (
	_ hooks.ElectedHook       = (*Hook)(nil)
	_ hooks.DemotedHook       = (*Hook)(nil)
	_ hooks.LeaderChangedHook = (*Hook)(nil)
	_ hooks.ErrorHook         = (*Hook)(nil)
	_ hooks.HeartbeatHook     = (*Hook)(nil)
	_ hooks.CampaignHook      = (*Hook)(nil)
	_ hooks.ClosedHook        = (*Hook)(nil)
)

// New returns a Hook that passes its lines to write. If electors share the hook, write
// must be safe for concurrent use.
func New(write Write) *Hook {
	return &Hook{write: write, candidates: make(map[hooks.Origin]*candidate), running: make(map[<-chan struct{}]overrun)}
}

// with calls do with the candidate, under the mutex.
func (h *Hook) with(o hooks.Origin, do func(*candidate)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.candidates[o]
	if c == nil {
		c = &candidate{}
		h.candidates[o] = c
	}
	do(c)
}

// OnClosed forgets the candidate.
func (h *Hook) OnClosed(_ context.Context, e hooks.Closed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.candidates, e.Origin)
}

func (h *Hook) line(ctx context.Context, level Level, message string, o hooks.Origin, fields ...any) {
	h.write(ctx, level, message,
		append([]any{"election", o.Election, "candidate", o.CandidateID, "key", digits(o.Key)}, fields...)...)
}

// digits formats a 64-bit number as text: jq and JavaScript lose digits of JSON numbers.
func digits(n int64) string { return strconv.FormatInt(n, 10) }

// round drops digits that are noise in a log.
func round(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Microsecond)
}

// Package oplog turns events into log lines, the same for every logger.
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

	mu       sync.Mutex
	outages  map[hooks.Origin]outage // of candidates whose database is away
	deputies map[hooks.Origin]bool
	inside   map[hooks.Origin]bool // candidates in transaction scope
	deaf     map[hooks.Origin]bool // candidates that do not listen for the loss of their session
}

// outage is a series of failed attempts.
type outage struct {
	since  time.Time
	failed int
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
	return &Hook{write: write, outages: make(map[hooks.Origin]outage), deputies: make(map[hooks.Origin]bool), inside: make(map[hooks.Origin]bool), deaf: make(map[hooks.Origin]bool)}
}

// OnElected logs that a term began, and with the first one that its end is not listened for.
func (h *Hook) OnElected(ctx context.Context, e hooks.Elected) {
	if e.NotListening != nil && h.first(h.deaf, e.Origin) {
		h.line(ctx, Info, "not listening for loss", e.Origin, "reason", e.NotListening)
	}
	h.line(ctx, Info, "elected", e.Origin, "token", digits(e.Token), "waited", round(e.Waited))
}

// OnDemoted logs that a term ended, and why: "resigned" as somebody wanted, or "demoted".
func (h *Hook) OnDemoted(ctx context.Context, e hooks.Demoted) {
	message, level := "demoted", demotedLevel(e.Reason)
	if level == Info {
		message = "resigned"
	}
	fields := []any{"token", digits(e.Token), "reason", string(e.Reason), "held", round(e.Held)}
	if late := e.Late.Round(10 * time.Millisecond); late > 0 { // less is how exact timers are
		fields = append(fields, "late", late)
	}
	if level > Info || e.Reason == hooks.Requested { // Err of another expected end says nothing new
		fields = append(fields, "error", e.Err)
	}
	h.line(ctx, level, message, e.Origin, fields...)
}

func demotedLevel(r hooks.Reason) Level {
	switch r {
	case hooks.Resigned, hooks.Requested, hooks.Shutdown:
		return Info
	case hooks.LeadFailed:
		return Error
	default:
		return Warn
	}
}

// OnLeaderChanged logs who leads now. It only traces changes of this candidate's own
// leadership, which the lines of a term report.
func (h *Hook) OnLeaderChanged(ctx context.Context, e hooks.LeaderChanged) {
	level := Info
	if e.Current == e.CandidateID || e.Current == "" && e.Previous == e.CandidateID {
		level = Trace
	}
	h.line(ctx, level, "leader changed", e.Origin, "previous", e.Previous, "leader", e.Current, "pid", e.PID)
}

// OnHeartbeat traces a heartbeat.
func (h *Hook) OnHeartbeat(ctx context.Context, e hooks.Heartbeat) {
	h.line(ctx, Trace, "heartbeat", e.Origin,
		"token", digits(e.Token), "took", round(e.Took), "valid_for", round(e.Deadline.Sub(e.At)))
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

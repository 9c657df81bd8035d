// Package oplog decides what an election writes to a log: which line, at which
// level, with which fields. The logging adapters only pass its lines on, so
// that every logger gets the same ones.
package oplog

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// Level is how much a line matters.
type Level int

// The levels, from the least to the most urgent.
const (
	Trace Level = iota // what every attempt and every heartbeat did
	Info               // a transition that was wanted, or is good news
	Warn               // something that the election copes with by itself
	Error              // something that a person has to look at
)

// Write writes one line. The fields are keys and values in turn, as both
// log/slog and hclog take them; each key is a string.
type Write func(ctx context.Context, level Level, message string, fields ...any)

// Hook turns events into lines. It implements every interface of package hooks
// and may be shared by electors that run concurrently.
type Hook struct {
	write Write

	mu      sync.Mutex
	outages map[hooks.Origin]outage // of the candidates whose database is away
}

// outage is a row of failed attempts.
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
)

// New returns a Hook that passes its lines to write, which must be safe for
// concurrent use if the hook is shared.
func New(write Write) *Hook {
	return &Hook{write: write, outages: make(map[hooks.Origin]outage)}
}

// OnElected writes that a term began.
func (h *Hook) OnElected(ctx context.Context, e hooks.Elected) {
	h.line(ctx, Info, "elected", e.Origin, "token", digits(e.Token), "waited", round(e.Waited))
}

// OnDemoted writes that a term ended, and why.
func (h *Hook) OnDemoted(ctx context.Context, e hooks.Demoted) {
	level := demotedLevel(e.Reason)
	fields := []any{"token", digits(e.Token), "reason", string(e.Reason), "held", round(e.Held)}
	if level > Info { // a term that was given up ended without an error
		fields = append(fields, "error", e.Err)
	}
	h.line(ctx, level, "demoted", e.Origin, fields...)
}

func demotedLevel(r hooks.Reason) Level {
	switch r {
	case hooks.Resigned, hooks.Shutdown:
		return Info
	case hooks.LeadFailed:
		return Error
	default:
		return Warn
	}
}

// OnLeaderChanged writes who leads now. That this candidate itself leads, or does
// no more, is what the lines "elected" and "demoted" say, so it is only traced.
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

// digits is a number of 64 bits as text: where a log is JSON, jq and JavaScript
// would lose digits of a number.
func digits(n int64) string { return strconv.FormatInt(n, 10) }

// round drops the digits that no reader of a log wants.
func round(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Microsecond)
}

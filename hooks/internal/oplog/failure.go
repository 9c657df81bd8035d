package oplog

import (
	"context"

	"github.com/pgelector/pgelector/hooks"
)

// OnError writes what went wrong; of a row of failed attempts only the first.
func (h *Hook) OnError(ctx context.Context, e hooks.Failure) {
	fields := []any{"op", string(e.Op), "error", e.Err}
	if e.Op != hooks.OpCampaign {
		level, message := failureLine(e)
		h.line(ctx, level, message, e.Origin, fields...)
		return
	}
	failed := h.failed(e)
	fields = append(fields, "failed_attempts", failed)
	switch {
	case e.Permanent:
		h.line(ctx, Error, gaveUp, e.Origin, fields...)
	case failed == 1:
		h.line(ctx, Warn, "database away", e.Origin, fields...)
	default:
		h.line(ctx, Trace, "database still away", e.Origin, fields...)
	}
}

// OnCampaign traces an attempt, and writes that the database is back after an
// outage.
func (h *Hook) OnCampaign(ctx context.Context, e hooks.Campaign) {
	if e.Outcome != hooks.Failed {
		if was, ok := h.ended(e.Origin); ok {
			h.line(ctx, Info, "database back", e.Origin,
				"away", round(e.At.Sub(was.since)), "failed_attempts", was.failed)
		}
	}
	h.line(ctx, Trace, "campaign attempt", e.Origin, "attempt", e.Attempt,
		"outcome", string(e.Outcome), "took", round(e.Took), "next", round(e.Next))
}

const gaveUp = "gave up"

// failureLine is for every failure but that of an attempt.
func failureLine(e hooks.Failure) (level Level, message string) {
	if e.Permanent {
		return Error, gaveUp
	}
	switch e.Op {
	case hooks.OpHeartbeat:
		return Warn, "heartbeat failed"
	case hooks.OpRelease:
		return Warn, "release failed"
	case hooks.OpWork:
		return Error, "work outlived its term"
	case hooks.OpHook:
		return Error, "hook panicked"
	case hooks.OpSetting:
		return Warn, "session setting refused"
	case hooks.OpWatch:
		return Warn, "leader not watched"
	case hooks.OpHealth:
		return Warn, "candidate unhealthy"
	case hooks.OpCall:
		return Warn, "driver call abandoned"
	default:
		return Warn, "failure"
	}
}

// failed counts a failed attempt, and says how many have failed in this outage.
// It does not go by e.Attempt, which begins anew with each campaign: a database
// that is away stays away from one campaign to the next. After a permanent
// failure nobody waits for the database any more, so the outage is forgotten.
func (h *Hook) failed(e hooks.Failure) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, away := h.outages[e.Origin]
	if !away {
		o.since = e.At
	}
	o.failed++
	if e.Permanent {
		delete(h.outages, e.Origin)
	} else {
		h.outages[e.Origin] = o
	}
	return o.failed
}

// ended forgets the outage of a candidate, if there was one, and returns it.
func (h *Hook) ended(candidate hooks.Origin) (outage, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, away := h.outages[candidate]
	delete(h.outages, candidate)
	return o, away
}

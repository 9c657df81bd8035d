package oplog

import (
	"context"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// OnError logs a failure. Of a series of failed attempts it traces all but the first.
func (h *Hook) OnError(ctx context.Context, e hooks.Failure) {
	fields := []any{"op", string(e.Op), "error", e.Err}
	if e.Op != hooks.OpCampaign || e.Election == "" { // a shared session's, whose outage no OnCampaign ends
		level, message := failureLine(e)
		h.line(ctx, level, message, e.Origin, fields...)
		h.returns(ctx, e)
		return
	}
	failed := h.failed(e)
	fields = append(fields, "failed_attempts", failed)
	switch {
	case e.Permanent:
		h.line(ctx, Error, gaveUp, e.Origin, fields...)
	case failed == 1:
		h.line(ctx, Warn, attemptFailed, e.Origin, fields...)
	default:
		h.line(ctx, Trace, "attempt failed again", e.Origin, fields...)
	}
}

// OnCampaign traces an attempt, and logs the end of an outage, and that this candidate is in
// transaction scope, or has become the deputy.
func (h *Hook) OnCampaign(ctx context.Context, e hooks.Campaign) {
	if e.Outcome != hooks.Failed {
		if was, ok := h.ended(e.Origin); ok {
			h.line(ctx, Info, "attempts succeed again", e.Origin,
				"after", round(e.At.Sub(was.since)), "failed_attempts", was.failed)
		}
	}
	if e.InTransaction && h.first(h.inside, e.Origin) {
		h.line(ctx, Info, "transaction scope", e.Origin, "attempt", e.Attempt)
	}
	if h.becameDeputy(e) {
		h.line(ctx, Info, "became deputy", e.Origin, "attempt", e.Attempt)
	}
	h.line(ctx, Trace, "campaign attempt", e.Origin, "attempt", e.Attempt,
		"outcome", string(e.Outcome), "deputy", e.Deputy, "took", round(e.Took), "next", round(e.Next))
}

// returns logs when work or a hook has returned that did not in time.
func (h *Hook) returns(ctx context.Context, e hooks.Failure) {
	if e.Returned == nil {
		return
	}
	go func() {
		<-e.Returned
		h.line(ctx, Info, "returned after all", e.Origin, "op", string(e.Op), "after", round(time.Since(e.At)))
	}()
}

const (
	gaveUp        = "gave up"
	attemptFailed = "attempt failed"
)

// failureLine returns the line of a failure other than one election's OpCampaign.
func failureLine(e hooks.Failure) (level Level, message string) {
	if e.Permanent {
		return Error, gaveUp
	}
	switch e.Op {
	case hooks.OpCampaign:
		return Warn, attemptFailed
	case hooks.OpHeartbeat:
		return Warn, "heartbeat failed"
	case hooks.OpRelease:
		return Warn, "release failed"
	case hooks.OpWork:
		return Error, "work outlived its term"
	case hooks.OpLead:
		return Warn, "work failed after term"
	case hooks.OpHook:
		if e.Returned != nil {
			return Error, "hook does not return"
		}
		return Error, "hook panicked"
	case hooks.OpSetting:
		return Warn, "session setting refused"
	case hooks.OpHealth:
		return Warn, "candidate unhealthy"
	case hooks.OpRequest:
		return Warn, "request not answered"
	case hooks.OpCall:
		return Warn, "driver call abandoned"
	case hooks.OpToken:
		return Warn, "token fell"
	default:
		return Warn, "failure"
	}
}

// failed returns the number of failed attempts in this outage. It counts itself, because
// e.Attempt starts again with each campaign. A permanent failure ends the outage: nobody
// waits for the database any more.
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

// first records the candidate in a set, and reports whether that is new.
func (h *Hook) first(set map[hooks.Origin]bool, candidate hooks.Origin) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := set[candidate]
	set[candidate] = true
	return !known
}

// OnClosed forgets the candidate.
func (h *Hook) OnClosed(_ context.Context, e hooks.Closed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.outages, e.Origin)
	delete(h.deputies, e.Origin)
	delete(h.inside, e.Origin)
	delete(h.deaf, e.Origin)
}

// becameDeputy records whether the candidate is the deputy, and reports whether that is new.
func (h *Hook) becameDeputy(e hooks.Campaign) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.deputies[e.Origin]
	if delete(h.deputies, e.Origin); e.Deputy {
		h.deputies[e.Origin] = true
	}
	return e.Deputy && !was
}

// ended ends and returns the outage of a candidate, if there is one.
func (h *Hook) ended(candidate hooks.Origin) (outage, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, away := h.outages[candidate]
	delete(h.outages, candidate)
	return o, away
}

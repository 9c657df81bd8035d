package oplog

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// OnElected logs that a term began, who led before, and that an outage is over. With the first term
// it logs that the end is not listened for.
func (h *Hook) OnElected(ctx context.Context, e hooks.Elected) {
	var deaf bool
	var was outage
	h.with(e.Origin, func(c *candidate) {
		deaf = e.NotListening != nil && !c.deaf
		c.deaf = c.deaf || deaf
		was, c.outage, c.leading, c.ill, c.blocker = c.outage, outage{}, true, false, ""
	})
	if deaf {
		h.line(ctx, Info, "not listening for loss", e.Origin, "reason", e.NotListening)
	}
	message, fields := "elected", []any{"token", digits(e.Token)}
	switch e.Previous {
	case "":
	case e.CandidateID:
		message = "elected again"
	default:
		fields = append(fields, "previous", e.Previous)
	}
	if e.PreviousReason != "" {
		fields = append(fields, "ended", string(e.PreviousReason))
	}
	if e.Offered {
		fields = append(fields, "offered", true)
	}
	if e.Leaderless > 0 {
		fields = append(fields, "leaderless", round(e.Leaderless))
	}
	if was.failed > 0 {
		fields = append(fields, "outage", round(e.At.Sub(was.since)), "failed_attempts", was.failed)
	}
	h.line(ctx, Info, message, e.Origin, append(fields, "campaigned", round(e.Campaigned))...)
}

// OnDemoted logs that a term ended, and why: lead has returned, "resigned" as somebody wanted, or
// "demoted". If an earlier line had the error, this one is no fault of its own.
func (h *Hook) OnDemoted(ctx context.Context, e hooks.Demoted) {
	h.haveReturned()
	level, message := demotedLevel(e.Reason), "demoted"
	switch {
	case e.LeadReturned:
		message = "lead returned: Run ends"
	case level == Info:
		message = "resigned"
	}
	fields := []any{"token", digits(e.Token)}
	if e.Reason != hooks.Resigned {
		fields = append(fields, "reason", string(e.Reason))
	}
	fields = append(fields, "held", round(e.Held))
	if late := e.Late.Round(10 * time.Millisecond); late > 0 { // less is how exact timers are
		fields = append(fields, "late", late)
	}
	known := false
	h.with(e.Origin, func(c *candidate) {
		c.leading = false
		switch e.Reason {
		case hooks.SessionLost, hooks.LeaseExpired:
			c.lost = true
		case hooks.LeadFailed, hooks.Unhealthy:
			known = c.repeats(e.Err)
		}
	})
	switch {
	case known:
		level = Info
	case level > Info:
		fields = append(fields, "error", e.Err)
	case e.Reason == hooks.Requested, e.Reason == hooks.Preempted:
		fields = append(fields, "why", fmt.Sprint(e.Err))
	}
	h.line(ctx, level, message, e.Origin, fields...)
}

func demotedLevel(r hooks.Reason) Level {
	switch r {
	case hooks.Resigned, hooks.Requested, hooks.Preempted, hooks.Shutdown:
		return Info
	case hooks.LeadFailed:
		return Error
	default:
		return Warn
	}
}

// OnLeaderChanged logs who leads now. The lines of a term report this candidate's own leadership, so
// its beginning is only traced, and its end left out.
func (h *Hook) OnLeaderChanged(ctx context.Context, e hooks.LeaderChanged) {
	h.with(e.Origin, func(c *candidate) { c.blocker = "" })
	var before []any
	if e.Previous != "" && e.Previous != e.CandidateID {
		before = []any{"previous", e.Previous}
	}
	now := []any{"pid", e.PID}
	if e.Current != "" { // else a session without a name, of another program
		now = append([]any{"leader", e.Current}, now...)
	}
	switch {
	case e.Current == e.CandidateID:
		h.line(ctx, Trace, "leader changed", e.Origin, append(before, now...)...)
	case e.PID == 0 && before == nil:
	case e.PID == 0:
		h.line(ctx, Info, "no leader known", e.Origin, before...)
	case e.Current == e.Previous && e.Current != "": // on another session, as after a restart with the same id
		h.line(ctx, Info, "leader elected again", e.Origin, now...)
	default:
		h.line(ctx, Info, "leader changed", e.Origin, append(before, now...)...)
	}
}

// OnHeartbeat traces a heartbeat.
func (h *Hook) OnHeartbeat(ctx context.Context, e hooks.Heartbeat) {
	h.line(ctx, Trace, "heartbeat", e.Origin,
		"token", digits(e.Token), "took", round(e.Took), "valid_for", round(e.Deadline.Sub(e.At)))
}

package oplog

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// toldAfter is how long an outage that began with a lost term lasts before its end is a line, too. A
// server that restarts is away for less.
const toldAfter = 10 * time.Second

// OnError logs a failure, unless another line has its error. Of a series of failed attempts it
// traces all but the first.
func (h *Hook) OnError(ctx context.Context, e hooks.Failure) {
	if e.Op == hooks.OpCampaign && e.Election != "" { // else a shared session's, whose outage no OnCampaign ends
		h.attemptFailed(ctx, e)
		return
	}
	level, message := failureLine(e)
	if h.isSaid(e) {
		level = Trace
	}
	fields := []any{"op", string(e.Op), "error", e.Err}
	if stack := stackOf(e.Err); stack != "" {
		fields = append(fields, "stack", stack)
	}
	h.line(ctx, level, message, e.Origin, fields...)
	h.returns(ctx, e)
}

// isSaid reports whether another line has, or will have, the error of this failure: the end of a
// session always ends the term, and a fault that goes on has its line.
func (h *Hook) isSaid(e hooks.Failure) (said bool) {
	h.with(e.Origin, func(c *candidate) {
		switch {
		case e.Op == hooks.OpLeader && e.Err != nil: // who keeps the lock from all is reported once a minute
			said, c.blocker = c.blocker == e.Err.Error(), e.Err.Error()
		case e.Op == hooks.OpHeartbeat:
			said = c.leading
		case e.Op == hooks.OpHealth:
			said = c.repeats(e.Err) || c.ill
			c.ill = true
		case e.Op == hooks.OpHook && e.Returned == nil:
			said = c.repeats(e.Err)
		case e.Returned != nil:
			_, said = h.running[e.Returned]
		}
	})
	return said
}

// repeats reports whether err is that of an earlier line, and remembers it if not. A panic of
// OnElected, say, is a failure and ends the term.
func (c *candidate) repeats(err error) bool {
	if err == nil {
		return false
	}
	if c.said != nil && (errors.Is(err, c.said) || errors.Is(c.said, err)) {
		c.said = nil
		return true
	}
	c.said = err
	return false
}

// stackOf is the stack of a panic, which its error's text leaves out.
func stackOf(err error) string {
	var panicked interface{ Stack() string }
	if errors.As(err, &panicked) {
		return panicked.Stack()
	}
	return ""
}

// attemptFailed logs the beginning of an outage, and its end if that is permanent.
func (h *Hook) attemptFailed(ctx context.Context, e hooks.Failure) {
	o, first := h.failed(e)
	fields := []any{"op", string(e.Op), "error", e.Err, "failed_attempts", o.failed + 1} // OnCampaign counts this one later
	switch {
	case e.Permanent:
		h.line(ctx, Error, gaveUp, e.Origin, fields...)
	case first:
		h.line(ctx, Warn, attemptFailed, e.Origin, fields...)
	default:
		h.line(ctx, Trace, "attempt failed again", e.Origin, fields...)
	}
}

// failed begins an outage, or returns it, and reports whether this failure is the first to be told. A refusal by the server is
// told once more, if the line of the outage says something else: a connection that was lost, say. OnCampaign counts the
// attempts, because it also has the quick ones, as metrics have. A permanent failure ends the outage: nobody waits for the
// database any more.
func (h *Hook) failed(e hooks.Failure) (o outage, first bool) {
	h.with(e.Origin, func(c *candidate) {
		if c.outage.since.IsZero() {
			c.outage.since = e.At
		}
		refused := refuses(e.Err)
		first = !c.outage.warned && !c.lost || refused && !c.outage.refused // else "demoted" has told of it
		c.outage.warned, c.outage.refused = c.outage.warned || first, c.outage.refused || refused
		if o = c.outage; e.Permanent {
			c.outage, c.lost = outage{}, false
		}
	})
	return o, first
}

// refuses reports whether the server has answered, and has refused the login or a statement. A refusal is another fault than the
// loss of a session. A server that stops, starts or is away (57P, 08) may have caused the loss.
func refuses(err error) bool {
	var state interface{ SQLState() string }
	if !errors.As(err, &state) {
		return false
	}
	code := state.SQLState()
	return code != "" && !strings.HasPrefix(code, "57P") && !strings.HasPrefix(code, "08")
}

// OnCampaign traces an attempt, and logs the end of an outage, and that this candidate is healthy
// again, in transaction scope, has become the deputy, or waits because the server is too new.
func (h *Hook) OnCampaign(ctx context.Context, e hooks.Campaign) {
	var was outage
	var inside, deputy, early bool
	h.with(e.Origin, func(c *candidate) {
		c.lost = c.lost && e.Outcome == hooks.Failed
		if e.Outcome == hooks.Failed && !c.outage.since.IsZero() {
			c.outage.failed++
		}
		if e.Outcome != hooks.Failed && e.Outcome != hooks.Granted { // the line of the election tells of the outage
			was, c.outage = c.outage, outage{}
		}
		c.ill = c.ill && e.WasUnhealthy == 0
		inside, deputy = e.InTransaction && !c.inside, e.Deputy && !c.deputy
		early = e.Outcome == hooks.TooEarly && !c.early
		c.inside, c.deputy, c.early = c.inside || inside, e.Deputy, e.Outcome == hooks.TooEarly
	})
	if e.WasUnhealthy > 0 {
		h.line(ctx, Info, "candidate healthy again", e.Origin, "after", round(e.WasUnhealthy))
	}
	if was.warned || was.failed > 0 && e.At.Sub(was.since) >= toldAfter {
		h.line(ctx, Info, "attempts succeed again", e.Origin, "after", round(e.At.Sub(was.since)), "failed_attempts", was.failed)
	}
	if inside {
		h.line(ctx, Info, "transaction scope", e.Origin)
	}
	if deputy {
		h.line(ctx, Info, "became deputy", e.Origin)
	}
	if early {
		h.line(ctx, Info, "too early to lead", e.Origin, "next", round(e.Next))
	}
	h.line(ctx, Trace, "campaign attempt", e.Origin, "attempt", e.Attempt,
		"outcome", string(e.Outcome), "deputy", e.Deputy, "took", round(e.Took), "next", round(e.Next))
}

// returns logs once when work or a hook has returned that did not in time. Work is reported twice if its
// session ends meanwhile.
func (h *Hook) returns(ctx context.Context, e hooks.Failure) {
	if e.Returned == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.running[e.Returned]; !known {
		h.running[e.Returned] = overrun{ctx, e}
		go func() {
			<-e.Returned
			h.haveReturned()
		}()
	}
}

// haveReturned logs what has returned. The end of a term calls it, too, so that its line comes after:
// the lines are written under the mutex.
func (h *Hook) haveReturned() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for done, o := range h.running {
		select {
		case <-done:
			delete(h.running, done)
			h.returned(o)
		default:
		}
	}
}

func (h *Hook) returned(o overrun) {
	message := "work returned after all"
	switch o.report.Op {
	case hooks.OpHook:
		message = "hook returned after all"
	case hooks.OpPool:
		message = "wait for the pool is over"
	}
	since := o.report.Since
	if since.IsZero() {
		since = o.report.At
	}
	h.line(o.ctx, Info, message, o.report.Origin, "op", string(o.report.Op), "after", round(time.Since(since)))
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
	case hooks.OpLeader:
		return Error, "nobody can be elected"
	case hooks.OpPool:
		return Warn, "pool is full"
	default:
		return Warn, "failure"
	}
}

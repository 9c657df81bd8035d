package elector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// A campaign makes attempts until one is granted. What it counts ends with it.
type campaign struct {
	*candidate
	sends    context.Context // of what it asks the server
	began    time.Time
	onTerm   func(*Term) // called before the hooks
	unclaim  func()      // at the end of a term for the caller of Campaign or TryCampaign; nil for one of Run
	attempts int
	keeps    bool // a session to try often, as the hooks know
	inside   bool // the last attempt was in transaction scope
	outage   outage

	readOnlySince time.Time // the first standby that this campaign met; zero if it met none

	askedWho time.Time // when reportBlocker last asked
	blocker  string    // whom it found
}

// run makes attempts until elected, refused, out of attempts or cancelled.
func (c *campaign) run(ctx context.Context) (*Term, error) {
	defer c.subscribe()()
	defer c.detach(ctx)()
	for {
		c.awaitHealth(ctx)
		r := c.attempt(ctx, false)
		if r.over {
			return r.term, r.err
		}
		sleep(ctx, r.pause, c.wakeUps)
	}
}

// A result is what an attempt means for the campaign.
type result struct {
	over  bool          // the campaign is over: with the term, or with err
	term  *Term         // nil if not elected
	err   error         // why the attempt failed
	pause time.Duration // before the next attempt
}

// attempt makes one attempt, perhaps the last, and calls the hooks.
func (c *campaign) attempt(ctx context.Context, last bool) result {
	if ctx.Err() != nil {
		return c.ended(ctx, ended(ctx, "campaign"))
	}
	c.attempts++
	start := time.Now()
	trying, stop := backoff.Either(c.sends, c.monitor.healthy())
	got := c.acquire(trying, last)
	unhealthy := trying.Err() != nil
	stop()
	if got.Holder.PID != 0 {
		c.saw(ctx, got.Holder)
	}
	c.inside = got.InTransaction
	event := c.event()
	event.Took = time.Since(start)
	r := result{err: got.Err}
	switch {
	case got.Outcome == lock.Granted:
		return result{over: true, term: c.elected(ctx, got, event)}
	case got.Outcome == lock.Busy:
		event.Outcome, event.Deputy = hooks.Busy, got.Keeps
		c.lastRole, c.outage, r.pause = lock.Followed, outage{}, got.Next
		c.reportBusy(ctx, got)
		if c.attempts == 1 {
			r.pause = backoff.Spread(r.pause)
		}
	case ctx.Err() != nil:
		return c.ended(ctx, ended(ctx, "campaign"))
	case errors.Is(got.Err, ErrStopped): // by Close, of which ctx hears on another goroutine
		return c.ended(ctx, &contextError{"campaign", context.Canceled, ErrStopped})
	case unhealthy:
		return r
	case got.Outcome == lock.TooEarly:
		event.Outcome = hooks.TooEarly
		c.outage, r.pause = outage{}, got.Next
	default:
		event.Outcome = hooks.Failed
		r = c.failed(ctx, got, event.Took, last)
	}
	if r.over = r.over || last; r.over {
		r.pause = 0
		c.acquirer.Close()
	}
	event.Next, event.WasUnhealthy, c.keeps = r.pause, c.recovered(), event.Deputy
	if event.Outcome == hooks.Failed && !r.over { // 0 would say that it was the last
		event.Next = max(r.pause, time.Millisecond)
	}
	c.announcer.announce(c.announcer.campaign(ctx, event))
	return r
}

// ended is the result of a campaign that was ended from outside.
func (c *campaign) ended(ctx context.Context, err error) result {
	c.standBack(ctx)
	return result{over: true, err: err}
}

func (c *campaign) event() hooks.Campaign {
	polls := c.takeover == Poll || c.shared || c.inside && !c.sitsInside()
	return hooks.Campaign{Attempt: c.attempts, Polls: polls, InTransaction: c.inside}
}

// standBack closes the session that the acquirer keeps, and reports that.
func (c *campaign) standBack(ctx context.Context) {
	c.acquirer.Close()
	if c.keeps {
		c.keeps = false
		event := c.event()
		event.Outcome = hooks.Busy
		c.announcer.post(c.announcer.campaign(ctx, event))
	}
}

// acquire makes an attempt. Session.Close waits for it, and for its term.
func (c *campaign) acquire(ctx context.Context, last bool) lock.Attempt {
	if !c.terms.Begin(gate.Always) {
		return lock.Attempt{Err: context.Cause(c.closing)}
	}
	began := time.Now()
	got := c.acquirer.Acquire(ctx, lock.Try{Last: c.lastRole, Woken: &pauses{Waker: c.wakeUps, led: &c.past.led}, Once: last})
	c.past.tried(began, got)
	if got.Lock == nil {
		c.terms.Finish()
	}
	return got
}

// elected begins the term. The hooks run beside it.
func (c *campaign) elected(ctx context.Context, got lock.Attempt, event hooks.Campaign) *Term {
	a, l := c.announcer, got.Lock
	c.lastRole = lock.Led
	elected := c.ledBefore(time.Now()) // the rest is known once the term has begun
	elected.Offered = got.WasOffered
	t := newTerm(ctx, c.candidate, l, c.unclaim)
	c.onTerm(t)
	event.Outcome, event.WasUnhealthy = hooks.Granted, c.recovered()
	a.post(a.campaign(ctx, event))
	if err := c.past.had(l.Token(), c.places.Granted(), c.tokenEpoch); err != nil {
		c.report(ctx, hooks.Failure{Op: hooks.OpToken, Err: err})
	}
	c.saw(ctx, lock.Holder{PID: l.Session.PID(), CandidateID: c.candidateID})
	elected.Token, elected.At, elected.Campaigned, elected.Deadline = l.Token(), t.electedAt, t.electedAt.Sub(c.began), t.Deadline()
	elected.InTransaction, elected.NotListening = l.Session.InTransaction(), c.source.ListensForLoss()
	onElected := a.elected(t.ctx, elected, func(err error) { t.end(hooks.LeadFailed, pgerr.Wrap(ErrLeadFailed, err)) })
	t.onElectedPending.Store(t.work.Begin(gate.Always))
	a.post(func() {
		if l.Session.EndIfExpired() == nil && t.onElectedPending.Swap(false) { // else the process, or an earlier hook, took longer than the session lived
			defer t.work.Finish()
			onElected()
		}
	})
	go backoff.Apart(t.stepDown)() // after the campaign's last look at what the term sees
	return t
}

// failed adds a failure to the outage, and calls the hooks if it counts.
func (c *campaign) failed(ctx context.Context, a lock.Attempt, took time.Duration, last bool) result {
	counts, wait := c.outage.failed(c.backoff)
	r := result{over: a.Outcome == lock.Refused && !c.waitsForPrimary(a.Err), err: a.Err, pause: wait}
	if !r.over && !last && counts && c.outage.counted == c.maxAttempts {
		gaveUp := fmt.Errorf("%w: %d in a row, as many as WithMaxAttempts allows, not counting quick ones", ErrGaveUp, c.maxAttempts)
		r.over, r.err = true, fmt.Errorf("%w: %w", gaveUp, a.Err)
		if errors.Is(a.Err, context.Canceled) { // of another context: no clean stop
			r.err = fmt.Errorf("%w: %v", gaveUp, a.Err)
		}
	}
	if counts || r.over {
		c.announcer.announce(c.announcer.failure(ctx, hooks.Failure{Op: hooks.OpCampaign, Err: r.err, Attempt: c.outage.counted, Permanent: r.over, Once: last}))
	}
	if c.lastRole != lock.Unknown {
		r.pause = c.outage.shorten(wait, c.backoff, a.Next, took)
	}
	return r
}

// waitsForPrimary reports whether a server that was never seen to be a primary may still
// become one: during a failover a proxy needs seconds to notice.
func (c *campaign) waitsForPrimary(err error) bool {
	if !errors.Is(err, ErrServerReadOnly) {
		return false
	}
	if c.readOnlySince.IsZero() {
		c.readOnlySince = time.Now()
	}
	return time.Since(c.readOnlySince) < c.readOnlyTimeout
}

// An outage is a campaign's failed attempts in a row. While a server is away that the
// candidate knew, as in a failover, it makes quick attempts between those that WithBackoff
// paces, so that the election has a leader soon after there is a server again. Quick
// attempts do not count.
type outage struct {
	began   time.Time
	counted int
	due     time.Time // when the next attempt counts
}

// failed adds a failed attempt. It reports whether that counts, and the wait of
// WithBackoff.
func (o *outage) failed(b backoff.Backoff) (counts bool, wait time.Duration) {
	now := time.Now()
	if now.Before(o.due) {
		return false, backoff.Jitter(b.After(o.counted))
	}
	if o.counted++; o.counted == 1 {
		o.began = now
		wait = backoff.Spread(b.After(1))
	} else {
		wait = backoff.Jitter(b.After(o.counted))
	}
	o.due = now.Add(wait)
	return true, wait
}

// shorten returns the wait before a quick attempt if that is shorter than wait, the one of
// WithBackoff. between is the longest time between quick attempts; took is how long the last
// attempt took.
func (o *outage) shorten(wait time.Duration, b backoff.Backoff, between, took time.Duration) time.Duration {
	if time.Since(o.began) >= lock.QuickFor || b.After(o.counted) <= between {
		return wait
	}
	wait = min(backoff.Jitter(between), max(wait, lock.Quick*3/4))
	return max(0, wait-took)
}

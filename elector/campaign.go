package elector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// A campaign is one stay in the state of following: attempts until one is
// granted. What it counts lives and ends with it.
type campaign struct {
	*Elector
	began    time.Time
	byCaller bool // the term is for the caller of Campaign or TryCampaign, and not for Run
	attempts int
	outage   outage

	readOnlySince time.Time // the first standby that this campaign met; zero if it met none
}

// run makes attempts until elected, refused, out of attempts or cancelled.
func (c *campaign) run(ctx context.Context) (*Term, error) {
	unsubscribe := c.subscribe()
	defer unsubscribe()
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
		return c.ended(ended(ctx, "campaign"))
	}
	c.attempts++
	start := time.Now()
	trying, stop := c.whileHealthy(ctx)
	got := c.acquire(trying, last)
	unhealthy := trying.Err() != nil
	stop()
	if got.Holder.PID != 0 {
		c.saw(ctx, got.Holder)
	}
	event := hooks.Campaign{Attempt: c.attempts, Took: time.Since(start)}
	r := result{err: got.Err}
	switch {
	case got.Outcome == lock.Granted:
		return result{over: true, term: c.elected(ctx, got.Lock, event)}
	case got.Outcome == lock.Busy:
		event.Outcome = hooks.Busy
		c.standing, c.outage, r.pause = lock.Followed, outage{}, got.Next
		if c.attempts == 1 {
			r.pause = backoff.Spread(r.pause)
		}
	case ctx.Err() != nil:
		return c.ended(ended(ctx, "campaign"))
	case errors.Is(got.Err, ErrStopped):
		return c.ended(got.Err)
	case unhealthy:
		return r
	case got.Outcome == lock.TooEarly:
		event.Outcome = hooks.TooEarly
		c.outage, r.pause = outage{}, got.Next
	default:
		event.Outcome = hooks.Failed
		r = c.failed(ctx, got, event.Took)
	}
	if r.over = r.over || last; r.over {
		r.pause = 0
		c.acquirer.Close()
	}
	event.Next = r.pause
	c.announcer.announce(c.announcer.campaign(ctx, event))
	return r
}

// ended is the result of a campaign that was ended from outside.
func (c *campaign) ended(err error) result {
	c.acquirer.Close()
	return result{over: true, err: err}
}

// acquire makes an attempt that counts as a term of the shared session, if there is one,
// from now on until it is over.
func (c *campaign) acquire(ctx context.Context, last bool) lock.Attempt {
	if err := c.terms.begin(); err != nil {
		return lock.Attempt{Err: err}
	}
	got := c.acquirer.Acquire(ctx, lock.Try{Last: c.standing, WakeUps: c.wakeUps, NoWait: last})
	if got.Lock == nil {
		c.terms.end()
	}
	return got
}

// elected begins the term. The hooks are told while it already runs.
func (c *campaign) elected(ctx context.Context, l *lock.Lock, event hooks.Campaign) *Term {
	a := c.announcer
	c.standing = lock.Led
	t := newTerm(ctx, c.Elector, l, c.byCaller)
	event.Outcome = hooks.Granted
	a.post(a.campaign(ctx, event))
	c.saw(ctx, lock.Holder{PID: l.PID(), CandidateID: c.candidateID})
	elected := hooks.Elected{Token: l.Token(), At: t.electedAt, Waited: t.electedAt.Sub(c.began), Deadline: t.Deadline()}
	onElected := a.elected(t.ctx, elected, func(err error) {
		if err != nil {
			t.end(hooks.LeadFailed, pgerr.Wrap(ErrLeadFailed, err))
		}
	})
	a.post(func() {
		if t.announced = l.Ended() == nil; !t.announced {
			return // the process, or a hook before, has taken longer than the session lived
		}
		if t.work.begin(always) { // else the term was given up already; it keeps its lock until OnDemoted has returned
			defer t.work.finish()
		}
		onElected()
	})
	return t
}

// failed adds a failure to the outage, and calls the hooks if it counts.
func (c *campaign) failed(ctx context.Context, a lock.Attempt, took time.Duration) result {
	counts, wait := c.outage.failed(c.backoff)
	r := result{over: a.Outcome == lock.Refused && !c.waitsForPrimary(a.Err), err: a.Err, pause: wait}
	if !r.over && counts && c.outage.counted == c.maxAttempts {
		r.over, r.err = true, fmt.Errorf("%w: %d in a row, as many as are allowed: %w", ErrGaveUp, c.maxAttempts, a.Err)
	}
	if counts || r.over {
		c.announcer.announce(c.announcer.failure(ctx, hooks.Failure{Op: hooks.OpCampaign, Err: r.err, Attempt: c.outage.counted, Permanent: r.over}))
	}
	if c.standing != lock.Unknown {
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

// look asks who leads, if a hook wants to know.
func (e *Elector) look(ctx context.Context) {
	if !e.announcer.seesLeader {
		return
	}
	if leader, _, err := lock.HolderOf(ctx, e.pool, e.key, e.lease.Length); err == nil {
		e.saw(ctx, leader)
	}
}

// nobody leads.
var nobody lock.Holder

// saw reports a leader other than the last one seen.
func (e *Elector) saw(ctx context.Context, leader lock.Holder) {
	leader = lock.Holder{PID: leader.PID, CandidateID: leader.CandidateID} // all that an attempt sees
	if !e.announcer.seesLeader || e.seen == leader {
		return
	}
	e.announcer.post(e.announcer.leaderChanged(ctx, hooks.LeaderChanged{Previous: e.seen.CandidateID, Current: leader.CandidateID, PID: leader.PID}))
	e.seen = leader
}

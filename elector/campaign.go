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
	"github.com/pgelector/pgelector/internal/session"
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

// run makes attempts until elected, refused, tired or cancelled.
func (c *campaign) run(ctx context.Context) (*Term, error) {
	unsubscribe := c.subscribe()
	defer unsubscribe()
	for {
		c.awaitHealth(ctx)
		term, pause, err := c.attempt(ctx, false)
		if pause == noMore {
			return term, err
		}
		sleep(ctx, pause, c.wakeUps)
	}
}

// noMore is the pause after the last attempt.
const noMore = -1

// attempt makes one attempt, perhaps the last, and tells the hooks.
func (c *campaign) attempt(ctx context.Context, last bool) (term *Term, pause time.Duration, err error) {
	if ctx.Err() != nil {
		c.acquirer.Close()
		return nil, noMore, ended(ctx, "campaign")
	}
	c.attempts++
	start := time.Now()
	trying, stop := c.whileHealthy(ctx)
	got, err := c.acquire(trying, last)
	brokenOff := trying.Err() != nil
	stop()
	if got.Holder.PID != 0 {
		c.saw(ctx, got.Holder)
	}
	event := hooks.Campaign{Attempt: c.attempts, Took: time.Since(start)}
	var early *session.TooEarly
	switch {
	case got.Lock != nil:
		return c.elected(ctx, got.Lock, event), noMore, nil
	case err == nil:
		event.Outcome = hooks.Busy
		c.standing, c.outage, pause = lock.Followed, outage{}, got.Next
		if c.attempts == 1 {
			pause = backoff.Spread(pause)
		}
	case ctx.Err() != nil || errors.Is(err, ErrStopped):
		c.acquirer.Close()
		if ctx.Err() != nil {
			err = ended(ctx, "campaign")
		}
		return nil, noMore, err
	case brokenOff: // by the candidate's health
		return nil, 0, err
	case errors.As(err, &early):
		event.Outcome = hooks.TooEarly
		c.outage, pause = outage{}, early.Wait
	default:
		event.Outcome = hooks.Failed
		pause, err = c.failed(ctx, err, event.Took, got)
	}
	if last {
		pause = noMore
	}
	if pause == noMore {
		c.acquirer.Close()
	}
	event.Next = max(pause, 0)
	c.announcer.announce(c.announcer.campaign(ctx, event))
	return nil, pause, err
}

// acquire makes an attempt that counts as a term of the shared session, if there is one,
// from now on until it is over.
func (c *campaign) acquire(ctx context.Context, last bool) (lock.Attempt, error) {
	if err := c.terms.begin(); err != nil {
		return lock.Attempt{}, err
	}
	got, err := c.acquirer.Acquire(ctx, lock.Try{Last: c.standing, WakeUps: c.wakeUps, NoWait: last})
	if got.Lock == nil {
		c.terms.end()
	}
	return got, err
}

// elected begins the term. The hooks are told while it already runs.
func (c *campaign) elected(ctx context.Context, l *lock.Lock, event hooks.Campaign) *Term {
	a := c.announcer
	c.standing = lock.Led
	t := newTerm(ctx, c.Elector, l, c.byCaller)
	event.Outcome = hooks.Granted
	a.post(a.campaign(ctx, event))
	c.saw(ctx, session.Holder{PID: l.PID(), CandidateID: c.candidateID})
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

// failed adds a failure to the outage, tells the hooks if it counts, and says for how long
// to wait.
func (c *campaign) failed(ctx context.Context, err error, took time.Duration, a lock.Attempt) (time.Duration, error) {
	counts, wait := c.outage.failed(c.backoff)
	permanent := a.Refused && !c.waitsForPrimary(err)
	if !permanent && counts && c.outage.counted == c.maxAttempts {
		permanent, err = true, fmt.Errorf("%w: %d in a row, as many as are allowed: %w", ErrGaveUp, c.maxAttempts, err)
	}
	if counts || permanent {
		c.announcer.announce(c.announcer.failure(ctx, hooks.Failure{Op: hooks.OpCampaign, Err: err, Attempt: c.outage.counted, Permanent: permanent}))
	}
	switch {
	case permanent:
		return noMore, err
	case c.standing != lock.Unknown:
		wait = c.outage.shorten(wait, c.backoff, a.Next, took)
	}
	return wait, err
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
	if leader, _, err := session.HolderOf(ctx, e.pool, e.key, e.lease.Length); err == nil {
		e.saw(ctx, leader)
	}
}

// nobody leads.
var nobody session.Holder

// saw reports a leader other than the last one seen.
func (e *Elector) saw(ctx context.Context, leader session.Holder) {
	leader = session.Holder{PID: leader.PID, CandidateID: leader.CandidateID} // all that an attempt sees
	if !e.announcer.seesLeader || e.seen == leader {
		return
	}
	e.announcer.post(e.announcer.leaderChanged(ctx, hooks.LeaderChanged{Previous: e.seen.CandidateID, Current: leader.CandidateID, PID: leader.PID}))
	e.seen = leader
}

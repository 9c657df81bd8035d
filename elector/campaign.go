package elector

import (
	"context"
	"errors"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/wakeup"
)

// attempts makes the attempts of an elector's campaigns by another acquirer. Session.Close waits for each, and for its term.
type attempts struct {
	*Elector
	by election.Acquirer
}

func (a *attempts) Acquire(ctx context.Context, k *election.Election) election.Attempt {
	e := a.Elector
	beginCampaign(e)
	if e.prefer.chosen && e.campaign.stopAsking == nil && !k.Once() {
		e.campaign.stopAsking = e.looksForLower()
	}
	if err := pooled.CheckSize(e.pool, e.pins()); err != nil {
		return k.Source().Fail(err)
	}
	if !e.terms.Begin(gate.Always) {
		return election.Attempt{Err: e.errClosing()}
	}
	began := time.Now()
	got := a.by.Acquire(ctx, k)
	e.campaign.took = time.Since(began)
	e.past.tried(got)
	if got.Lock == nil {
		e.terms.Finish()
	}
	return got
}

// Close closes the session that the acquirer keeps, and reports that. A campaign whose candidate is unhealthy begins with it.
func (a *attempts) Close() {
	a.by.Close()
	beginCampaign(a.Elector)
	if c := a.campaign; c.keeps {
		c.keeps = false
		event := a.event(c)
		event.Outcome = hooks.Busy
		a.announcer.post(a.announcer.campaign(context.Background(), event))
	}
}

// beginCampaign begins a campaign, unless it goes on.
func beginCampaign(e *Elector) {
	if e.campaign == nil {
		e.campaign = &campaign{began: time.Now()}
		e.campaign.unsubscribe = e.subscribeCampaign()
	}
}

// endCampaign forgets the campaign.
func (e *Elector) endCampaign() {
	if e.campaign != nil {
		e.campaign.unsubscribe()
		if e.campaign.stopAsking != nil {
			e.campaign.stopAsking()
		}
		e.campaign = nil
	}
}

func (e *Elector) event(c *campaign) hooks.Campaign {
	polls := e.takeover == Poll || e.shared || c.inside && !e.sitsInside()
	return hooks.Campaign{Attempt: c.attempts, Polls: polls, InTransaction: c.inside}
}

// An observer tells the hooks of an elector what the kernel tells.
type observer struct{ *Elector }

// Attempted announces an attempt.
func (e observer) Attempted(a election.Attempt) {
	c := e.campaign
	c.attempts++
	c.inside = e.found.InTransaction()
	if a.Holder.PID != 0 {
		e.saw(e.called, a.Holder)
	}
	event := e.event(c)
	event.Took = c.took
	switch _, early := errors.AsType[election.Later](a.Err); {
	case a.Outcome == election.Granted: // Elected tells
		c.granted = a
		return
	case errors.Is(a.Err, ErrStopped): // by Close, of which the campaign hears on another goroutine
		return
	case a.Outcome == election.Busy:
		event.Outcome, event.Deputy = hooks.Busy, a.Kept != nil
		e.reportBusy(c, a)
	case early:
		event.Outcome = hooks.TooEarly
	default:
		event.Outcome = hooks.Failed
		if a.Counts || a.Over {
			e.announcer.announce(e.announcer.failure(e.called, hooks.Failure{Op: hooks.OpCampaign, Err: a.Err, Attempt: a.Failures,
				Permanent: a.Outcome == election.Refused || a.Over && !e.kernel.Once(), Once: e.kernel.Once()}))
		}
	}
	event.Next, event.WasUnhealthy, c.keeps = a.Next, e.recovered(), event.Deputy && !a.Over
	if event.Outcome == hooks.Failed && !a.Over { // 0 would say that it was the last
		event.Next = max(a.Next, time.Millisecond)
	}
	e.announcer.announce(e.announcer.campaign(e.called, event))
}

// Elected begins the term. The hooks run beside it.
func (e observer) Elected(k *election.Term) {
	a, c := e.announcer, e.campaign
	l := k.Lock()
	elected := e.ledBefore(time.Now()) // the rest is known once the term has begun
	elected.Offered = c.granted.Named
	t := newTerm(e.candidate, e.byHand, k)
	e.term.Store(t)
	event := e.event(c)
	event.Took, event.Outcome, event.WasUnhealthy = c.took, hooks.Granted, e.recovered()
	a.post(a.campaign(e.called, event))
	if err := e.past.had(t.Token(), e.places.LastGranted(), e.tokenEpoch); err != nil {
		e.report(e.called, hooks.Failure{Op: hooks.OpToken, Err: err})
	}
	e.saw(e.called, election.Holder{PID: l.Session().PID(), CandidateID: e.candidateID})
	elected.Token, elected.At, elected.Campaigned, elected.Deadline = t.Token(), t.ElectedAt(), t.ElectedAt().Sub(c.began), t.Deadline()
	elected.InTransaction, elected.NotListening = t.inTransaction(), e.found.ListensForLoss()
	e.endCampaign()
	t.announceElected(elected)
	t.notify(t.ctx, 0, eventLed)
}

// Ended tells why a term has ended, if it was lost.
func (e observer) Ended(k *election.Term, cause error) {
	if t := e.term.Load(); t.term == k {
		t.hasEnded(cause)
	}
}

// Demoted tells that the work has returned, and waits for the hooks.
func (e observer) Demoted(k *election.Term, cause error) {
	if t := e.term.Load(); t.term == k {
		t.workReturned(cause)
	}
}

// Released ends what was done for the term.
func (e observer) Released(k *election.Term) {
	if t := e.term.Load(); t.term == k {
		t.wasReleased()
	}
}

// Failed reports what failed, and changes nothing.
func (e observer) Failed(doing string, err error) {
	a, t := e.announcer, e.term.Load()
	overrun, over := errors.AsType[*election.Overrun](err)
	switch {
	case over:
		a.beside(t.ctx, t.overrun(overrun))()
	case errors.Is(err, errUngraceful): // as was chosen
	case doing == "release":
		t.releasing.Store(false) // a hook may not return
		a.announce(a.failure(t.ctx, hooks.Failure{Op: hooks.OpRelease, Err: err}))
		t.releasing.Store(true)
	case doing == "lead":
		a.announce(a.failure(e.called, hooks.Failure{Op: hooks.OpLead, Err: err}))
	}
}

// findLeader asks who leads, if a hook wants to know. An unhealthy candidate makes no attempts that would find it.
func (e *Elector) findLeader(ctx context.Context) {
	if !e.announcer.seesLeader() {
		return
	}
	leader, led, err := holder.Of(ctx, e.pool, e.key, e.lease.Length)
	if err == nil && led {
		e.saw(e.called, election.Holder{PID: leader.PID, CandidateID: leader.CandidateID})
	} else if err == nil {
		e.saw(e.called, election.Holder{})
	}
}

// subscribeCampaign receives what concerns a campaign.
func (e *Elector) subscribeCampaign() (unsubscribe func()) {
	e.wakeUps = wakeup.New()
	return e.subscribe(e.wakeUps.Wake, func(what event, id string) bool {
		return what == eventFree || what == eventLed && e.announcer.seesLeader() || what == eventSuccessor && id == e.candidateID
	})
}

// sleep waits for d, a wake-up, or the end of ctx.
func (e *Elector) sleep(ctx context.Context, d time.Duration) { sleep(ctx, d, e.wakeUps) }

// sends is the context of what a campaign asks the server beside its attempts. It carries nothing of the call that began the campaign,
// which may last for months.
func (e *Elector) sends() (ctx context.Context, stop func()) {
	if e.kernel.Once() {
		return e.called, func() {}
	}
	return backoff.Detach(e.called)
}

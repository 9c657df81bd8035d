package elector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/lock"
)

// A past is what a candidate knows of who led before. Its campaign and its term, one after the
// other, are all that touch it.
type past struct {
	seen  lock.Holder // the leader that the hooks know
	led   time.Time   // when an attempt last found that somebody led
	ended struct {    // the last term of this elector
		at     time.Time
		reason hooks.Reason
	}
}

// watch makes an attempt, and notes when it last found the lock busy.
func (p *past) watch(w lock.Waker, acquire func(lock.Waker) lock.Attempt) lock.Attempt {
	began := time.Now()
	got := acquire(&pauses{Waker: w, led: &p.led})
	if got.Outcome == lock.Busy && p.led.Before(began) { // it asked once, after it began
		p.led = began
	}
	return got
}

// pauses notes when a deputy pauses between two looks at the lock, which was busy then: its attempt
// lasts a heartbeat interval. The first pause of an attempt follows no look.
type pauses struct {
	lock.Waker
	n   int
	led *time.Time
}

func (p *pauses) Sleep(ctx context.Context, d time.Duration) (woken bool) {
	if p.n++; p.n > 1 {
		*p.led = time.Now()
	}
	return p.Waker.Sleep(ctx, d)
}

// ledBefore is what the candidate, elected now, knows of who led before.
func (n *candidate) ledBefore(now time.Time) (e hooks.Elected) {
	last := n.last.Load()
	if last == nil {
		return e
	}
	e.Previous = last.candidateID
	until := n.past.led
	if last.at.After(until) {
		until = last.at
	}
	if ended := n.past.ended; e.Previous == n.candidateID && !last.at.After(ended.at) {
		if n.past.led.After(ended.at) {
			return hooks.Elected{} // somebody has led since, and no hook wants to know who
		}
		until, e.PreviousReason = ended.at, ended.reason
	}
	e.Leaderless = max(0, now.Sub(until))
	return e
}

// begins is the event of a term's beginning.
func (c *campaign) begins(t *Term, before hooks.Elected) hooks.Elected {
	before.Token, before.At, before.Campaigned, before.Deadline = t.Token(), t.electedAt, t.electedAt.Sub(c.began), t.Deadline()
	before.InTransaction, before.NotListening = t.lock.Session.InTransaction(), c.source.ListensForLoss()
	return before
}

// errLeadReturned is the cause of a term whose lead returned nil.
var errLeadReturned = fmt.Errorf("%w: lead has returned", ErrResigned)

// ends is the event of a term's end, which the next one remembers.
func (t *Term) ends(cause error, at time.Time, late time.Duration) hooks.Demoted {
	t.past.ended.at, t.past.ended.reason = at, reasonOf(cause)
	return hooks.Demoted{Token: t.Token(), Reason: reasonOf(cause), Err: cause, At: at, Held: max(0, at.Sub(t.electedAt)), Late: late,
		LeadReturned: errors.Is(cause, errLeadReturned)}
}

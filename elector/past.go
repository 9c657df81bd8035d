package elector

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// A past is what a candidate knows of who led before. Its campaign and its term, one after the
// other, are all that touch it, but for ill.
type past struct {
	seen  election.Holder // the leader that the hooks know
	led   time.Time       // when an attempt last found that somebody led
	ended struct {        // the last term of this elector
		at     time.Time
		reason hooks.Reason
	}
	waits  chan struct{}             // closed when the pool gives a connection after it was full; nil before
	silent int32                     // the backend of the leader that was last reported to be silent
	token  int64                     // the largest of its terms
	met    *summit                   // of the pool
	ill    atomic.Pointer[time.Time] // since when the candidate is unhealthy, as the hooks know; nil if it is not
}

// tried notes when an attempt has found the lock busy, if it has.
func (p *past) tried(got election.Attempt) {
	if p.led.Before(got.BusyAt) {
		p.led = got.BusyAt
	}
	p.met.meet(pgerr.NewerTimeline(got.Err))
}

// ends is the event of a term's end, which is remembered.
func (p *past) ends(token int64, began, at time.Time, late time.Duration, cause error) hooks.Demoted {
	p.met.meet(pgerr.NewerTimeline(cause))
	p.ended.at, p.ended.reason = at, reasonOf(cause)
	return hooks.Demoted{Token: token, Reason: reasonOf(cause), Err: cause, At: at, Held: max(0, at.Sub(began)), Late: late,
		LeadReturned: errors.Is(cause, election.ErrReturned)}
}

// had remembers the token of a term that begins, and returns ErrTokenFell if a leader before it had, or
// would have had, a larger one. The lock was granted on the timeline; own is the epoch of WithTokenEpoch.
func (p *past) had(token, timeline, own int64) (err error) {
	switch least := p.met.granted(token, timeline, own); {
	case token <= p.token:
		err = fmt.Errorf("%w: this term has %d, and an earlier one had %d", ErrTokenFell, token, p.token)
	case token < least:
		err = fmt.Errorf("%w: this term has %d, on timeline %d, and this process has met a newer timeline, whose tokens are at least %d",
			ErrTokenFell, token, timeline, least)
	}
	p.token = max(p.token, token)
	return err
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

// A campaign is what the hooks are told of one campaign. What it counts ends with it.
type campaign struct {
	began       time.Time
	unsubscribe func()
	stopAsking  func() // stops the requests to a leader of lower priority; nil if the candidate makes none
	attempts    int
	took        time.Duration    // by the last attempt
	granted     election.Attempt // once elected
	keeps       bool             // a session to try often, as the hooks know
	inside      bool             // the last attempt was in transaction scope

	askedWho time.Time // when reportBlocker last asked
	blocker  string    // whom it found
}

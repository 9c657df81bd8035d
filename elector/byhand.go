package elector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/gate"
)

// The ways to lead beside Run. Campaign and TryCampaign hand the term out, to a caller whose work is not
// seen to return.

// Campaign campaigns until elected and returns the term, which goes on until Resign is
// called, it is lost, or the candidate becomes unhealthy. ctx bounds the campaign only: if it
// ends first, the error wraps its cause. Other errors are the refusal of a server that
// cannot keep the promise, ErrGaveUp, and ErrAlreadyRunning. If a term has expired before it
// could be returned, because the process stood still, Campaign campaigns again.
//
// When the term's context is done, the caller must stop working, and then call Resign, also
// if the term was lost: unlike Run, Campaign cannot see the work return. Until then, but no
// longer than the drain (WithDrain), the lock is not released, and the elector cannot
// campaign.
func (e *Elector) Campaign(ctx context.Context) (*Term, error) {
	claimed, release, err := e.claim(ctx)
	if err != nil {
		return nil, err
	}
	e.begins(claimed, true)
	_, err = e.kernel.Campaign(claimed)
	release()
	if err != nil {
		e.releaseClaim()
		return nil, err
	}
	t := e.term.Load()
	t.handOut(e.unclaim)
	return t, nil
}

// TryCampaign makes one attempt. If elected is true, term is as from Campaign. If another
// leads, elected is false and err is nil. err is not nil if the attempt failed, the candidate
// is unhealthy (ErrUnhealthy), or the term expired before TryCampaign could return it
// (ErrNotLeader). If the leader transfers its lock to this candidate (TransferTo), the attempt
// lasts as long as the offer stands.
func (e *Elector) TryCampaign(ctx context.Context) (term *Term, elected bool, err error) {
	ctx, release, err := e.claim(ctx)
	if err != nil {
		return nil, false, err
	}
	defer release()
	k := (*election.Term)(nil)
	if err = e.awaitFirstCheck(ctx); err == nil {
		e.begins(ctx, true)
		k, err = e.kernel.TryCampaign(ctx)
	}
	if k == nil {
		e.releaseClaim()
		return nil, false, orStopped(ctx, err)
	}
	term = e.term.Load()
	term.handOut(e.unclaim)
	return term, true, nil
}

// Resign gives the term up: it cancels the term's context, waits until the
// term's work (lead, functions of RunIfLeader, hooks) has returned, and only
// then releases the lock. It is idempotent, and returns nil only if the lock is
// known to be free. For Campaign and TryCampaign, calling Resign asserts that your
// work has returned.
//
// The error wraps ErrOverrun if the work has not returned within one lease, and the cause
// of ctx if that ends first; the term has ended all the same, and the lock is released when
// the work returns. If the session ended before the lock could be released, the error wraps
// ErrNotLeader and the cause; if it ended unheard meanwhile, ErrSessionLost; after a shutdown
// with WithGracefulRelease(false), ErrNotLeader alone. A lead that wants to resign returns:
// with its term's context, Resign returns at once with ErrResigned.
func (t *Term) Resign(ctx context.Context) error {
	t.end(hooks.Resigned, ErrResigned)
	t.term.WorkReturned()
	if gate.IsClosed(t.done) { // whatever ctx says
		return t.after.released
	}
	overdue := time.After(t.lease.Length)
	for {
		select {
		case <-t.done:
			return t.after.released
		case <-ctx.Done():
			doing := "resign: the work of the term, or a hook, has not returned" + t.announcer.busy() + "; the lock is released when it does"
			switch {
			case gate.Await(ctx, t.done): // at the same time
				return t.after.released
			case lost(context.Cause(t.ctx)):
				return t.because(ctx, doing, nil)
			}
			return election.Stopped(ctx, doing)
		case <-overdue:
			if !t.releasing.Load() { // which may take long
				return fmt.Errorf("%w: resign waited %v, one lease, for it%s; the lock is released when it returns", ErrOverrun, t.lease.Length, t.announcer.busy())
			}
			overdue = time.After(t.lease.Length)
		}
	}
}

// TryRun makes one attempt, as TryCampaign does, and once elected calls lead, as Run does: the
// lock is released only after lead has returned, and not before the end of WithHold if lead succeeded. It does
// not campaign again when the term has ended. A cron job on several hosts needs WithHold: short work frees the lock
// before a host whose clock is late asks for it. Package ticks runs each tick once, also if a host dies. If elected is true, err is what lead returned (as Run returns it), or wraps the cause
// of ctx, or of the term if that was lost or resigned, also by lead. If it is false,
// another leads and err is nil, or the attempt failed.
func (e *Elector) TryRun(ctx context.Context, lead func(ctx context.Context, term *Term) error) (elected bool, err error) {
	claimed, release, err := e.claim(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	defer e.releaseClaim()
	if err := e.awaitFirstCheck(claimed); err != nil {
		return false, err
	}
	done := false
	e.begins(claimed, false)
	elected, err = e.kernel.TryRun(claimed, e.leads(ctx, claimed, func(ctx context.Context, term *Term) error {
		err := orHold(lead)(ctx, term)
		if err == nil && e.hold > 0 && claimed.Err() == nil && term.endIfOver() == nil {
			done = true
			term.hold(claimed, e.hold)
		}
		return err
	}))
	if !elected || done { // whatever ended the hold
		return elected, errUnless(done, orStopped(claimed, err))
	}
	if cause := context.Cause(e.term.Load().ctx); ctx.Err() != nil && lost(cause) {
		err = wrap(cause, err)
	}
	return true, err
}

// orStopped is the error of an attempt. Close ends an attempt, and then ctx, so that the error is that of a clean stop.
func orStopped(ctx context.Context, err error) error {
	if !errors.Is(err, ErrStopped) {
		return err
	}
	<-ctx.Done()
	return election.Stopped(ctx, "campaign")
}

// errUnless returns err, or nil if done.
func errUnless(done bool, err error) error {
	if done {
		return nil
	}
	return err
}

// hold waits until d is over since the election, or until ctx or the term ends.
func (t *Term) hold(ctx context.Context, d time.Duration) {
	ctx, stop := backoff.Either(ctx, t.ctx)
	defer stop()
	_ = backoff.Sleep(ctx, time.Until(t.ElectedAt().Add(d)))
}

// RunIfLeader calls fn if this elector leads, and reports whether it did; err
// is what fn returned, or wraps the cause of a ctx that had ended before. fn's
// context ends with ctx and with the term, and the lock is not released before fn
// returns.
func (e *Elector) RunIfLeader(ctx context.Context, fn func(context.Context) error) (ran bool, err error) {
	if ctx.Err() != nil {
		return false, election.Stopped(ctx, "run if leader")
	}
	term := e.term.Load()
	if term == nil || !term.term.Begin() {
		return false, nil
	}
	defer term.term.Finish()
	ctx, stop := backoff.Either(term.within(ctx), term.ctx)
	defer stop()
	return true, fn(ctx)
}

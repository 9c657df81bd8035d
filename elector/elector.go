package elector

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/session"
)

// An Elector is one candidate of one election. It runs one campaign and holds
// one term at a time; its methods may be called from any goroutine.
type Elector struct {
	*candidate
	close    context.CancelCauseFunc // ends closing
	onClosed func()                  // removes it from its session; nil without one
	term     atomic.Pointer[Term]    // the last one, if any, which may have ended

	mu         sync.Mutex
	claimed    chan struct{}     // closed at the end of the one campaign or term; nil without one
	started    *background       // by the last Start, also after Stop
	background *background       // what Start began
	requests   map[string]func() // that were taken up, and stood at the last heartbeat: each is called when it does not stand any more

	closeOnce sync.Once
	closed    chan struct{} // closed when Close was called, and all is over
}

// New makes a candidate for the election of that name, on a pool that the
// caller keeps and closes. It neither connects nor starts anything.
//
// The name must have 1 to 1024 bytes and no NUL. An argument or option that
// cannot be used is an error that wraps ErrConfig and says which; a pool whose
// MaxOpenConns is 1 is one too.
func New(pool *sql.DB, election string, opts ...Option) (*Elector, error) {
	if pool == nil {
		return nil, errNoPool
	}
	c, err := configure(election, opts)
	if err != nil {
		return nil, err
	}
	if err := session.CheckPoolSize(pool, c.pins()); err != nil {
		return nil, err
	}
	e := newElector(context.Background(), pool, election, c)
	own, acquirer := e.onOwnSessions()
	e.acquirer, e.source = acquirer, own.Source
	return e, nil
}

func newElector(ctx context.Context, pool *sql.DB, election string, c config) *Elector {
	e := &Elector{candidate: newCandidate(pool, election, c), closed: make(chan struct{})}
	e.closing, e.close = context.WithCancelCause(ctx)
	e.validation = validation(c.validateInterval, func() []*Term { return []*Term{e.term.Load()} })
	return e
}

// Run campaigns, and once elected calls lead, on the calling goroutine. It
// releases the lock only after lead has returned.
//
//   - lead returns while the term goes on: Run resigns and returns what lead
//     returned; nil if that is nil. If its error wraps context.Canceled, Run returns
//     only its text, with ErrLeadFailed.
//   - The term is lost: Run cancels lead's context, waits for lead, and campaigns
//     again. An error of lead that is not of its context goes to OnError.
//   - Somebody calls Resign or TransferTo, or asks for it, or the candidate is
//     unhealthy: the same, after one retry interval, and half a second at least. A transfer
//     cancels lead's context once the successor is ready; then there is no way back.
//   - Close is called: Run cancels lead's context, waits for lead, and returns an
//     error that wraps ErrStopped, or, if lead failed, ErrLeadFailed instead.
//   - ctx ends: Run cancels lead's context, waits for lead, and resigns. It returns
//     an error that wraps ctx.Err() and the cause of ctx, or, if lead failed, one
//     that wraps ErrLeadFailed and lead's error instead. So an error is a clean stop
//     if errors.Is(err, context.Canceled), and otherwise a failure.
//   - The server is refused, or attempts are used up: Run returns that error.
//   - lead panics: Run resigns, and the panic goes on.
//
// If a term has expired before lead could begin, because the process stood still, Run
// campaigns again. A nil lead holds the term until it ends, for work that hooks do. No hook
// is called after Run has returned. ErrAlreadyRunning is returned while this elector
// campaigns or leads already.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context, term *Term) error) error {
	claimed, release, err := e.claim(ctx)
	if err != nil {
		return err
	}
	defer release()
	return e.run(ctx, claimed, lead)
}

func (e *Elector) run(caller, ctx context.Context, lead func(ctx context.Context, term *Term) error) error {
	defer e.releaseClaim()
	lead = orHold(lead)
	for {
		term, err := e.newCampaign(false).run(ctx)
		if err != nil {
			return err
		}
		if finished, err := e.serve(caller, ctx, term, lead); finished {
			return err
		}
		if !lost(context.Cause(term.ctx)) {
			_ = backoff.Sleep(ctx, e.resignPause())
		}
	}
}

// TryRun makes one attempt, as TryCampaign does, and once elected calls lead, as Run does: the
// lock is released only after lead has returned. It does not campaign again when the term has
// ended. If elected is true, err is what lead returned (as Run returns it), or wraps the cause
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
	r := e.newCampaign(false).attempt(claimed, true)
	if r.term == nil {
		return false, r.err
	}
	finished, err := e.serve(ctx, claimed, r.term, orHold(lead))
	switch cause := context.Cause(r.term.ctx); {
	case !finished:
		err = fmt.Errorf("elector: run: %w", cause)
	case ctx.Err() != nil && lost(cause):
		err = wrap(cause, err)
	}
	return true, err
}

// orHold returns lead, or if it is nil one that holds the term until it ends.
func orHold(lead func(context.Context, *Term) error) func(context.Context, *Term) error {
	if lead != nil {
		return lead
	}
	return func(ctx context.Context, _ *Term) error {
		<-ctx.Done()
		return nil
	}
}

// serve calls lead under the term and waits for the term's end. Run is finished unless the
// term was lost, or somebody else has resigned it. ctx ends with the caller's context.
func (e *Elector) serve(caller, ctx context.Context, t *Term, lead func(ctx context.Context, term *Term) error) (finished bool, err error) {
	stop := context.AfterFunc(ctx, func() { t.end(hooks.Shutdown, context.Cause(ctx)) })
	defer stop()
	defer func() { <-t.done }()
	defer t.end(hooks.LeadFailed, fmt.Errorf("%w: it panicked", ErrLeadFailed)) // if nothing has ended it before
	err = t.doWork(lead)
	_ = t.endIfOver() // which lead may have been the first to see
	if caller.Err() != nil || e.closing.Err() != nil {
		<-ctx.Done()
	}
	own := false
	switch {
	case ctx.Err() != nil: // which ends the term, on another goroutine
	case err == nil:
		own = t.end(hooks.Resigned, errLeadReturned)
	default:
		own = t.end(hooks.LeadFailed, fmt.Errorf("%w: %w", ErrLeadFailed, err))
	}
	<-t.done
	if own && errors.Is(err, context.Canceled) { // of another context: no clean stop
		err = fmt.Errorf("%w: %v", ErrLeadFailed, err)
	}
	if own {
		return true, err
	}
	if _, ends := errors.AsType[*ending](err); ends || errors.Is(err, context.Canceled) { // it only says that the context ended
		err = nil
	}
	switch {
	case ctx.Err() != nil && err != nil:
		return true, fmt.Errorf("%w: after its context had ended: %w", ErrLeadFailed, err)
	case ctx.Err() != nil:
		return true, ended(ctx, "lead")
	case err != nil:
		e.announcer.announce(e.announcer.failure(ctx, hooks.Failure{Op: hooks.OpLead, Err: fmt.Errorf("%w: after its term had ended: %w", ErrLeadFailed, err)}))
	}
	return false, nil
}

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
	for {
		claimed, release, err := e.claim(ctx)
		if err != nil {
			return nil, err
		}
		term, err := e.newCampaign(true).run(claimed)
		release()
		if err != nil {
			e.releaseClaim()
			return nil, err
		}
		if term.handOut() {
			return term, nil
		}
	}
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
	if err = e.awaitFirstCheck(ctx); err == nil {
		r := e.newCampaign(true).attempt(ctx, true)
		term, err = r.term, r.err
	}
	switch {
	case term == nil:
		e.releaseClaim()
		return nil, false, err
	case !term.handOut():
		return nil, false, fmt.Errorf("%w: the term has ended before it could begin: %w", ErrNotLeader, context.Cause(term.ctx))
	}
	return term, true, nil
}

// IsLeader reports whether this elector leads, by the clocks at the time of
// the call. It costs no round trip and no allocation.
func (e *Elector) IsLeader() bool {
	_, leading := e.Term()
	return leading
}

// Term returns the term that goes on, and whether there is one.
func (e *Elector) Term() (term *Term, leading bool) {
	if term = e.term.Load(); term == nil || !term.Valid() {
		return nil, false
	}
	return term, true
}

// CandidateID is the id of this candidate.
func (e *Elector) CandidateID() string { return e.candidateID }

// Election is the name of the election.
func (e *Elector) Election() string { return e.election }

// Key is the advisory lock key of the election.
func (e *Elector) Key() int64 { return e.key }

func (e *Elector) newCampaign(byCaller bool) *campaign {
	c := &campaign{candidate: e.candidate, began: time.Now(), onTerm: e.term.Store}
	if byCaller {
		c.unclaim = e.unclaim
	}
	return c
}

// beat announces a heartbeat.
func (e *Elector) beat(b session.Beat) {
	if t := e.term.Load(); t != nil {
		e.announcer.heartbeat(t.ctx, hooks.Heartbeat{Token: t.Token(), Took: b.Took, Deadline: b.Deadline})
	}
}

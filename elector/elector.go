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
//     again. If an administrator has ended its session and another is ready to lead, it waits first, as after Resign. An error of lead that is not of its context goes to OnError.
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
		if cause := context.Cause(term.ctx); !lost(cause) || e.yields(ctx, cause) {
			_ = backoff.Sleep(ctx, e.resignPause())
		}
	}
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

package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// A Config is what an election is like. Its Source has the rest.
type Config struct {
	Want                       // the key, and whether to look for the holder of a busy lock
	Retry        time.Duration // between two attempts while another leads
	Backoff      backoff.Backoff
	MaxAttempts  int           // failures in a row; 0: no limit
	AwaitPrimary time.Duration // how long a candidate that has met only standbys waits for a primary
	Acquirer     Acquirer      // Election.Attempt, if nil
	Observer     Observer
	Terms        *Terms // the room of the election's terms; one of its own, if nil
}

// An Election is one candidate of one election. It runs one campaign and holds one term at a time.
type Election struct {
	Config
	source *Source
	pace   pace
	last   *Term // the last term; nil before the first one
}

// New neither connects nor starts anything. Several elections may have one source only if an acquirer makes their attempts
// on one goroutine, as for a shared session.
func New(source *Source, c Config) *Election {
	if c.Terms == nil {
		c.Terms = &Terms{}
	}
	return &Election{Config: c, source: source, pace: pace{backoff: c.Backoff, retry: c.Retry}}
}

// Source lends sessions.
func (e *Election) Source() *Source { return e.source }

// Errors of Run.
var (
	ErrGaveUp     = errors.New("elector: gave up")
	ErrLeadFailed = errors.New("elector: lead failed")
	errReturned   = errors.New("elector: resigned: lead has returned")
	errNoLock     = errors.New("elector: an acquirer returned a lock that is not confirmed, is of another election, or has had its term") // a fault of this program
)

// Run campaigns, and once elected calls lead, on the calling goroutine. It releases the lock only after lead has returned.
//
//   - lead returns while the term goes on: Run resigns, and returns what lead returned.
//   - The term is lost: Run cancels lead's context, waits for lead, and campaigns again.
//   - ctx ends: Run cancels lead's context, waits for lead, resigns, and returns the cause of ctx.
//   - The server is refused, or attempts are used up: Run returns that error.
//
// The attempts carry no values of ctx: they may go on for months.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, term *Term) error) error {
	for {
		t, err := e.campaign(ctx, how{})
		if err != nil {
			return err
		}
		if finished, err := e.lead(ctx, t, lead); finished {
			return err
		}
	}
}

// TryRun makes one attempt, and once elected calls lead, as Run does. elected is false if another leads.
func (e *Election) TryRun(ctx context.Context, lead func(ctx context.Context, term *Term) error) (elected bool, err error) {
	t, err := e.campaign(ctx, how{once: true})
	if t == nil {
		return false, err
	}
	if finished, err := e.lead(ctx, t, lead); finished {
		return true, err
	}
	return true, fmt.Errorf("elector: run: %w", context.Cause(t.ctx))
}

// Campaign campaigns until elected, and returns the term, which is the caller's: nobody sees the caller's work return, so the
// caller calls Term.Resign. ctx bounds the campaign only. A term that ended before Campaign could return it, because the
// process stood still, is given up, and Campaign campaigns again.
func (e *Election) Campaign(ctx context.Context) (*Term, error) {
	for {
		t, err := e.campaign(ctx, how{byHand: true})
		if err != nil || t.handOut() {
			return t, err
		}
	}
}

// TryCampaign makes one attempt, and returns the term as Campaign does. The term is nil if another leads.
func (e *Election) TryCampaign(ctx context.Context) (*Term, error) {
	t, err := e.campaign(ctx, how{once: true, byHand: true})
	if t != nil && !t.handOut() {
		return nil, fmt.Errorf("%w: the term ended before it could begin: %w", pgerr.ErrNotLeader, context.Cause(t.ctx))
	}
	return t, err
}

// how is how a campaign goes on.
type how struct {
	once   bool // one attempt, which may find the lock busy
	byHand bool // the term is for the caller of Campaign
}

// campaign makes attempts until elected, refused, out of attempts or cancelled.
func (e *Election) campaign(ctx context.Context, h how) (*Term, error) {
	trying := ctx
	if h == (how{}) { // Run
		own, stop := bare(ctx)
		defer stop()
		trying = own
	}
	if e.last != nil {
		<-e.last.done
		backoff.Sleep(ctx, e.pace.ended(e.last))
		e.last = nil
	}
	for {
		refused := e.Terms.refusal()
		if !h.once {
			e.Terms.await(ctx)
		}
		switch {
		case ctx.Err() != nil:
			e.stop()
			return nil, fmt.Errorf("elector: campaign: %w", context.Cause(ctx))
		case refused != nil && h.once:
			return nil, refused
		}
		began := time.Now()
		a := e.acquire(trying)
		if a.Outcome == Granted {
			e.Observer.Attempted(a)
			return e.elected(ctx, a.Lock, h.byHand)
		}
		if a.Outcome != Busy && ctx.Err() != nil {
			continue
		}
		over, err := e.pause(&a, time.Since(began), h.once)
		if over {
			e.stop()
		}
		e.Observer.Attempted(a)
		if over {
			return nil, err
		}
		backoff.Sleep(ctx, a.Next)
	}
}

// acquire makes one attempt.
func (e *Election) acquire(ctx context.Context) Attempt {
	if e.Acquirer != nil {
		return e.Acquirer.Acquire(ctx, e)
	}
	a := e.Attempt(ctx)
	if a.Kept != nil { // nobody uses it
		a.Kept.Fail(errClosed)
		a.Kept = nil
	}
	return a
}

// stop gives up what the acquirer keeps.
func (e *Election) stop() {
	if e.Acquirer != nil {
		e.Acquirer.Close()
	}
}

// elected begins a term with the lock.
func (e *Election) elected(ctx context.Context, l *Lock, byHand bool) (*Term, error) {
	if !l.begin(e.Key) {
		l.GiveUp()
		e.stop()
		return nil, errNoLock
	}
	e.pace.elected()
	e.last = newTerm(ctx, l, e.Terms, byHand)
	e.Observer.Elected(e.last)
	go e.last.stepDown(e.Observer)
	return e.last, nil
}

// pause sets how long the campaign waits after an attempt without a lock. over says that the campaign is over, with err.
func (e *Election) pause(a *Attempt, took time.Duration, once bool) (over bool, err error) {
	later, early := errors.AsType[Later](a.Err)
	over, err = once, a.Err
	switch {
	case a.Outcome == Busy:
		a.Next = e.pace.busy()
	case early:
		a.Next = later.Later()
		e.pace.answered()
	case a.Outcome == Refused && !(errors.Is(err, pgerr.ErrServerReadOnly) && e.pace.awaits(e.AwaitPrimary)):
		over = true
	default:
		a.Next, a.Counts = e.pace.failed(took, a.Hurry)
		if !once && a.Counts && e.pace.counted == e.MaxAttempts {
			over, err = true, gaveUp(e.MaxAttempts, err)
		}
	}
	if over || a.Paced {
		a.Next = 0
	}
	return over, err
}

// gaveUp hides a cancelled context of somebody else: this is no clean stop.
func gaveUp(attempts int, err error) error {
	err = fmt.Errorf("%w: %d in a row, as many as are allowed: %w", ErrGaveUp, attempts, err)
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %v", ErrGaveUp, err)
	}
	return err
}

// lead calls lead under a term, and waits for the term's end. Run is finished unless the term was lost.
func (e *Election) lead(ctx context.Context, t *Term, lead func(ctx context.Context, term *Term) error) (finished bool, err error) {
	stop := context.AfterFunc(ctx, func() { t.end(Shutdown, context.Cause(ctx)) })
	defer stop()
	defer func() { <-t.done }()
	defer t.end(LeadFailed, fmt.Errorf("%w: it panicked", ErrLeadFailed)) // if nothing has ended the term before
	if t.Begin() {
		err = func() error { defer t.work.Finish(); return lead(t.ctx, t) }()
	}
	switch {
	case ctx.Err() != nil: // which ends the term, on another goroutine
		<-t.ctx.Done()
	case err == nil && t.end(Resigned, errReturned):
		return true, nil
	case err != nil && t.end(LeadFailed, fmt.Errorf("%w: %w", ErrLeadFailed, err)):
		return true, err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(t.ctx)) { // it only says that the context ended
		err = nil
	}
	switch {
	case ctx.Err() != nil && err != nil:
		return true, fmt.Errorf("%w: after its context had ended: %w", ErrLeadFailed, err)
	case ctx.Err() != nil:
		return true, fmt.Errorf("elector: lead: %w", context.Cause(ctx))
	case err != nil:
		e.Observer.Failed("lead", fmt.Errorf("%w: after its term had ended: %w", ErrLeadFailed, err))
	}
	return false, nil
}

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
	Key          int64
	Look         func() bool                                 // whether to look for the holder of a busy lock; nil: never
	Retry        func() time.Duration                        // between two attempts while another leads
	Rest         time.Duration                               // at least, between the end of a term that was not lost and Run's next attempt, besides Retry
	Yields       func(ctx context.Context, cause error) bool // whether Run rests after a lost term, too; may be nil
	Sleep        Sleep                                       // between two attempts; backoff.Sleep, if nil
	Backoff      backoff.Backoff
	MaxAttempts  int           // failures in a row; 0: no limit
	AwaitPrimary time.Duration // how long a candidate that has met only standbys waits for a primary
	Acquirer     Acquirer      // Election.Attempt, if nil
	Observer     Observer
	Meanwhile    func(ctx context.Context) // called once per retry interval while terms are refused; may be nil
	Terms        *Terms                    // the room of the election's terms; one of its own, if nil
}

// A Sleep waits for d. It returns early if ctx ends, or if something else makes the candidate try again.
type Sleep = func(ctx context.Context, d time.Duration)

// An Election is one candidate of one election. It runs one campaign and holds one term at a time.
type Election struct {
	Config
	source *Source
	pace   pace
	last   *Term // the last term; nil before the first one
	once   bool  // this campaign makes one attempt
}

// New neither connects nor starts anything. Several elections may have one source only if an acquirer makes their attempts
// on one goroutine, as for a shared session.
func New(source *Source, c Config) *Election {
	if c.Terms == nil {
		c.Terms = &Terms{}
	}
	if c.Sleep == nil {
		c.Sleep = func(ctx context.Context, d time.Duration) { backoff.Sleep(ctx, d) }
	}
	if c.Look == nil {
		c.Look = func() bool { return false }
	}
	return &Election{Config: c, source: source, pace: pace{backoff: c.Backoff, retry: c.Retry}}
}

// Want is the lock of the election.
func (e *Election) Want() Want { return Want{Key: e.Key, Look: e.Look()} }

// Once reports whether the campaign makes one attempt only, so that it is of no use to keep a session.
func (e *Election) Once() bool { return e.once }

// Source lends sessions.
func (e *Election) Source() *Source { return e.source }

// Errors of Run.
var (
	ErrGaveUp     = errors.New("elector: gave up after too many failed attempts")
	ErrLeadFailed = errors.New("elector: lead failed")
	ErrResigned   = errors.New("elector: the term was resigned")
	ErrReturned   = fmt.Errorf("%w: lead has returned", ErrResigned)                                                                      // the cause of a term
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
	for h := (how{}); ; h.again = true {
		t, err := e.campaign(ctx, h)
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

// Campaign campaigns until elected, and returns the term. The caller must call Term.Resign, because nobody sees the caller's
// work return. ctx bounds the campaign only. If a term ended before Campaign could return it, because the process stood still,
// Campaign gives the term up, and campaigns again.
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

// how says how a campaign goes on.
type how struct {
	once   bool // one attempt, which may find the lock busy
	byHand bool // the term is for the caller of Campaign
	again  bool // it follows a term of the same Run
}

// campaign makes attempts until elected, refused, out of attempts or cancelled.
func (e *Election) campaign(ctx context.Context, h how) (*Term, error) {
	trying := ctx
	if !h.once {
		own, stop := bare(ctx)
		defer stop()
		trying = own
	}
	e.pace.begin()
	if e.once = h.once; e.last != nil {
		<-e.last.done
		if pause := e.pace.ended(e.last); h.again {
			backoff.Sleep(ctx, max(pause, e.rest(trying, e.last)))
		} else {
			backoff.Sleep(ctx, pause)
		}
		if isLost(e.last.cause()) {
			e.source.Invalidate() // it may be another server now
		}
		e.last = nil
	}
	for {
		refused := e.Terms.refusal()
		if refused != nil {
			e.stop()
			if !h.once && e.Terms.await(ctx, backoff.Jitter(e.Retry())) && e.Meanwhile != nil {
				e.Meanwhile(trying)
			}
		}
		switch {
		case ctx.Err() != nil:
			e.stop()
			return nil, Stopped(ctx, "campaign")
		case refused != nil && h.once:
			return nil, refused
		case refused != nil:
			continue
		}
		began := time.Now()
		a := e.acquire(trying)
		if a.Outcome == Granted {
			a.Over = true
			e.Observer.Attempted(a)
			return e.elected(ctx, a.Lock, h.byHand)
		}
		if a.Outcome != Busy && (ctx.Err() != nil || e.Terms.refusal() != nil && !h.once) {
			continue
		}
		e.pause(&a, time.Since(began), h.once)
		if a.Over {
			e.stop()
		}
		e.Observer.Attempted(a)
		if a.Over {
			return nil, a.Err
		}
		e.Sleep(ctx, a.Next)
	}
}

// rest is how long Run waits after a term that was not lost: others may want to lead.
func (e *Election) rest(ctx context.Context, t *Term) time.Duration {
	if cause := t.cause(); isLost(cause) && (e.Yields == nil || !e.Yields(ctx, cause)) {
		return 0
	}
	return max(e.Retry(), e.Rest)
}

// acquire makes one attempt, which ends when terms are refused.
func (e *Election) acquire(ctx context.Context) Attempt {
	ctx, stop := e.Terms.whileAllowed(ctx)
	defer stop()
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
		if err := GiveUp(l); err != nil {
			e.source.Report("release", err)
		}
		e.stop()
		return nil, errNoLock
	}
	e.pace.elected()
	e.last = newTerm(ctx, l, e.Terms, byHand)
	e.Observer.Elected(e.last)
	go backoff.Apart(func() { e.last.stepDown(e.Observer) })()
	return e.last, nil
}

// pause says how the campaign goes on after an attempt without a lock.
func (e *Election) pause(a *Attempt, took time.Duration, once bool) {
	later, early := errors.AsType[Later](a.Err)
	a.Over = once
	switch {
	case a.Outcome == Busy:
		a.Next = e.pace.busy()
	case early:
		a.Next = later.Later()
		e.pace.answered()
	default:
		a.Next, a.Counts = e.pace.failed(took, a.Hurry)
		if a.Outcome == Refused && errors.Is(a.Err, pgerr.ErrServerReadOnly) && e.pace.awaits(e.AwaitPrimary) {
			a.Outcome = Failed
		}
		if a.Failures = e.pace.counted; a.Outcome == Refused {
			a.Over = true
		} else if !once && a.Counts && a.Failures == e.MaxAttempts {
			a.Over, a.Err = true, gaveUp(e.MaxAttempts, a.Err)
		}
	}
	if a.Over || a.Paced {
		a.Next = 0
	}
}

// A StoppedError is returned by what a context has ended. It wraps the context's error and its cause, and reads as the cause.
type StoppedError struct {
	doing      string
	err, cause error
}

func (e *StoppedError) Error() string   { return fmt.Sprintf("elector: %s: %v", e.doing, e.cause) }
func (e *StoppedError) Unwrap() []error { return []error{e.err, e.cause} }

// Stopped returns the error for what ctx has ended. ctx is done.
func Stopped(ctx context.Context, doing string) error {
	return &StoppedError{doing, ctx.Err(), context.Cause(ctx)}
}

// gaveUp hides a cancelled context of somebody else: this is no clean stop.
func gaveUp(attempts int, err error) error {
	why := fmt.Errorf("%w: %d in a row, as many as WithMaxAttempts allows, not counting quick ones", ErrGaveUp, attempts)
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %v", why, err)
	}
	return fmt.Errorf("%w: %w", why, err)
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
	case err == nil && t.end(Resigned, ErrReturned):
		return true, nil
	case err != nil && t.end(LeadFailed, fmt.Errorf("%w: %w", ErrLeadFailed, err)):
		if errors.Is(err, context.Canceled) { // of another context: no clean stop
			err = fmt.Errorf("%w: %v", ErrLeadFailed, err)
		}
		return true, err
	}
	if _, ends := errors.AsType[*ending](err); ends || errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(t.ctx)) { // it only says that the context ended
		err = nil
	}
	switch {
	case ctx.Err() != nil && err != nil:
		return true, fmt.Errorf("%w: after its context had ended: %w", ErrLeadFailed, err)
	case ctx.Err() != nil:
		return true, Stopped(ctx, "lead")
	case err != nil:
		<-t.done // why the term ended is told first
		e.Observer.Failed("lead", fmt.Errorf("%w: after its term had ended: %w", ErrLeadFailed, err))
	}
	return false, nil
}

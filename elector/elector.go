package elector

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/wakeup"
)

// An Elector is one candidate of one election. It runs one campaign and holds
// one term at a time; its methods may be called from any goroutine.
type Elector struct {
	*candidate
	kernel   *election.Election
	close    context.CancelCauseFunc // ends closing
	onClosed func()                  // removes it from its session; nil without one
	term     atomic.Pointer[Term]    // the last one, if any, which may have ended

	// What the one call of Run, TryRun, Start, Campaign or TryCampaign owns.
	called     context.Context // that call's
	byHand     bool            // that call is Campaign or TryCampaign
	campaign   *campaign       // that goes on; nil before the first attempt, and during a term
	wakeUps    *wakeup.Calls   // of that campaign
	preempting sync.WaitGroup  // of who asks a leader of lower priority for its lock

	mu         sync.Mutex
	claimed    chan struct{}     // closed at the end of the one campaign or term; nil without one
	started    *background       // by the last Start, also after Stop
	background *background       // what Start began
	requests   map[string]func() // that were taken up, and stood at the last heartbeat: each is called when it does not stand any more

	closeOnce sync.Once
	closed    chan struct{} // closed when Close was called, and all is over
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
	e.begins(ctx, false)
	return e.kernel.Run(ctx, e.leads(caller, ctx, lead))
}

// begins begins one call of Run, TryRun, Start, Campaign or TryCampaign.
func (e *Elector) begins(ctx context.Context, byHand bool) { e.called, e.byHand = ctx, byHand }

// leads calls lead under the last term. If the caller's context has ended, or the elector is closed, ctx ends soon. leads waits for
// that before it returns to the kernel.
func (e *Elector) leads(caller, ctx context.Context, lead func(ctx context.Context, term *Term) error) func(context.Context, *election.Term) error {
	lead = orHold(lead)
	return func(context.Context, *election.Term) error {
		t := e.term.Load()
		err := lead(t.ctx, t)
		if caller.Err() != nil || e.closing.Err() != nil {
			<-ctx.Done()
		}
		return err
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

// beat announces a heartbeat.
func (e *Elector) beat(b election.Beat) {
	if t := e.term.Load(); t != nil {
		e.announcer.heartbeat(t.ctx, hooks.Heartbeat{Token: t.Token(), Took: b.Took, Deadline: b.Deadline})
	}
}

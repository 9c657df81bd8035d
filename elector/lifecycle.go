package elector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/gate"
)

// claim begins what unclaim ends: one campaign or term at a time. The context that it
// returns ends with ctx, and when the elector is closed. release is called when the
// campaign is over, which may be before the term is.
func (e *Elector) claim(ctx context.Context) (claimed context.Context, release func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closing.Err() != nil:
		return nil, nil, election.Stopped(e.closing, "campaign")
	case e.claimed != nil:
		return nil, nil, ErrAlreadyRunning
	}
	claimed, release = backoff.Either(ctx, e.closing) // first: it panics if ctx is nil
	release = e.announcer.reportStop(claimed, release)
	e.claimed = make(chan struct{})
	e.monitor.start()
	return claimed, release, nil
}

// reportStop reports, once ctx has ended, a hook that was being called then and keeps the end waiting. release, which it
// returns anew, ends that.
func (a *announcer) reportStop(ctx context.Context, release func()) func() {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c, since := a.calling.Load(), time.Now()
		if c == nil || c.method == "OnElected" { // which is work
			return
		}
		soon, cancel := context.WithTimeout(context.Background(), a.patience)
		defer cancel()
		if !gate.Await(soon, over) && a.calling.Load() == c {
			backoff.Guard(a.beside(soon, hooks.Failure{Op: hooks.OpHook, Since: since, Returned: over, Err: fmt.Errorf(
				"elector: this candidate was told to stop, and waits for %v: until that returns it keeps its lock, and does not end: kill the process", c)}))
		}
	})
	return sync.OnceFunc(func() {
		stop()
		close(over)
		release()
	})
}

func (e *Elector) unclaim() {
	e.monitor.stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.claimed)
	e.claimed = nil
}

// releaseClaim is unclaim for a campaign that does not end with a term. No hook is called
// after it.
func (e *Elector) releaseClaim() {
	e.endCampaign()
	e.preempting.Wait()
	e.monitor.stop()
	e.announcer.flush()
	e.unclaim()
}

// background is a Run on a goroutine of its own.
type background struct {
	stop   context.CancelCauseFunc
	done   chan struct{}
	err    error   // once done: why it ended, if Stop or ctx did not end it
	unread []error // of earlier Starts, which no Stop has returned
}

// maxUnread is how many errors are kept for Stop.
const maxUnread = 10

// errors are those that the next Stop returns, once done.
func (b *background) errors() []error {
	all := b.unread
	if b.err != nil {
		all = append(all, b.err)
	}
	return all[max(0, len(all)-maxUnread):]
}

// Start runs the election in the background, as Run with a nil lead does, until Stop is
// called or ctx ends. The work is done by hooks, or guarded by IsLeader, RunIfLeader or
// Term. ErrAlreadyRunning is returned while this elector campaigns or leads already.
//
// A run that ends because the server is refused or attempts are used up reports that to
// OnError, and Stop returns the error. Start may be called again without a Stop: the error
// is kept.
func (e *Elector) Start(ctx context.Context) error {
	if ctx.Err() != nil {
		return election.Stopped(ctx, "start")
	}
	claimed, release, err := e.claim(ctx)
	if err != nil {
		return err
	}
	claimed, stop := context.WithCancelCause(claimed)
	b := &background{stop: stop, done: make(chan struct{})}
	e.mu.Lock()
	if before := e.background; before != nil {
		<-before.done // at once: its claim has ended
		b.unread = before.errors()
	}
	e.background, e.started = b, b
	e.mu.Unlock()
	go backoff.Apart(func() {
		defer close(b.done)
		defer release()
		err := e.run(ctx, claimed, nil)
		if _, outside := errors.AsType[*election.StoppedError](err); !outside { // with any cause, also one that cannot be compared
			b.err = err
		}
	})()
	return nil
}

// Done is closed when the run that the last Start began has ended and no hook of it is
// called any more, whatever ended it; Err then says why. It is nil before the first Start.
func (e *Elector) Done() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.started == nil {
		return nil
	}
	return e.started.done
}

// Err is nil while the run that the last Start began goes on, and if Stop, Close or the
// context of Start ended it. Otherwise it says why it ended: a refused server, or ErrGaveUp.
func (e *Elector) Err() error {
	e.mu.Lock()
	b := e.started
	e.mu.Unlock()
	if b == nil || !gate.IsClosed(b.done) {
		return nil
	}
	return b.err
}

// Stop ends what Start began, and waits for it. It returns nil, or why the run had ended
// before: a refused server, or ErrGaveUp. If Start was called more than once, the error
// wraps all that no Stop has returned, the last ten at most. If ctx ends first, Stop
// returns an error that wraps its cause, and the stopping goes on. Without a Start, and
// when called again, it does nothing and returns nil; the elector can be used again.
func (e *Elector) Stop(ctx context.Context) error {
	e.mu.Lock()
	b := e.background
	e.mu.Unlock()
	if b == nil {
		return nil
	}
	b.stop(ErrStopped)
	if !gate.Await(ctx, b.done) {
		return election.Stopped(ctx, "stop: the work, or a hook, has not returned"+e.announcer.busy()+"; the lock is released when it does")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.background != b {
		return nil // stopped by another call
	}
	e.background = nil
	return errors.Join(b.errors()...)
}

// Close ends what the elector does, cleanly. A campaign ends at once. A term ends with
// the reason hooks.Shutdown and a cause that wraps ErrStopped: its work returns, OnDemoted
// is called, and the lock is released, as at the end of Run's context. The work of
// Campaign's or TryCampaign's caller has returned when that calls Resign, or when the
// drain is over. Then OnClosed is called, and no hook any more, and an elector of a [Session] is
// removed from it: nothing of it is kept, and [Session.Elector] can make the same election again.
// The session and its other elections go on.
//
// From the call on, Run, TryRun, Start, Campaign and TryCampaign return an error that wraps
// ErrStopped, at once or when they have ended, but Run and TryRun ErrLeadFailed if lead fails then, and TryRun nil in its hold (WithHold);
// RunIfLeader calls nothing; Stop returns what it would have. Leader, Candidates and Observe
// can still be used.
//
// Close waits until all is done, and returns nil. If ctx ends first, it returns an error
// that wraps its cause, and the closing goes on. It may be called from any goroutine, and
// again, but lead, a function of RunIfLeader or a hook that waits for it waits for itself.
func (e *Elector) Close(ctx context.Context) error {
	e.close(ErrStopped)
	e.room.Refuse(election.Shutdown, ErrStopped)
	e.closeOnce.Do(func() {
		go func() {
			defer close(e.closed)
			e.mu.Lock()
			claimed := e.claimed
			e.mu.Unlock()
			if claimed != nil {
				<-claimed
			}
			e.announcer.close()
			if e.onClosed != nil {
				e.onClosed()
			}
		}()
	})
	if !gate.Await(ctx, e.closed) {
		return election.Stopped(ctx, "close the elector: the work of its term, or a hook, has not returned"+e.announcer.busy()+"; the lock is released when it does")
	}
	return nil
}

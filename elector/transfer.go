package elector

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/lock"
)

// TransferTo resigns in favour of another candidate: the term goes on until that
// candidate waits in the server's queue for the lock, and before all others; then the
// term ends as by Resign, and the server hands the lock to that candidate. It returns
// nil only if it did: of several calls for one term, at once or one after another, those
// that name the candidate that got the lock.
//
// A candidate that polls, or is of a shared session, hears of it at its next attempt,
// or at once with a notifier; one of a shared session leads that term on a connection of
// its own, for which its pool needs room. If it has not come within one lease, or when
// ctx ends, the term is resigned without it, the election goes on as usual, and the
// error wraps ErrNoSuccessor: the candidate is dead, frozen, unhealthy or unknown, does
// not campaign, or has a retry interval longer than the lease. The error wraps it too
// if the successor was lost while the term's work returned; the lock is kept for it for one
// heartbeat interval then, and one second at least. Otherwise errors are as those of
// Resign.
//
// If ctx ends first, TransferTo returns within a second, with an error that wraps
// ErrNoSuccessor and the cause of ctx: the term has ended, and the lock is released when
// its work has returned. If ctx ends when the candidate has come, and only the work is
// waited for, the error wraps the cause of ctx alone: the candidate may still get the lock.
//
// successor is a candidate id other than this candidate's; if it cannot be one, the error
// wraps ErrConfig and the term goes on. A lead may call TransferTo with its term's
// context, which then returns once the term has ended, and must itself return.
func (t *Term) TransferTo(ctx context.Context, successor string) error {
	if err := checkSuccessor(successor, t.elector.candidateID); err != nil {
		return err
	}
	offer := t.lock.TransferTo(successor)
	absent := t.prepare(ctx, offer, successor)
	if absent == nil {
		absent = t.leaveTo(offer, successor)
	}
	if absent != nil {
		offer.Withdraw()
	}
	err := t.Resign(ctx)
	switch {
	case err == nil && t.successorHas && t.successorID == successor: // by another call, perhaps
		return nil
	case err == nil:
		return fmt.Errorf("%w: %q: %w", ErrNoSuccessor, successor, cmp.Or(absent, errOvertaken))
	case absent != nil:
		return fmt.Errorf("%w: %q: %w: %w", ErrNoSuccessor, successor, absent, err)
	}
	return err
}

func checkSuccessor(successor, own string) error {
	if successor == own {
		return fmt.Errorf("%w: TransferTo(%q): that is this candidate's own id", ErrConfig, successor)
	}
	if err := checkCandidateID(successor); err != nil {
		return fmt.Errorf("%w: TransferTo(%q): %w", ErrConfig, successor, err)
	}
	return nil
}

// prepare makes the offer and waits until the successor is the first in the queue, while
// the term goes on.
func (t *Term) prepare(ctx context.Context, offer *lock.Transfer, successor string) error {
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	lease := t.elector.lease.Length
	ctx, cancel := context.WithTimeoutCause(ctx, lease, fmt.Errorf("it did not come within %v, one lease", lease))
	defer cancel()
	ctx, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	stop := context.AfterFunc(t.ctx, func() { abandon(context.Cause(t.ctx)) })
	defer stop()
	return offer.Prepare(ctx, func() { t.notify(ctx, eventSuccessor, successor) })
}

var errOvertaken = errors.New("it was the first in the queue, but not any more when the work had returned")

// leaveTo ends the term in favour of the successor. It returns the cause of the end if the
// term has ended already.
func (t *Term) leaveTo(offer *lock.Transfer, successor string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	t.offer, t.successorID = offer, successor
	t.cancel(&ending{reason: hooks.Resigned, err: ErrResigned})
	return nil
}

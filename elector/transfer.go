package elector

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/handover"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// TransferTo hands the leadership to another candidate, the successor. The term goes on
// until the successor is the first in the server's queue for the lock. Then the term ends
// as by Resign, and the server hands the lock over. TransferTo returns nil only if the
// successor has got the lock. If several calls are made for one term, at once or one after
// another, the calls that name the candidate that got the lock return nil.
//
// A successor learns of the offer at its next attempt, or at once with a notifier; the deputy
// learns of it within one heartbeat interval. A successor on a shared session leads that term on
// a connection of its own, for which its pool needs room, and takes up one transfer at a time.
//
// If the successor does not come within one lease, or before ctx ends, the offer is taken back, the
// term goes on, and the error wraps ErrNoSuccessor: the successor is dead, frozen, unhealthy
// or unknown, does not campaign, or has a retry interval longer than the lease. To let anybody
// lead then, call Resign.
//
// Once the term's context is done there is no way back: if the successor is lost while the work
// returns, the lock is kept for it for one heartbeat interval, and one second at least; then
// anybody gets it, and the error wraps ErrNoSuccessor. In transaction scope another candidate may be
// sooner, if the successor's wait ends just before the transaction. An error of Resign is
// wrapped, too: then the successor may have the lock.
//
// If ctx ends first, TransferTo returns within a second, with an error that wraps
// ErrNoSuccessor and the cause of ctx. [Term.Valid] tells whether the term goes on; if not, the
// successor may still get the lock.
//
// successor is a candidate id other than this candidate's; if it cannot be one, the error
// wraps ErrNoSuccessor and ErrConfig. A lead may call TransferTo with
// its term's context. It returns once the term has ended, and then lead must return. For
// Campaign and TryCampaign, calling TransferTo asserts that your work has returned when the term
// ends, as Resign does; RequestTransfer leaves the work its drain.
func (t *Term) TransferTo(ctx context.Context, successor string) error {
	if err := checkSuccessor(successor, t.candidateID); err != nil {
		return fmt.Errorf("%w: %w", ErrNoSuccessor, err)
	}
	absent := t.transfer(ctx, successor, hooks.Resigned, ErrResigned)
	if absent != nil && t.endIfOver() == nil {
		return fmt.Errorf("%w, and the term goes on: %q: %w", ErrNoSuccessor, successor, absent)
	}
	err := t.Resign(ctx)
	switch {
	case err == nil && t.after.heir == successor: // by another call, perhaps
		return nil
	case err == nil:
		return fmt.Errorf("%w: %q: %w", ErrNoSuccessor, successor, cmp.Or(absent, errOvertaken))
	case absent == nil:
		absent = errMayHave
	}
	return fmt.Errorf("%w: %q: %w: %w", ErrNoSuccessor, successor, absent, err)
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

var (
	errOvertaken = errors.New("it was the first in the queue, but no longer when the work returned")
	errMayHave   = errors.New("it was the first in the queue, and may get the lock")
)

// An offer offers the lock to one candidate: see handover.Transfer.
type offer interface {
	Release(ctx context.Context, s *election.Session) (released bool, err error)
	Heir() string
	Withdraw()
}

// transfer ends the term in favor of the successor once it is the first in the queue. Otherwise
// it takes the offer back, and returns why; the term goes on, unless it has ended.
func (t *Term) transfer(ctx context.Context, successor string, reason hooks.Reason, cause error) error {
	offer := handover.New(t.lock, successor)
	absent := t.prepare(ctx, offer, successor)
	if absent == nil && t.endFor(offer, reason, cause) {
		return nil
	}
	if pgerr.MaybeBroken(absent) {
		_ = t.lock.Verify(ctx) // which ends the session if it is lost
	}
	offer.Withdraw()
	return cmp.Or(absent, context.Cause(t.ctx))
}

// prepare makes the offer and waits until the successor is the first in the queue, while
// the term goes on.
func (t *Term) prepare(ctx context.Context, offer *handover.Transfer, successor string) error {
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	lease := t.lease.Length
	ctx, cancel := context.WithTimeoutCause(ctx, lease, fmt.Errorf("it did not come within %v, one lease", lease))
	defer cancel()
	ctx, stop := backoff.Either(ctx, t.ctx)
	defer stop()
	return offer.Prepare(ctx, func() { t.notify(ctx, notifyPatience, eventSuccessor, successor) })
}

package elector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/pace"
	"github.com/pgelector/pgelector/internal/session"
)

// The leader and its heir:
//
//	the leader                                     the heir
//	ResignTo: takes a lock that is a call ───────→ hears of it in its next attempt, or is parked anyway
//	looks into the queue, and sends those          parks in the server's queue for the election's lock,
//	before the heir to its end                     as long as it is called
//	the heir is the first: the term ends,
//	the work returns, OnDemoted is told
//	unlocks, if the heir is still the first ─────→ is granted the lock by the server, and is elected
//
// Nobody but the server hands the lock over, so nothing here can make two leaders.

// glances is how soon the leader looks again for its heir.
var glances = pace.Backoff{Min: 2 * time.Millisecond, Max: 50 * time.Millisecond}

// ResignTo resigns in favour of another candidate: the term goes on until that
// candidate waits in the server's queue for the lock, and before all others; then the
// term ends as by Resign, and the server hands the lock to that candidate. It returns
// nil only if it did: of several calls for one term, at once or one after another, those
// that name the candidate that got the lock.
//
// A candidate that polls, or is of a shared session, hears of it at its next attempt,
// or at once with a notifier; one of a shared session leads that term on a connection of
// its own, for which its pool needs room. If it has not come within one lease, or when
// ctx ends, the term is resigned without it, the election goes on as usual, and the
// error wraps ErrHeirAbsent: the candidate is dead, frozen, unhealthy or unknown, does
// not campaign, or has a retry interval longer than the lease. The error wraps it too
// if the heir was lost while the term's work returned; the lock is kept for it for one
// heartbeat interval then, and one second at least. Otherwise errors are as those of
// Resign.
//
// If ctx ends first, ResignTo returns within a second, with an error that wraps
// ErrHeirAbsent and the cause of ctx: the term has ended, and the lock is released when
// its work has returned. If ctx ends when the candidate has come, and only the work is
// waited for, the error wraps the cause of ctx alone: the candidate may still get the lock.
//
// heir is a candidate id other than this candidate's; if it cannot be one, the error
// wraps ErrConfig and the term goes on. A lead may call ResignTo with its term's
// context, which then returns once the term has ended, and must itself return.
func (t *Term) ResignTo(ctx context.Context, heir string) error {
	if err := checkHeir(heir, t.elector.candidateID); err != nil {
		return err
	}
	call := t.session.Call(t.elector.key, heir)
	absent := t.await(ctx, call, heir)
	if absent == nil {
		absent = t.leaveTo(call, heir)
	}
	if absent != nil {
		call.End()
	}
	err := t.Resign(ctx)
	switch {
	case err == nil && t.heirHas && t.heirID == heir: // by another call, perhaps
		return nil
	case err == nil:
		return fmt.Errorf("%w: %q: %w", ErrHeirAbsent, heir, cmp.Or(absent, errOvertaken))
	case absent != nil:
		return fmt.Errorf("%w: %q: %w: %w", ErrHeirAbsent, heir, absent, err)
	}
	return err
}

func checkHeir(heir, own string) error {
	if heir == own {
		return fmt.Errorf("%w: ResignTo(%q): that is this candidate's own id", ErrConfig, heir)
	}
	if err := checkCandidateID(heir); err != nil {
		return fmt.Errorf("%w: ResignTo(%q): %w", ErrConfig, heir, err)
	}
	return nil
}

// await calls the heir until it is the first in the queue, while the term goes on.
func (t *Term) await(ctx context.Context, call *session.Call, heir string) error {
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
	made := false
	for n := 1; ; n++ {
		var first bool
		var err error
		if !made {
			if made, err = call.Make(ctx); made {
				t.notify(ctx, eventHeir, heir)
			}
		}
		if made {
			first, err = call.ClearTheWay(ctx)
		}
		if first || err != nil {
			return err
		}
		if !pace.Sleep(ctx, glances.After(n)) {
			return context.Cause(ctx)
		}
	}
}

var errOvertaken = errors.New("it was the first in the queue, but not any more when the work had returned")

// leaveTo ends the term in favour of the heir, unless it has ended, of which it returns
// the cause.
func (t *Term) leaveTo(call *session.Call, heir string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	t.heir, t.heirID = call, heir
	t.cancel(&ending{reason: hooks.Resigned, err: ErrResigned})
	return nil
}

// reserved is for how long at least the lock is kept for an heir that has lost its place.
const reserved = time.Second

// bequeath releases the lock while the heir is the first in the queue, and reports
// whether it did, and whether the heir has it then. The work has
// returned, so nobody leads: if the heir has lost its place, it gets no more than a
// heartbeat interval, in which a parked candidate comes back.
func (t *Term) bequeath() (released, inherited bool) {
	ctx, cancel := context.WithTimeout(t.session.Context(), max(t.elector.lease.Heartbeat, reserved))
	defer cancel()
	for n := 1; ; n++ {
		released, inherited, err := t.heir.Unlock()
		if released || err != nil || !pace.Sleep(ctx, glances.After(n)) {
			return released, inherited
		}
	}
}

// answer waits in the server's queue for the lock, for as long as the leader calls
// this candidate to be its heir.
func (e *Elector) answer(ctx context.Context, server *session.Server) (session.Grant, error) {
	parked := server.ParkAsHeir(e.key, e.announcer.seesLeader)
	defer parked.Leave()
	for {
		grant, err := parked.Wait(ctx)
		if grant.Session != nil || err != nil {
			return grant, err
		}
		if called, err := parked.IsCalled(ctx); !called {
			return session.Grant{}, err
		}
	}
}

package elector

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/session"
)

// elect passes the barriers of those granted, and gives each its term, or back
// to the queue while a fenced transaction of its last term goes on. To pass
// barriers takes room in the lock table: if that is full, half of what was
// granted is given back for it.
func (w *worker) elect(winners []*wish) {
	if len(winners) == 0 {
		return
	}
	tokens, err := w.now.Tokens(keysOf(winners), w.config.tokenEpoch)
	for errors.Is(err, ErrLockTableFull) {
		half := (len(winners) + 1) / 2
		w.refuse(winners[:half], err)
		if winners = winners[half:]; len(winners) == 0 {
			return
		}
		tokens, err = w.now.Tokens(keysOf(winners), w.config.tokenEpoch)
	}
	if err != nil {
		w.refuse(winners, err)
		return
	}
	for _, wish := range winners {
		if token, passed := tokens[wish.e.key]; passed {
			w.tell(wish, verdict{Grant: session.Grant{Session: w.now, Token: token}})
		} else {
			w.unbar(wish)
			w.requeue(wish)
		}
	}
}

// unbar has overdue transactions ended that a wish waits for. If they cannot be,
// that is reported once.
func (w *worker) unbar(wish *wish) {
	err := w.now.EndOverdue(context.Background(), wish.e.key)
	if err != nil && !wish.complained {
		wish.complained = true
		w.report(wish.ctx, hooks.Failure{Op: hooks.OpCampaign, Err: err})
	}
}

func (w *worker) requeue(wish *wish) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wishes = append(w.wishes, wish)
}

// refuse gives the locks back, if the session has them still, and the reason.
func (w *worker) refuse(wishes []*wish, err error) {
	for _, wish := range wishes {
		w.giveBack(wish)
	}
	w.tellAll(wishes, verdict{err: err})
}

func (w *worker) tellAll(wishes []*wish, v verdict) {
	for _, wish := range wishes {
		w.tell(wish, v)
	}
}

// tell answers a wish. If its campaign has been cancelled meanwhile, a lock that
// it was granted is given back.
func (w *worker) tell(wish *wish, v verdict) {
	if v.Session != nil {
		w.terms.Add(1)
	}
	select {
	case wish.answer <- v:
		return
	case <-wish.ctx.Done():
	}
	if v.Session != nil {
		w.terms.Done()
	}
	w.giveBack(wish)
}

// giveBack releases the lock of a wish that does not come to a term, if it holds it.
func (w *worker) giveBack(wish *wish) {
	s := wish.holds
	wish.holds = nil
	if s == nil || s.Context().Err() != nil {
		return
	}
	if err := s.Unlock(wish.e.key); err != nil {
		w.report(wish.ctx, hooks.Failure{Op: hooks.OpRelease, Err: fmt.Errorf("%w (of %q, whose campaign had ended)", err, wish.e.election)})
	}
}

func keysOf(wishes []*wish) []int64 {
	var keys []int64
	for _, wish := range wishes {
		keys = append(keys, wish.e.key)
	}
	return keys
}

package elector

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/hooks"
)

// elect passes the barriers of those granted, and gives each its term, or back
// to the queue while a fenced transaction of its last term goes on. To pass
// barriers takes room in the lock table: if that is full, half of what was
// granted is given back for it.
func (w *worker) elect(winners []*wish) {
	if len(winners) == 0 {
		return
	}
	tokens, err := w.tokens(winners)
	for errors.Is(err, ErrLockTableFull) {
		half := (len(winners) + 1) / 2
		for _, wish := range winners[:half] {
			w.giveBack(wish)
		}
		w.tellAll(winners[:half], verdict{err: err})
		if winners = winners[half:]; len(winners) == 0 {
			return
		}
		tokens, err = w.tokens(winners)
	}
	if err != nil {
		w.now.cancel(because(ErrSessionLost, err))
		w.tellAll(winners, verdict{err: err})
		return
	}
	for _, wish := range winners {
		if token, passed := tokens[wish.e.key]; passed {
			w.tell(wish, verdict{session: w.now, token: token})
		} else {
			w.unbar(wish)
			w.requeue(wish)
		}
	}
}

// unbar has overdue transactions ended that a wish waits for. If they cannot be,
// that is reported once.
func (w *worker) unbar(wish *wish) {
	err := endOverdue(context.Background(), w.now, wish.e.key)
	if err != nil && !wish.complained {
		wish.complained = true
		w.report(wish.ctx, hooks.Failure{Op: hooks.OpCampaign, Err: err})
	}
}

// tokens are those of the elections whose barrier is passed.
func (w *worker) tokens(winners []*wish) (map[int64]int64, error) {
	var guards []barrier
	for _, wish := range winners {
		high, low := guard(wish.e.key)
		guards = append(guards, barrier{Key: wish.e.key, High: high, Low: low})
	}
	rows, err := do(context.Background(), w.now, func(ctx context.Context, q *db.Queries) ([]db.TokensRow, error) { return q.Tokens(ctx, encode(guards)) })
	if err != nil {
		return nil, fmt.Errorf("elector: pass the barriers and read the tokens: %w", explain(err))
	}
	if w.now.left() <= 0 {
		return nil, w.now.tooLate()
	}
	tokens := map[int64]int64{}
	for _, row := range rows {
		if row.Passed {
			tokens[row.Key] = row.Token
		}
	}
	return tokens, nil
}

func (w *worker) requeue(wish *wish) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wishes = append(w.wishes, wish)
}

func (w *worker) tellAll(wishes []*wish, v verdict) {
	for _, wish := range wishes {
		w.tell(wish, v)
	}
}

// tell answers a wish. If its campaign has been cancelled meanwhile, a lock that
// it was granted is given back.
func (w *worker) tell(wish *wish, v verdict) {
	if v.session != nil {
		w.terms.Add(1)
	}
	select {
	case wish.answer <- v:
		return
	case <-wish.ctx.Done():
	}
	if v.session != nil {
		w.terms.Done()
	}
	w.giveBack(wish)
}

// giveBack releases the lock of a wish that does not come to a term, if it holds it.
func (w *worker) giveBack(wish *wish) {
	s := wish.holds
	wish.holds = nil
	if s == nil || s.ctx.Err() != nil {
		return
	}
	released, err := do(context.Background(), s, func(ctx context.Context, q *db.Queries) (bool, error) { return q.Unlock(ctx, wish.e.key) })
	if err == nil && !released {
		err = errors.New("the session did not hold the lock")
	}
	if err != nil {
		err = because(ErrSessionLost, fmt.Errorf("unlock %q, which does not come to a term: %w", wish.e.election, err))
		s.cancel(err)
		w.report(wish.ctx, hooks.Failure{Op: hooks.OpRelease, Err: err})
	}
}

package elector

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/db"
)

const (
	gathering = 5 * time.Millisecond  // new campaigns that begin together make one batch
	atBarrier = 50 * time.Millisecond // between two looks whether a barrier is passed
)

// A worker serves the wishes of a shared session, in batches. It is one
// goroutine, from the first wish until the session is closed.
type worker struct {
	*Session
	now *session // nil before the first batch, and once lost
}

func (w *worker) work() {
	defer close(w.worked)
	due, barrier := time.NewTimer(jitter(w.config.retry)), time.NewTimer(atBarrier)
	defer due.Stop()
	defer barrier.Stop()
	for w.ctx.Err() == nil {
		select {
		case <-w.ctx.Done():
		case <-w.fresh:
			if sleep(w.ctx, gathering) {
				w.serve((*wish).isFresh)
			}
		case <-barrier.C:
			w.serve((*wish).isHeld)
		case <-due.C:
			w.serve((*wish).any)
			due.Reset(jitter(w.config.retry))
		}
		if w.isAtBarrier() {
			barrier.Reset(atBarrier)
		}
	}
	wishes, _ := w.collect((*wish).any)
	w.tellAll(wishes, verdict{err: context.Cause(w.ctx)})
	w.terms.Wait()
	if w.now != nil {
		w.now.close()
	}
}

func (w *worker) isAtBarrier() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.wishes, (*wish).isHeld)
}

// collect takes the wishes to be served now, and all whose campaign was cancelled.
func (w *worker) collect(which func(*wish) bool) (taken, cancelled []*wish) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var kept []*wish
	for _, wish := range w.wishes {
		switch {
		case wish.ctx.Err() != nil:
			cancelled = append(cancelled, wish)
		case which(wish):
			taken = append(taken, wish)
		default:
			kept = append(kept, wish)
		}
	}
	w.wishes = kept
	return taken, cancelled
}

// serve makes one batch of attempts.
func (w *worker) serve(which func(*wish) bool) {
	wishes, cancelled := w.collect(which)
	for _, wish := range cancelled {
		w.giveBack(wish) // before the same lock is asked for again
	}
	if len(wishes) > 0 {
		w.attempt(wishes)
	}
}

// attempt tries all, verifies all, and passes all barriers.
func (w *worker) attempt(wishes []*wish) {
	if err := w.connect(); err != nil {
		w.tellAll(wishes, verdict{err: err})
		return
	}
	granted, err := w.tryAll(wishes)
	if err != nil && (sqlState(err) == "" || broken(err)) {
		w.now.cancel(because(ErrSessionLost, err)) // in doubt, with all that it holds
	}
	if len(granted) > 0 || err != nil {
		var tellErr error
		if granted, tellErr = w.verify(wishes, granted); tellErr != nil {
			w.now.cancel(because(ErrSessionLost, tellErr))
			w.tellAll(wishes, verdict{err: tellErr})
			return
		}
	}
	var winners, others []*wish
	for _, wish := range wishes {
		if granted[wish.e.key] {
			wish.holds = w.now
			winners = append(winners, wish)
		} else {
			others = append(others, wish)
		}
	}
	w.elect(winners)
	var leaders map[int64]db.LeadersRow
	if err == nil {
		leaders = w.leaders(others)
	}
	for _, wish := range others {
		w.tell(wish, verdict{err: err, leader: leaders[wish.e.key]})
	}
}

// connect sees to it that there is a session.
func (w *worker) connect() error {
	if w.now != nil && w.now.ctx.Err() == nil {
		return nil
	}
	if w.now != nil {
		w.now.close()                        // its connections are in the pool's number
		w.now, w.server.checked = nil, false // it may be another server now
	}
	return w.server.patiently(w.ctx, func() error {
		s, err := w.server.open(w.ctx, 0)
		if err != nil {
			return err
		}
		w.server.start(s, w.beat)
		w.now = s
		return nil
	})
}

// tryAll sends the one statement of a batch. Locks that are held already are
// not asked for again, because the server would count them twice.
func (w *worker) tryAll(wishes []*wish) (granted map[int64]bool, err error) {
	granted = map[int64]bool{}
	var keys []string
	for _, wish := range wishes {
		if wish.holds == w.now {
			granted[wish.e.key] = true
		} else {
			wish.holds = nil // it was lost with its session
			keys = append(keys, strconv.FormatInt(wish.e.key, 10))
		}
	}
	if len(keys) == 0 {
		return granted, nil
	}
	rows, err := do(context.Background(), w.now, func(ctx context.Context, q *db.Queries) ([]db.TryLocksRow, error) {
		return q.TryLocks(ctx, encode(keys))
	})
	if err != nil {
		return granted, fmt.Errorf("elector: try %d locks: %w", len(keys), explain(err))
	}
	for _, row := range rows {
		if row.Granted {
			granted[row.Key] = true
		}
	}
	return granted, nil
}

// verify reads from pg_locks which of the wished locks are held: also of a
// batch that failed half-way, whose first locks are held all the same.
func (w *worker) verify(wishes []*wish, granted map[int64]bool) (map[int64]bool, error) {
	keys, err := do(context.Background(), w.now, func(ctx context.Context, q *db.Queries) ([]int64, error) { return q.HeldLocks(ctx) })
	if err != nil {
		return nil, fmt.Errorf("elector: verify the locks: %w", err)
	}
	all := map[int64]bool{}
	for _, key := range keys {
		all[key] = true
	}
	for key := range granted {
		if !all[key] {
			return nil, ErrNoAdvisoryLocks
		}
	}
	held := map[int64]bool{}
	for _, wish := range wishes {
		if all[wish.e.key] {
			held[wish.e.key] = true
		}
	}
	return held, nil
}

// leaders are the sessions that lead instead of those who want to know.
func (w *worker) leaders(wishes []*wish) map[int64]db.LeadersRow {
	var keys []string
	for _, wish := range wishes {
		if wish.e.announcer.seesLeader {
			keys = append(keys, strconv.FormatInt(wish.e.key, 10))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	rows, err := do(context.Background(), w.now, func(ctx context.Context, q *db.Queries) ([]db.LeadersRow, error) { return q.Leaders(ctx, encode(keys)) })
	if err != nil {
		return nil // the next statement on the session tells
	}
	leaders := map[int64]db.LeadersRow{}
	for _, row := range rows {
		leaders[row.Key] = row
	}
	return leaders
}

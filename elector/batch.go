package elector

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/hooks"
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
	due := time.NewTimer(0)
	defer due.Stop()
	for w.ctx.Err() == nil {
		onlyNew := false
		select {
		case <-w.ctx.Done():
			continue
		case <-w.fresh:
			onlyNew = sleep(w.ctx, gathering)
		case <-due.C:
		}
		wishes := w.collect(onlyNew)
		if len(wishes) > 0 {
			w.serve(wishes)
		}
		if !onlyNew {
			due.Reset(w.pace())
		}
	}
	w.endTerms()
	for _, wish := range w.collect(false) {
		w.tell(wish, verdict{err: context.Cause(w.ctx)})
	}
	if w.now != nil {
		w.now.close()
	}
}

// pace is the time to the next batch.
func (w *worker) pace() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wish := range w.wishes {
		if wish.held {
			return atBarrier
		}
	}
	return jitter(w.config.retry)
}

// collect takes the wishes to be served now.
func (w *worker) collect(onlyNew bool) (taken []*wish) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var kept []*wish
	for _, wish := range w.wishes {
		if onlyNew && !wish.fresh {
			kept = append(kept, wish)
		} else {
			taken = append(taken, wish)
		}
	}
	w.wishes = kept
	return taken
}

// serve makes one batch of attempts: try all, verify all, pass all barriers.
func (w *worker) serve(wishes []*wish) {
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
	if err == nil {
		w.see(wishes, granted)
	}
	for _, wish := range wishes {
		switch {
		case granted[wish.e.key]:
		case err != nil:
			w.tell(wish, verdict{err: err})
		default:
			w.tell(wish, verdict{})
		}
	}
	w.elect(wishes, granted)
}

// connect sees to it that there is a session.
func (w *worker) connect() error {
	if w.now != nil && w.now.ctx.Err() == nil {
		return nil
	}
	w.now = nil
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
		if wish.held {
			granted[wish.e.key] = true
		} else {
			keys = append(keys, strconv.FormatInt(wish.e.key, 10))
		}
	}
	if len(keys) == 0 {
		return granted, nil
	}
	rows, err := do(context.Background(), w.now, func(ctx context.Context, q *db.Queries) ([]db.TryLocksRow, error) {
		return q.TryLocks(ctx, encode(keys))
	})
	if sqlState(err) == "53200" {
		err = because(ErrLockTableFull, err)
	}
	if err != nil {
		return granted, fmt.Errorf("elector: try %d locks: %w", len(keys), err)
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

// see tells those that want to know who leads instead of them.
func (w *worker) see(wishes []*wish, granted map[int64]bool) {
	curious := map[int64]*wish{}
	var keys []string
	for _, wish := range wishes {
		if !granted[wish.e.key] && wish.e.announcer.seesLeader {
			curious[wish.e.key] = wish
			keys = append(keys, strconv.FormatInt(wish.e.key, 10))
		}
	}
	if len(keys) == 0 {
		return
	}
	leaders, err := do(context.Background(), w.now, func(ctx context.Context, q *db.Queries) ([]db.LeadersRow, error) { return q.Leaders(ctx, encode(keys)) })
	if err != nil {
		return // the next statement on the session tells
	}
	for _, leader := range leaders {
		wish := curious[leader.Key]
		wish.e.saw(wish.ctx, leader.Pid, leader.ApplicationName)
	}
}

// elect passes the barriers of those granted, and gives each its term, or back
// to the queue while a fenced transaction of its last term goes on.
func (w *worker) elect(wishes []*wish, granted map[int64]bool) {
	if len(granted) == 0 {
		return
	}
	tokens, err := w.tokens(granted)
	if err != nil {
		w.now.cancel(because(ErrSessionLost, err))
	}
	for _, wish := range wishes {
		if !granted[wish.e.key] {
			continue
		}
		token, passed := tokens[wish.e.key]
		switch {
		case err != nil:
			w.tell(wish, verdict{err: err})
		case passed:
			w.tell(wish, verdict{session: w.now, token: token})
		default:
			if err := endOverdue(context.Background(), w.now, wish.e.key); err != nil {
				w.report(wish.ctx, hooks.Failure{Op: hooks.OpCampaign, Err: err})
			}
			wish.held = true
			w.requeue(wish)
		}
	}
}

// tokens are those of the elections whose barrier is passed.
func (w *worker) tokens(granted map[int64]bool) (map[int64]int64, error) {
	var guards []barrier
	for key := range granted {
		high, low := guard(key)
		guards = append(guards, barrier{Key: key, High: high, Low: low})
	}
	rows, err := do(context.Background(), w.now, func(ctx context.Context, q *db.Queries) ([]db.TokensRow, error) { return q.Tokens(ctx, encode(guards)) })
	if err != nil {
		return nil, fmt.Errorf("elector: pass the barriers and read the tokens: %w", err)
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
	select {
	case wish.answer <- v:
		return
	case <-wish.ctx.Done():
	}
	if v.session == nil && !wish.held {
		return
	}
	released, err := do(context.Background(), w.now, func(ctx context.Context, q *db.Queries) (bool, error) { return q.Unlock(ctx, wish.e.key) })
	if err == nil && !released {
		err = errors.New("the session did not hold the lock")
	}
	if err != nil {
		err = because(ErrSessionLost, fmt.Errorf("unlock %q, whose campaign was cancelled: %w", wish.e.election, err))
		w.now.cancel(err)
		w.report(wish.ctx, hooks.Failure{Op: hooks.OpRelease, Err: err})
	}
}

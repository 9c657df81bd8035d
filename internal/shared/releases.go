package shared

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/session"
)

// releases are the locks of one shared session that are to be released. All that come while
// the session is busy go in one statement.
type releases struct {
	mu      sync.Mutex
	waiting map[int64]chan struct{} // by key; closed when the server has released the lock
}

// Release is lock.Unlock for one lock.
func (b *releases) Release(s *session.Session, key int64) error {
	done, first := b.add(key)
	if first {
		all := sync.OnceValue(b.take) // the call may be repeated
		_ = lock.Unlock(s, key, func(q *db.Queries, ctx context.Context) (bool, error) {
			released, err := unlockEach(ctx, q, slices.Sorted(maps.Keys(all())))
			for _, key := range released {
				close(all()[key])
			}
			return len(released) == len(all()), err
		})
	}
	if gate.Await(s.Context(), done) {
		return nil
	}
	return s.Lose(context.Cause(s.Context()))
}

func (b *releases) add(key int64) (done chan struct{}, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if first = b.waiting == nil; first {
		b.waiting = map[int64]chan struct{}{}
	}
	done = make(chan struct{})
	b.waiting[key] = done
	return done, first
}

func (b *releases) take() map[int64]chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.waiting
	b.waiting = nil
	return all
}

func unlockKeys(s *session.Session, keys ...int64) error {
	return lock.Unlock(s, keys[0], func(q *db.Queries, ctx context.Context) (bool, error) {
		released, err := unlockEach(ctx, q, keys)
		return len(released) == len(keys), err
	})
}

// unlockEach returns the keys of the locks that the session held, and has released.
func unlockEach(ctx context.Context, q *db.Queries, keys []int64) (released []int64, err error) {
	if len(keys) == 1 {
		held, err := q.Unlock(ctx, keys[0])
		if !held {
			return nil, err
		}
		return keys, err
	}
	rows, err := q.UnlockMany(ctx, db.Keys(keys...))
	for _, row := range rows {
		if row.Released && slices.Contains(keys, row.Key) {
			released = append(released, row.Key)
		}
	}
	return released, err
}

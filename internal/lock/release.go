package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/session"
)

// A release is one lock to be released.
type release struct {
	key  int64
	done chan struct{} // closed when the server has released it
}

func newRelease(key int64) *release { return &release{key: key, done: make(chan struct{})} }

// releases are those of one shared session. All that come while the session is busy go in
// one statement.
type releases struct {
	mu      sync.Mutex
	waiting []*release
}

// release is unlock for one lock.
func (b *releases) release(s *session.Session, key int64) error {
	r := newRelease(key)
	b.mu.Lock()
	b.waiting = append(b.waiting, r)
	first := len(b.waiting) == 1
	b.mu.Unlock()
	if first {
		all := sync.OnceValue(b.take) // the call may be repeated
		_ = unlock(s, func(ctx context.Context, q *db.Queries) (bool, error) { return unlockAll(ctx, q, all()) })
	}
	select {
	case <-r.done:
		return nil
	case <-s.Context().Done():
	}
	select {
	case <-r.done:
		return nil
	default:
		return s.Lose(context.Cause(s.Context()))
	}
}

func (b *releases) take() []*release {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.waiting
	b.waiting = nil
	return all
}

// unhurried is how long a new leader has its session to itself.
const unhurried = 100 * time.Millisecond

// prepareRelease prepares the release of a lock for which a deputy will wait in the server.
// Unprepared, it takes one round trip more. Measured: a hand-over then takes 1.9 ms, not 1.6.
func prepareRelease(s *session.Session) {
	if backoff.Sleep(s.Context(), unhurried) {
		_ = s.Prepare(s.Context(), db.Unlock) // if that fails, so does a heartbeat
	}
}

// unlock releases one or more locks of the session. It waits as long as the session is
// valid. It returns nil only if the session held them; otherwise the session is lost.
func unlock(s *session.Session, call func(context.Context, *db.Queries) (held bool, err error)) error {
	held, err := session.Do(context.Background(), s, call)
	if err == nil && !held {
		err = errors.New("the session did not hold the lock")
	}
	if err != nil {
		return s.Lose(fmt.Errorf("unlock: %w", err))
	}
	return nil
}

func unlockKeys(s *session.Session, keys ...int64) error {
	var all []*release
	for _, key := range keys {
		all = append(all, newRelease(key))
	}
	return unlock(s, func(ctx context.Context, q *db.Queries) (bool, error) { return unlockAll(ctx, q, all) })
}

func unlockAll(ctx context.Context, q *db.Queries, all []*release) (held bool, err error) {
	if len(all) == 1 {
		if held, err = q.Unlock(ctx, all[0].key); held {
			close(all[0].done)
		}
		return held, err
	}
	waiting := map[int64]*release{}
	for _, r := range all {
		waiting[r.key] = r
	}
	rows, err := q.UnlockMany(ctx, db.Keys(slices.Sorted(maps.Keys(waiting))...))
	if err != nil {
		return false, err
	}
	for _, row := range rows {
		if r := waiting[row.Key]; r != nil && row.Released {
			close(r.done)
			delete(waiting, row.Key)
		}
	}
	return len(waiting) == 0, nil
}

package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/db"
)

// Verify asks the server whether the session still holds the lock, and returns
// nil if so. If ctx ends first, it returns the cause, and nothing is known;
// otherwise the session was lost, and the error wraps ErrSessionLost.
func (s *Session) Verify(ctx context.Context, key int64) error {
	held, err := s.holds(ctx, key)
	switch {
	case held:
		return nil
	case err != nil && ctx.Err() != nil:
		return err
	case err == nil:
		err = fmt.Errorf("backend %d does not hold the lock", s.pid)
	}
	return s.lose(err)
}

// holds asks pg_locks whether the session holds the lock.
func (s *Session) holds(ctx context.Context, key int64) (bool, error) {
	row, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (db.HoldsLockRow, error) { return q.HoldsLock(ctx, key) })
	if err == nil && row.Pid != s.pid {
		err = fmt.Errorf("%w: backend %d was asked for the lock, then %d answered", ErrSessionPooled, s.pid, row.Pid)
	}
	return err == nil && row.Held, err
}

// Unlock releases the lock. It returns nil only if the lock is known to be free;
// otherwise the session was lost, and the error wraps ErrSessionLost. It waits as
// long as the session is valid.
func (s *Session) Unlock(key int64) error {
	return s.unlock(func(ctx context.Context, q *db.Queries) (bool, error) { return q.Unlock(ctx, key) })
}

// UnlockAndNotify is Unlock, and tells those who listen on the channel, in the same
// round trip.
func (s *Session) UnlockAndNotify(key int64, channel, payload string) error {
	return s.unlock(func(ctx context.Context, q *db.Queries) (bool, error) {
		return q.UnlockAndNotify(ctx, db.UnlockAndNotifyParams{Key: key, Channel: channel, Payload: payload})
	})
}

func (s *Session) unlock(call func(context.Context, *db.Queries) (bool, error)) error {
	released, err := do(context.Background(), s, call)
	if err == nil && !released {
		err = errors.New("the session did not hold the lock")
	}
	if err != nil {
		return s.lose(fmt.Errorf("unlock: %w", err))
	}
	return nil
}

// Notify tells those who listen on the channel. If ctx ends first, it may or may not
// have told them.
func (s *Session) Notify(ctx context.Context, channel, payload string) error {
	_, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (bool, error) {
		return q.Notify(ctx, db.NotifyParams{Channel: channel, Payload: payload})
	})
	return err
}

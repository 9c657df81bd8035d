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
	row, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (db.HoldsLockRow, error) { return q.HoldsLock(ctx, key) })
	switch {
	case err == nil && row.Held && row.Pid == s.pid:
		return nil
	case err != nil && ctx.Err() != nil:
		return err
	case err == nil:
		err = fmt.Errorf("backend %d does not hold the lock", row.Pid)
	}
	return s.lose(err)
}

// Unlock releases the lock. It returns nil only if the lock is known to be free;
// otherwise the session was lost, and the error wraps ErrSessionLost. It waits as
// long as the session is valid.
func (s *Session) Unlock(key int64) error {
	released, err := do(context.Background(), s, func(ctx context.Context, q *db.Queries) (bool, error) { return q.Unlock(ctx, key) })
	if err == nil && !released {
		err = errors.New("the session did not hold the lock")
	}
	if err != nil {
		return s.lose(fmt.Errorf("unlock: %w", err))
	}
	return nil
}

package status

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// ErrPrivilege is wrapped by the error of an eviction that the server refuses.
var ErrPrivilege = errors.New("the role lacks the privilege")

// ErrChanged is returned when the leader to evict leads no more.
var ErrChanged = errors.New("it leads no more")

const goneEvery = 20 * time.Millisecond // between two looks whether a backend has ended

// Evict ends the backend of that leader, if it still holds the election's lock,
// and returns when it does not hold it any more.
func Evict(ctx context.Context, pool *sql.DB, e Election) error {
	signalled, err := db.New(pool).EvictHolder(ctx, db.EvictHolderParams{Pid: e.Leader.PID, Key: e.Key})
	switch {
	case pgerr.State(err) == "42501":
		return fmt.Errorf("%w to end a backend of user %q: it takes that user itself, a member of pg_signal_backend "+
			"(GRANT pg_signal_backend TO …), or, if %[2]q is a superuser, a superuser: %w", ErrPrivilege, e.Leader.User, err)
	case err != nil:
		return err
	case len(signalled) == 0:
		return fmt.Errorf("%s (backend %d): %w", orDash(e.Leader.ID), e.Leader.PID, ErrChanged)
	}
	for {
		held, err := holds(ctx, pool, e)
		if err != nil || !held {
			return err
		}
		select {
		case <-time.After(goneEvery):
		case <-ctx.Done():
			return fmt.Errorf("backend %d was told to end, but still holds the lock: %w", e.Leader.PID, context.Cause(ctx))
		}
	}
}

// holds reports whether that backend holds the lock.
func holds(ctx context.Context, pool *sql.DB, e Election) (bool, error) {
	holder, err := db.New(pool).Holder(ctx, e.Key)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return holder.Pid == e.Leader.PID, err
}

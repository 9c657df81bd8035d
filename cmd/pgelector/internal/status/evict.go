package status

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
)

// ErrPrivilege is returned if the server refuses an eviction.
var ErrPrivilege = errors.New("the role lacks the privilege")

// ErrChanged is returned if the leader to evict no longer leads.
var ErrChanged = errors.New("no longer leads")

const goneEvery = 20 * time.Millisecond // between two checks for the end of a backend

// Evict ends the leader's backend if it still holds the election's lock, and waits until the
// backend has released it.
func Evict(ctx context.Context, pool *sql.DB, e Election) error {
	signalled, err := pooled.Ask(ctx, pool, func(q db.DBTX) ([]bool, error) {
		return db.New(q).EvictHolder(ctx, db.EvictHolderParams{Pid: e.Leader.PID, Key: e.Key})
	})
	switch {
	case pgerr.State(err) == "42501":
		return fmt.Errorf("%w to end a backend of user %q: connect as that user, or GRANT pg_signal_backend; "+
			"if %[2]q is a superuser, connect as a superuser: %w", ErrPrivilege, e.Leader.User, err)
	case err != nil:
		return err
	case len(signalled) == 0:
		return fmt.Errorf("%s (backend %d) %w", orDash(e.Leader.ID), e.Leader.PID, ErrChanged)
	}
	for {
		held, err := holds(ctx, pool, e)
		if err != nil || !held {
			return err
		}
		select {
		case <-time.After(goneEvery):
		case <-ctx.Done():
			return fmt.Errorf("backend %d was terminated but still holds the lock: %w", e.Leader.PID, context.Cause(ctx))
		}
	}
}

// holds reports whether the leader still holds the lock.
func holds(ctx context.Context, pool *sql.DB, e Election) (bool, error) {
	holder, err := pooled.Ask(ctx, pool, func(q db.DBTX) (db.HolderRow, error) { return db.New(q).Holder(ctx, e.Key) })
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return holder.Pid == e.Leader.PID, err
}

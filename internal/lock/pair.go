package lock

import (
	"context"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/session"
)

// Locks of two integers, the halves of a key, stand beside the election's lock. They decide nothing.

// HoldPair takes a lock of two integers of this session's own. It returns taken if another has it.
func HoldPair(s *session.Session, key int64, taken error) error {
	granted, err := TryPair(s, key)
	if err == nil && !granted {
		err = taken
	}
	return err
}

// TryPair tries a lock of two integers. An error does not end the session's transaction.
func TryPair(s *session.Session, key int64) (granted bool, err error) {
	return TryPairBy(s.Context(), s, s.Trial(), key)
}

// TryPairBy is TryPair by another caller of the session.
func TryPairBy(ctx context.Context, s *session.Session, by session.Caller, key int64) (granted bool, err error) {
	return session.Do(ctx, by, func(ctx context.Context, q *db.Queries) (bool, error) { return ownerOf(s).TryPair(ctx, q, key, false) })
}

// TryForNow tries a lock of two integers, which LetGo releases. drop is called if ctx ends first and
// the lock is granted later. In transaction scope there can be one such lock at a time.
func TryForNow(ctx context.Context, s *session.Session, key int64, drop func()) (granted bool, err error) {
	return session.DoOr(ctx, s.Trial(), func(ctx context.Context, q *db.Queries) (bool, error) { return ownerOf(s).TryPair(ctx, q, key, true) },
		func(late bool) {
			if late {
				drop()
			}
		})
}

// LetGo releases the lock of TryForNow. It is called within Do, and reports whether the session had the
// lock until then.
func LetGo(ctx context.Context, s *session.Session, q *db.Queries, key int64) (held bool, err error) {
	return ownerOf(s).LetGo(ctx, q, key)
}

// PairIsFree reports whether nobody holds a lock of two integers exclusively.
func PairIsFree(ctx context.Context, s *session.Session, key int64) (bool, error) {
	high, low := lockkey.Halves(key)
	row, err := session.Ask(ctx, s, (*db.Queries).PairIsFree, db.PairIsFreeParams{High: high, Low: low})
	return row.Free, err
}

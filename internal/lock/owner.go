package lock

import (
	"context"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/session"
)

// An Owner of a session's locks (session.Owner) says by which statements they are taken and released, if
// those are not the ones of session scope. Unlock, TryPair and LetGo are called within Do.
type Owner interface {
	// Try makes an attempt.
	Try(ctx context.Context, p db.TryLockParams) (db.TryLockRow, error)

	// TryAgain tries the lock by the smallest statement.
	TryAgain(ctx context.Context, key int64) (db.TryAsDeputyRow, error)

	// Unlock releases the lock. It reports whether the session held it.
	Unlock(ctx context.Context, q *db.Queries, key int64) (held bool, err error)

	// TryPair tries a lock of two integers; forNow says that LetGo will release it.
	TryPair(ctx context.Context, q *db.Queries, key int64, forNow bool) (granted bool, err error)
	LetGo(ctx context.Context, q *db.Queries, key int64) (held bool, err error)
}

// ownerOf is the owner of the session's locks.
func ownerOf(s *session.Session) Owner {
	if o, ok := s.Owner().(Owner); ok {
		return o
	}
	return connection{s}
}

// A connection owns the locks in session scope.
type connection struct{ s *session.Session }

func (c connection) Try(ctx context.Context, p db.TryLockParams) (db.TryLockRow, error) {
	return session.Ask(ctx, c.s, (*db.Queries).TryLock, p)
}

func (c connection) TryAgain(ctx context.Context, key int64) (db.TryAsDeputyRow, error) {
	return session.Ask(ctx, c.s, (*db.Queries).TryAsDeputy, key)
}

func (connection) Unlock(ctx context.Context, q *db.Queries, key int64) (held bool, err error) {
	return q.Unlock(ctx, key)
}

func (connection) TryPair(ctx context.Context, q *db.Queries, key int64, _ bool) (granted bool, err error) {
	high, low := lockkey.Halves(key)
	return q.TryPair(ctx, db.TryPairParams{High: high, Low: low})
}

func (connection) LetGo(ctx context.Context, q *db.Queries, key int64) (held bool, err error) {
	high, low := lockkey.Halves(key)
	return q.UnlockPair(ctx, db.UnlockPairParams{High: high, Low: low})
}

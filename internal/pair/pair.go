// Package pair is advisory locks of two integers, the halves of a key. Parts hold them beside the lock of
// an election, and by them sessions know each other. They elect nobody.
package pair

import (
	"context"
	"errors"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/session"
)

// ErrNameTaken is returned when a session cannot take a lock by which others know it.
var ErrNameTaken = errors.New("elector: another session holds the lock by which this one is known: does a stranger use this database?")

// An Owner of a session's locks (session.Owner) says how those of two integers are taken and released, if
// not as in session scope. The methods are called within Do.
type Owner interface {
	// TryPair tries a lock; forNow says that LetGo will release it.
	TryPair(ctx context.Context, q *db.Queries, key int64, forNow bool) (granted bool, err error)
	LetGo(ctx context.Context, q *db.Queries, key int64) (held bool, err error)
}

func ownerOf(s *session.Session) Owner {
	if o, ok := s.Owner().(Owner); ok {
		return o
	}
	return connection{}
}

// A connection owns the locks in session scope.
type connection struct{}

func (connection) TryPair(ctx context.Context, q *db.Queries, key int64, _ bool) (granted bool, err error) {
	high, low := lockkey.Halves(key)
	return q.TryPair(ctx, db.TryPairParams{High: high, Low: low})
}

func (connection) LetGo(ctx context.Context, q *db.Queries, key int64) (held bool, err error) {
	high, low := lockkey.Halves(key)
	return q.UnlockPair(ctx, db.UnlockPairParams{High: high, Low: low})
}

// Hold takes a lock of this session's own. It returns taken if another has it.
func Hold(s *session.Session, key int64, taken error) error {
	granted, err := Try(s, key)
	if err == nil && !granted {
		err = taken
	}
	return err
}

// Try tries the lock. An error does not end the session's transaction.
func Try(s *session.Session, key int64) (granted bool, err error) {
	return TryBy(s.Context(), s, s.Trial(), key)
}

// TryBy is Try by another caller of the session.
func TryBy(ctx context.Context, s *session.Session, by session.Caller, key int64) (granted bool, err error) {
	return session.Do(ctx, by, func(q *db.Queries, ctx context.Context) (bool, error) { return ownerOf(s).TryPair(ctx, q, key, false) })
}

// TryForNow tries a lock that LetGo releases. drop is called if ctx ends first and
// the lock is granted later. In transaction scope there can be one such lock at a time.
func TryForNow(ctx context.Context, s *session.Session, key int64, drop func()) (granted bool, err error) {
	return session.DoOr(ctx, s.Trial(), func(q *db.Queries, ctx context.Context) (bool, error) { return ownerOf(s).TryPair(ctx, q, key, true) },
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

// IsFree reports whether nobody holds the lock exclusively.
func IsFree(ctx context.Context, by session.Caller, key int64) (bool, error) {
	high, low := lockkey.Halves(key)
	row, err := session.Ask(ctx, by, (*db.Queries).PairIsFree, db.PairIsFreeParams{High: high, Low: low})
	return row.Free, err
}

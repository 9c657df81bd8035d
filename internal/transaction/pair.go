package transaction

import (
	"context"
	"errors"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pin"
)

// Locks of two integers, the halves of a key, in either scope. Parts hold them beside the lock of an election, and by them
// sessions know each other. They elect nobody.

// ErrNameTaken is returned when a session cannot take a lock by which others know it.
var ErrNameTaken = errors.New("elector: another session holds the lock by which this one is known: does a stranger use this database?")

// HoldPair takes a lock of this session's own. It returns taken if another has it.
func HoldPair(ctx context.Context, s *election.Session, key int64, taken error) error {
	granted, err := TryPair(ctx, s, key)
	if err == nil && !granted {
		err = taken
	}
	return err
}

// TryPair tries a lock that the session keeps.
func TryPair(ctx context.Context, s *election.Session, key int64) (granted bool, err error) {
	return tryPair(ctx, s, key, false, func() {})
}

// TryPairForNow tries a lock that LetGo releases. drop is called if ctx ends first and the lock is granted later. In
// transaction scope there can be one such lock at a time.
func TryPairForNow(ctx context.Context, s *election.Session, key int64, drop func()) (granted bool, err error) {
	return tryPair(ctx, s, key, true, drop)
}

func tryPair(ctx context.Context, s *election.Session, key int64, forNow bool, drop func()) (granted bool, err error) {
	high, low := lockkey.Halves(key)
	t := Of(s)
	return election.AskOr(ctx, s, func(q *db.Queries, ctx context.Context) (granted bool, err error) {
		if t == nil {
			return q.TryPair(ctx, db.TryPairParams{High: high, Low: low})
		}
		if !t.forNow { // only ROLLBACK TO can release such a lock, with all that were taken after it: so there is one at a time
			granted, err = q.TryPair(ctx, db.TryPairParams{Inside: true, High: high, Low: low})
			t.forNow = granted && forNow
		}
		return granted, err
	}, func(late bool) {
		if late {
			drop()
		}
	})
}

// LetGo releases the lock of TryPairForNow.
func LetGo(ctx context.Context, s *election.Session, key int64) error {
	high, low := lockkey.Halves(key)
	held, err := election.Ask(context.WithValue(ctx, lettingGo{}, true), s, (*db.Queries).UnlockPair, db.UnlockPairParams{High: high, Low: low})
	if t := Of(s); t == nil && err == nil && !held {
		err = errors.New("elector: the session did not hold the lock")
	}
	return err
}

// letGo rolls back to the savepoint.
func (t *Statements) letGo(ctx context.Context, c *pin.Conn) error {
	if !t.forNow {
		return nil
	}
	t.forNow = false
	err := c.Exec(ctx, db.RollBackToIt)
	if err == nil {
		err = c.Exec(ctx, db.ReleaseIt)
	}
	return err
}

// PairIsFree reports whether nobody holds the lock exclusively.
func PairIsFree(ctx context.Context, s *election.Session, key int64) (bool, error) {
	high, low := lockkey.Halves(key)
	row, err := election.Ask(ctx, s, (*db.Queries).PairIsFree, db.PairIsFreeParams{High: high, Low: low})
	return row.Free, err
}

package session

import (
	"context"
	"fmt"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
)

// A Call is a lock that a leader holds so that one candidate, its heir, comes into the
// queue for the election's lock. The candidate hears of it in its own attempts
// ([Server.Try], [Session.TryLocks]).
type Call struct {
	session *Session
	key     int64 // of the election
	heir    string
	lock    int64 // the call's own key
	made    bool
}

// Call calls no one yet.
func (s *Session) Call(key int64, heir string) *Call {
	return &Call{session: s, key: key, heir: heir}
}

// Make takes the lock, and reports whether it has: not while the candidate is just
// looking for it. If ctx ends while the statement is under way, what it takes is released
// when it is answered.
func (c *Call) Make(ctx context.Context) (made bool, err error) {
	row, err := backoff.AwaitOr(ctx, func(context.Context) (db.CallHeirRow, error) {
		return do(context.Background(), c.session, func(ctx context.Context, q *db.Queries) (db.CallHeirRow, error) {
			return q.CallHeir(ctx, db.CallHeirParams{Candidate: c.heir, Key: c.key})
		})
	}, func(late db.CallHeirRow) {
		if late.Called {
			_ = c.session.Unlock(late.CallKey)
		}
	})
	if err != nil {
		return false, fmt.Errorf("elector: call the heir: %w", explain(err))
	}
	c.lock, c.made = row.CallKey, row.Called
	return c.made, nil
}

// ClearTheWay reports whether the heir is the first in the queue. If others are
// before it, they are sent to its end.
func (c *Call) ClearTheWay(ctx context.Context) (first bool, err error) {
	row, err := do(ctx, c.session, func(ctx context.Context, q *db.Queries) (db.ClearTheWayRow, error) {
		return q.ClearTheWay(ctx, db.ClearTheWayParams{Key: c.key, Candidate: c.heir})
	})
	if err != nil {
		return false, fmt.Errorf("elector: look for the heir: %w", explain(err))
	}
	return row.Place == 1, nil
}

// Unlock releases the election's lock if the heir is the first in the queue; if it is
// not, those before it are sent to its end. inherited is whether the heir holds the lock
// then. It waits as long as the session is valid.
func (c *Call) Unlock() (released, inherited bool, err error) {
	row, err := do(context.Background(), c.session, func(ctx context.Context, q *db.Queries) (db.UnlockForRow, error) {
		return q.UnlockFor(ctx, db.UnlockForParams{Key: c.key, Candidate: c.heir})
	})
	return row.Released, row.Inherited, err
}

// End releases the call's lock, if the session lives on. It waits for that a second at
// the most.
func (c *Call) End() {
	if !c.made {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	_, _ = backoff.Await(ctx, func(context.Context) (struct{}, error) { return struct{}{}, c.session.Unlock(c.lock) })
}

// IsCalled asks whether the candidate whose session waits is still called.
func (p *Parked) IsCalled(ctx context.Context) (called bool, err error) {
	called, err = do(ctx, p.s, func(ctx context.Context, q *db.Queries) (bool, error) { return q.IsCalled(ctx, p.key) })
	if err != nil {
		p.server.Invalidate()
		return false, fmt.Errorf("elector: ask whether the leader still calls: %w", explain(err))
	}
	return called, nil
}

package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
)

// Fence makes the transaction, on any connection of the same database, one that the next
// holder of the lock waits for, and bounds how long that can take. After an error the
// transaction must be rolled back. The error wraps ErrNotLeader if the session does not
// hold the lock any more, or the next leader already waits, and ErrSessionHidden if the
// role may not see the session.
func (l *Lock) Fence(ctx context.Context, tx *session.Tx) error {
	began, err := l.Began(ctx)
	switch {
	case err != nil && ctx.Err() != nil: // and nothing is known
		return err
	case err != nil:
		return fmt.Errorf("%w: ask the session when it began: %w", session.ErrNotLeader, l.Lose(err))
	}
	high, low := session.Halves(l.key)
	term := db.EnterTermParams{
		GuardHigh: high, GuardLow: low, Key: l.key, Pid: l.PID(), Started: began, Transaction: l.transaction, Settings: l.Lease().FenceSettings(),
	}
	outcome, err := backoff.Await(ctx, func(ctx context.Context) (string, error) { return db.New(tx.Tx).EnterTerm(ctx, term) })
	if err != nil {
		tx.Suspect(ctx, err)
		return fmt.Errorf("elector: enter the term: %w", err)
	}
	switch outcome {
	case "entered":
		return nil
	case "hidden":
		return ErrSessionHidden
	}
	return l.refuse(ctx, tx, outcome)
}

// refuse is why the transaction could not enter its term. It rolls back before it asks the
// session, which may take its time: the next leader waits for the transaction.
func (l *Lock) refuse(ctx context.Context, tx *session.Tx, outcome string) error {
	var reached db.IdentifyRow
	unknown := errors.New("the next leader has the lock")
	if outcome != "superseded" {
		reached, unknown = backoff.Await(ctx, db.New(tx.Tx).Identify)
	}
	tx.Rollback()
	switch err := l.Verify(ctx); {
	case errors.Is(err, session.ErrSessionLost):
		return pgerr.Wrap(session.ErrNotLeader, err)
	case err != nil:
		return err
	case outcome == "superseded":
		return fmt.Errorf("%w: a next leader waits for the last transactions of this term", session.ErrNotLeader)
	case unknown == nil:
		return l.Elsewhere(ctx, reached)
	}
	return fmt.Errorf("%w: the session of the term (backend %d) holds its lock, but not on the server and database of this pool", session.ErrNotLeader, l.PID())
}

package fenced

import (
	"context"
	"fmt"
	"slices"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/pooled"
)

// Finish commits if fn has not failed, and the context of the transaction has not ended: cancelled says so. It
// returns nil, or an error that wraps one of two. ErrRolledBack needs a proof: fn may have ended the transaction,
// by SQL that nobody but the server sees. Without a proof it is ErrOutcomeUnknown, also if COMMIT has no answer in time.
func (tx *Tx) Finish(cancelled bool, failed error) error {
	tx.ended = true
	ctx, cancel := tx.term.answerTime()
	defer cancel()
	fate, why := unknown, error(nil)
	if !cancelled { // or database/sql has rolled back, unless there was nothing left to roll back
		fate, why = tx.find(ctx)
	}
	if fate == open && failed == nil {
		return tx.commit(ctx)
	}
	if why == nil { // else it has ended
		tx.rollBack(ctx)
	}
	if fate == unknown {
		fate, why = tx.ask(ctx, why)
	}
	return tx.verdict(ctx, fate, failed, why)
}

func (tx *Tx) commit(ctx context.Context) error {
	outcome, late := backoff.Await(ctx, func(ctx context.Context) (error, error) {
		defer tx.end()
		return tx.outcome(ctx, tx.Tx.Commit()), nil
	})
	if late != nil {
		return fmt.Errorf("%w: COMMIT was not answered: %w", pgerr.ErrOutcomeUnknown, late)
	}
	return outcome
}

// outcome is what a driver's answer to COMMIT means. The connection shows whether the server
// rolled back and goes on, or went down with the COMMIT half written: drivers do not
// distinguish an ERROR from a PANIC. An error without a SQLSTATE, on a connection that goes
// on, means that the server has answered ROLLBACK: a statement had failed, and fn has not
// returned the error. 40003 says that nobody knows.
func (tx *Tx) outcome(ctx context.Context, err error) error {
	switch state := pgerr.State(err); {
	case err == nil:
		return nil
	case pgerr.Broken(err) || state == "40003" || !meansRollback(state) && !tx.serverAnswers(ctx):
		tx.term.suspect(tx.pool)
		return pgerr.Wrap(pgerr.ErrOutcomeUnknown, err)
	}
	return pgerr.Wrap(pgerr.ErrRolledBack, err) // the server says so
}

func (tx *Tx) serverAnswers(ctx context.Context) bool {
	return pin.AfterTx(func() error { return pooled.Answers(ctx, tx.conn) }) == nil
}

// meansRollback reports whether a SQLSTATE says that a COMMIT was rolled back, whatever
// becomes of the connection: a violated constraint (23), a transaction that has no time left
// (25), and one in the way of others (40). PostgreSQL manual, appendix A.
func meansRollback(state string) bool {
	return len(state) == 5 && slices.Contains([]string{"23", "25", "40"}, state[:2])
}

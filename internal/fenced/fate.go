package fenced

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/transaction"
)

// A fate is what is known of a transaction when its function has returned.
type fate int

const (
	unknown    fate = iota
	open            // it is the one that was fenced, and goes on
	endedByFn       // it is another one, or the one that was fenced is committed
	rolledBack      // the one that was fenced is rolled back
)

// find asks within the transaction whether it is the one that was fenced. Nobody knows that if the transaction has
// failed: it may be a later one. Nor if the connection is broken, silent, or busy with rows that fn has not closed.
// After an error the transaction is ended, or left to itself.
func (tx *Tx) find(ctx context.Context) (fate, error) {
	bounded, cancel := atMost(ctx)
	defer cancel()
	var name string
	answered, err := backoff.Answer(bounded, func() (err error) {
		if name, err = db.New(tx.Tx).FencedTransaction(bounded); err != nil {
			tx.end()
		}
		return err
	}, tx.end)
	switch {
	case !answered || bounded.Err() != nil && err != nil:
		tx.term.suspect(tx.pool)
		return unknown, context.Cause(bounded)
	case errors.Is(err, sql.ErrTxDone):
		return endedByFn, err
	case err != nil:
		tx.Suspect(ctx, err)
		return unknown, err
	case name != tx.name:
		return endedByFn, nil
	}
	return open, nil
}

// errInProgress is returned when the server was told to roll a transaction back, or to prepare it, and it has not ended yet.
var errInProgress = errors.New("elector: the server has not ended the transaction yet")

// ask asks the server, elsewhere than in the transaction, what has become of the transaction, until that is final.
// before is why the transaction could not be asked.
func (tx *Tx) ask(ctx context.Context, before error) (fate, error) {
	if tx.term.Lock.Session().DrainLeft() <= 0 { // as after a freeze: the work is late already, and a short question tells it more
		short := tx.term.grace()
		late, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), short, silent{short})
		defer cancel()
		ctx = late
	}
	ctx, cancel := atMost(ctx)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		switch outcome, err := tx.askOnce(ctx); {
		case err != nil:
			return unknown, err
		case outcome == "aborted":
			return rolledBack, before
		case outcome == "committed":
			return endedByFn, before
		case outcome != "in progress":
			return unknown, errors.New("elector: the server has been replaced or restarted since")
		}
		if !backoff.Sleep(ctx, pause) {
			return unknown, errInProgress
		}
	}
}

// askOnce asks the session of the term, or the pool if the session has ended. Each answer comes from the server of the
// transaction, or is empty.
func (tx *Tx) askOnce(ctx context.Context) (outcome string, err error) {
	if s := tx.term.Lock.Session(); s.Context().Err() == nil {
		if outcome, err = transaction.Beside(ctx, s, (*db.Queries).FencedOutcome, tx.name); err == nil || ctx.Err() != nil {
			return outcome, err
		}
	}
	return pooled.Look(ctx, tx.pool, longestOwn, (*db.Queries).FencedOutcome, tx.name)
}

// verdict is the error for a transaction that was not committed here.
func (tx *Tx) verdict(ctx context.Context, f fate, failed, why error) error {
	switch {
	case f == endedByFn:
		return NamePrepared(ctx, tx.term.Lock, tx.pool, join(pgerr.ErrEndedByFn, failed, why))
	case f == unknown:
		err := join(fmt.Errorf("%w: nobody can tell whether fn has ended it", pgerr.ErrOutcomeUnknown), failed, why)
		if errors.Is(why, errInProgress) {
			err = NamePrepared(ctx, tx.term.Lock, tx.pool, err)
		}
		return err
	case failed == nil && why != nil:
		return fmt.Errorf("%w: ask before COMMIT whether the transaction goes on (have fn return the error of a statement, and close its rows): %w", pgerr.ErrRolledBack, why)
	case failed == nil:
		return pgerr.ErrRolledBack
	}
	return pgerr.Wrap(pgerr.ErrRolledBack, failed)
}

// join wraps the errors that are not nil.
func join(err error, more ...error) error {
	for _, m := range more {
		if m != nil {
			err = fmt.Errorf("%w: %w", err, m)
		}
	}
	return err
}

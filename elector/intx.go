package elector

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/internal/pgerr"
)

// InTx runs fn in a transaction that commits only inside the term: the database
// itself makes the next leader wait until the transaction has ended, and lets no
// later transaction of this term begin. It costs the transaction one round trip,
// and the first of a term one more.
//
// pool may be any pool of the election's database, also through a transaction
// pooler, of the elector's own role or one with pg_read_all_stats. opts may be
// nil; any isolation level will do. The transaction's context ends with ctx and
// with the term. fn must not commit or roll back itself. The transaction has one
// lease to finish: statement_timeout, idle_in_transaction_session_timeout and,
// from PostgreSQL 17 on, transaction_timeout are set to that within it unless
// they are shorter already; and a next leader that has waited for it in vain has
// the server end it (pg_terminate_backend) once it is older than a lease. So a
// frozen leader holds up the next one for two leases at most, if all candidates
// have the same.
//
// InTx returns nil if the transaction was committed. Otherwise the error wraps
//   - ErrRolledBack: nothing was committed. It also wraps what fn returned or the
//     driver's error, and ErrNotLeader and the cause if the term has ended.
//   - ErrOutcomeUnknown: the connection was lost during COMMIT, or no answer came
//     within one lease; once the session has ended, within half of the drain.
//     Whether it was committed must be read from the data; the next leader can do
//     that safely.
//
// [Retryable] tells whether the same transaction may succeed when tried again. A
// panic of fn rolls the transaction back and goes on.
func (t *Term) InTx(ctx context.Context, pool *sql.DB, opts *sql.TxOptions, fn func(*sql.Tx) error) error {
	if pool == nil || fn == nil {
		return fmt.Errorf("%w: InTx: the pool or the function is nil", ErrConfig)
	}
	if !t.begin() {
		return t.notBegun()
	}
	defer t.work.finish()
	txCtx, uncancelled := t.joined(ctx)
	tx, err := t.lock.Begin(txCtx, pool, opts)
	if err != nil {
		uncancelled()
		return pgerr.Wrap(ErrRolledBack, pgerr.CauseOr(txCtx, err))
	}
	defer tx.Rollback()
	if err := t.lock.Fence(txCtx, tx); err != nil {
		if t.lock.Context().Err() != nil {
			<-t.ctx.Done() // which is told on another goroutine
		}
		uncancelled()
		return pgerr.Wrap(ErrRolledBack, pgerr.CauseOr(txCtx, err))
	}
	if !t.Valid() { // the answer may have been read late
		uncancelled()
		return t.notBegun()
	}
	if err := fn(tx.Tx); err != nil {
		tx.Suspect(txCtx, err)
		uncancelled()
		return pgerr.Wrap(ErrRolledBack, pgerr.CauseOr(txCtx, err))
	}
	if !uncancelled() { // from here on the commit is not cancelled half-way
		return pgerr.Wrap(ErrRolledBack, context.Cause(txCtx))
	}
	return tx.Commit()
}

// notBegun is the error of a transaction for which the term has ended too early.
func (t *Term) notBegun() error {
	return fmt.Errorf("%w: %w: the term has ended: %w", ErrRolledBack, ErrNotLeader, t.whyEnded())
}

// Retryable reports whether err, of InTx, says that the transaction was rolled
// back because others were in its way: a serialization failure (40001) or a
// deadlock (40P01). The same transaction may succeed when tried again.
func Retryable(err error) bool {
	state := pgerr.State(err)
	return errors.Is(err, ErrRolledBack) && !errors.Is(err, ErrNotLeader) && (state == "40001" || state == "40P01")
}

// joined is a context that ends with ctx and with the term, for then its work is
// not the leader's, until uncancelled is called, which reports whether it had not
// ended before.
func (t *Term) joined(ctx context.Context) (joined context.Context, uncancelled func() bool) {
	joined, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stopCaller := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	cancelByTerm := func() { cancel(pgerr.Wrap(ErrNotLeader, context.Cause(t.ctx))) }
	stopTerm := context.AfterFunc(t.ctx, cancelByTerm)
	return joined, func() bool {
		stopCaller()
		stopTerm()
		switch { // one that has just ended may not have told yet
		case ctx.Err() != nil:
			cancel(context.Cause(ctx))
		case t.ctx.Err() != nil:
			cancelByTerm()
		}
		return joined.Err() == nil
	}
}

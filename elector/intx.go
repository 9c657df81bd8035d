package elector

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/fenced"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// InTx runs fn in a transaction that commits only inside the term: the database
// itself makes the next leader wait until the transaction has ended, and lets no
// later transaction of this term begin. It costs the transaction two round trips,
// and the first of a term one more; and a transaction id, also if it only reads.
//
// pool may be any pool of the election's database, also through a transaction
// pooler, and of any role. opts may be nil; any isolation level will do. The transaction's context ends with ctx and
// with the term. fn closes its rows, and must not send COMMIT, ROLLBACK or PREPARE TRANSACTION. The transaction has one
// lease to finish: statement_timeout, idle_in_transaction_session_timeout and,
// from PostgreSQL 17 on, transaction_timeout are set to that within it unless
// they are shorter already. A next leader that it blocks terminates it
// (pg_terminate_backend) once it is older than a lease. So a frozen leader holds
// up the next one for about two leases, if all candidates have the same.
//
// InTx gives up a connection on which the transaction has not begun after ten seconds, or after the validity of a term if that
// is shorter, whatever ctx says, and reports it to OnError (hooks.OpCall). It then tries the next connection, once for each that
// was idle. It does the same if a connection is dead, or leads to a standby or to an old primary (then up to three more).
//
// InTx returns nil if the transaction was committed. Otherwise the error wraps one of these, also if the term
// or ctx has ended, and then ErrNotLeader and the cause of the term, or the cause of ctx, too:
//   - ErrRolledBack: nothing of the transaction was committed; the server has said so, or fn was not called. It also
//     wraps what fn returned or the driver's error.
//   - ErrOutcomeUnknown: the connection was lost during COMMIT, or no answer came
//     within one lease, or within half of the drain once the session has ended or the
//     caller of Campaign has to stop.
//     Whether it was committed must be read from the data; the next leader can do
//     that safely. Or fn has ended the transaction: the message names one that it has prepared. Or nobody can tell: if
//     fn's connection is lost, or its context ends, the server is asked elsewhere, and may not answer, or have restarted.
//   - ErrConfig: pool or fn is nil, or pool is one of another database (then ErrRolledBack, too).
//
// If fn has rolled back by itself, what it sent afterwards was outside the transaction, and no error tells of it.
// [Retryable] reports whether the same transaction may succeed when tried again. A panic
// of fn rolls the transaction back and goes on.
func (t *Term) InTx(ctx context.Context, pool *sql.DB, opts *sql.TxOptions, fn func(*sql.Tx) error) error {
	if pool == nil || fn == nil {
		return fmt.Errorf("%w: InTx: the pool or the function is nil", ErrConfig)
	}
	failed := func(err error) error { return pgerr.Wrap(ErrRolledBack, t.because(ctx, "InTx", err)) }
	if ctx.Err() != nil || !t.term.Begin() {
		return failed(nil)
	}
	defer t.term.Finish()
	txCtx, uncancelled := t.joined(ctx)
	defer uncancelled()
	tx, err := t.fenced().Enter(txCtx, pool, opts)
	if err != nil {
		return failed(err)
	}
	defer tx.Rollback()
	if t.endIfOver() != nil { // the answer may have been read late
		return failed(nil)
	}
	if err = fn(tx.Tx); err != nil {
		tx.Suspect(txCtx, err)
	}
	if err = tx.Finish(!uncancelled(), err); err != nil { // from here on no call is cancelled half-way
		err = t.because(ctx, "InTx", err)
	}
	return err
}

// fenced is the term as its transactions know it.
func (t *Term) fenced() fenced.Term {
	f := fenced.Term{Lock: t.lock, Places: t.places, Ended: t.lock.Session().TermContext(), Report: func(err error) {
		a := t.announcer
		a.post(a.failure(t.ctx, hooks.Failure{Op: hooks.OpCall, Err: err})) // not awaited: a hook may be the work
	}}
	if t.byHand { // which has the drain from the end of the term, whatever ended it
		f.Ended = t.ctx
	}
	return f
}

// Retryable reports whether err, of InTx, says that the transaction was rolled
// back because others were in its way: a serialization failure (40001), a
// deadlock (40P01), or a stranger who holds the guard lock of the term. The same
// transaction may succeed when tried again.
func Retryable(err error) bool {
	state := pgerr.State(err)
	return errors.Is(err, ErrRolledBack) && !errors.Is(err, ErrNotLeader) &&
		(state == "40001" || state == "40P01" || errors.Is(err, fenced.ErrGuardTaken))
}

// joined returns a context that ends with ctx and with the term until uncancelled is called.
// uncancelled reports whether both go on.
func (t *Term) joined(ctx context.Context) (joined context.Context, uncancelled func() bool) {
	joined, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stopCaller := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	stopTerm := context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })
	return joined, func() bool {
		stopCaller()
		stopTerm()
		return ctx.Err() == nil && t.ctx.Err() == nil
	}
}

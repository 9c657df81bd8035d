package elector

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pgelector/pgelector/db"
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
//   - ErrRolledBack: nothing was committed. It also wraps what fn returned, the
//     driver's error, or ErrNotLeader if the term has ended, as the case may be.
//   - ErrOutcomeUnknown: the connection was lost during COMMIT. Whether it was
//     committed must be read from the data; the next leader can do that safely.
//
// [Retryable] tells whether the same transaction may succeed when tried again. A
// panic of fn rolls the transaction back and goes on.
func (t *Term) InTx(ctx context.Context, pool *sql.DB, opts *sql.TxOptions, fn func(*sql.Tx) error) error {
	if pool == nil || fn == nil {
		return fmt.Errorf("%w: InTx: the pool or the function is nil", ErrConfig)
	}
	if !t.Valid() || !t.work.begin() {
		return fmt.Errorf("%w: %w: the term has ended: %w", ErrRolledBack, ErrNotLeader, t.whyEnded())
	}
	defer t.work.finish()
	txCtx, uncancelled := t.joined(ctx)
	tx, err := beginOn(txCtx, pool, opts)
	if err != nil {
		uncancelled()
		return because(ErrRolledBack, causeOr(txCtx, err))
	}
	committing := false
	defer func() {
		if !committing {
			_ = tx.Rollback()
			_ = tx.conn.Close()
		}
	}()
	if err := t.enter(txCtx, tx.Tx); err != nil {
		uncancelled()
		return because(ErrRolledBack, causeOr(txCtx, err))
	}
	if err := fn(tx.Tx); err != nil {
		uncancelled()
		return because(ErrRolledBack, err)
	}
	if !uncancelled() { // from here on the commit is not cancelled half-way
		<-txCtx.Done() // which is told on another goroutine
		return because(ErrRolledBack, context.Cause(txCtx))
	}
	committing = true
	return t.commit(tx)
}

// Retryable reports whether err, of InTx, says that the transaction was rolled
// back because others were in its way: a serialization failure (40001) or a
// deadlock (40P01). The same transaction may succeed when tried again.
func Retryable(err error) bool {
	state := sqlState(err)
	return errors.Is(err, ErrRolledBack) && !errors.Is(err, ErrNotLeader) && (state == "40001" || state == "40P01")
}

// joined is a context that ends with ctx and with the term, until uncancelled
// is called, which reports whether it had not ended before.
func (t *Term) joined(ctx context.Context) (joined context.Context, uncancelled func() bool) {
	joined, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stopCaller := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	stopTerm := context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })
	return joined, func() bool {
		caller, term := stopCaller(), stopTerm()
		switch { // one that has just ended may not have told yet
		case ctx.Err() != nil:
			cancel(context.Cause(ctx))
		case t.ctx.Err() != nil:
			cancel(context.Cause(t.ctx))
		}
		return caller && term && joined.Err() == nil
	}
}

// enter makes the transaction part of the term, or refuses it.
func (t *Term) enter(ctx context.Context, tx *sql.Tx) error {
	started, err := t.sessionStart(ctx)
	if err != nil {
		return fmt.Errorf("%w: ask the session when it began: %w", ErrNotLeader, err)
	}
	high, low := guard(t.elector.key)
	outcome, err := db.New(tx).EnterTerm(ctx, db.EnterTermParams{
		GuardHigh: high, GuardLow: low, Key: t.elector.key,
		Pid: t.session.pid, Started: started, Settings: encode(fenceSettings(t.session.lease)),
	})
	if err != nil {
		return fmt.Errorf("elector: enter the term: %w", err)
	}
	switch outcome {
	case "entered":
		return nil
	case "hidden":
		return ErrSessionHidden
	case "superseded":
		return fmt.Errorf("%w: a next leader waits for the last transactions of this term", ErrNotLeader)
	}
	if err := t.Verify(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: the session of the term (backend %d) holds its lock, but not on the server and database of this pool", ErrNotLeader, t.session.pid)
}

// sessionStart is when the term's session began, by the server's word: asked
// once in a term.
func (t *Term) sessionStart(ctx context.Context) (int64, error) {
	if started := t.started.Load(); started != 0 {
		return started, nil
	}
	started, err := do(ctx, t.session, func(ctx context.Context, q *db.Queries) (int64, error) { return q.BackendStart(ctx) })
	if err == nil {
		t.started.Store(started)
	}
	return started, err
}

// commit tells what is known about the outcome. The driver's call is not
// waited for longer than the server would let the transaction live.
func (t *Term) commit(tx *transaction) error {
	committed := make(chan error, 1)
	go func() {
		defer tx.conn.Close()
		committed <- tx.outcome(tx.Commit(), t.session.lease.length)
	}()
	timer := time.NewTimer(t.session.lease.length)
	defer timer.Stop()
	select {
	case err := <-committed:
		return err
	case <-timer.C:
		return fmt.Errorf("%w: no answer to COMMIT within one lease", ErrOutcomeUnknown)
	}
}

// outcome is what a driver's answer to COMMIT means. An error of the driver's
// own, without a SQLSTATE, on a connection that goes on, is how both drivers say
// that the server has answered ROLLBACK: a statement had failed, and fn has not
// returned the error.
func (tx *transaction) outcome(err error, patience time.Duration) error {
	switch state := sqlState(err); {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("%w: fn has ended the transaction, which InTx does: %w", ErrOutcomeUnknown, err)
	case broken(err) || strings.HasPrefix(state, "08"):
		return because(ErrOutcomeUnknown, err)
	case state == "":
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if tx.conn.PingContext(ctx) != nil {
			return because(ErrOutcomeUnknown, err)
		}
	}
	return because(ErrRolledBack, err) // the server says so
}

// fenceSettings bound a fenced transaction.
func fenceSettings(l lease) []setting {
	bound := fmt.Sprintf("%dms", l.length.Milliseconds())
	return []setting{
		{"statement_timeout", bound},
		{"idle_in_transaction_session_timeout", bound},
		{"transaction_timeout", bound},
	}
}

package fenced

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/session"
)

// A Tx is a transaction of the user's. Its connection is kept beside it: after a failed
// COMMIT it shows whether the server lives. As with a session, no driver call is trusted to
// return. Finish or Rollback must end it.
type Tx struct {
	*sql.Tx
	Began   int64           // when it began, if it was fenced (db.TransactionStart)
	Within  context.Context // once it is done, answers are awaited within the drain only; TermContext by default
	session *session.Session
	pool    *sql.DB
	conn    *sql.Conn
	ended   bool // or left to itself
}

// Begin begins a transaction on a connection of the pool. As database/sql does, it takes
// another one if that is dead, or inside a transaction of other code, where lib/pq refuses
// to begin one.
func Begin(ctx context.Context, s *session.Session, pool *sql.DB, opts *sql.TxOptions) (*Tx, error) {
	return backoff.AwaitOr(ctx, func(ctx context.Context) (tx *Tx, err error) {
		for next := session.NextIdle(pool); ; {
			tx = &Tx{session: s, pool: pool, Within: s.TermContext()}
			if tx.conn, err = pool.Conn(ctx); err != nil {
				tx.Suspect(ctx, err)
				return tx, err
			}
			if tx.Tx, err = tx.conn.BeginTx(ctx, opts); err == nil {
				return tx, nil
			}
			tx.Suspect(ctx, err)
			spoilt := tx.isSpoilt(err)
			_ = tx.conn.Close()
			if !spoilt || !next.More() {
				return tx, err
			}
		}
	}, (*Tx).end)
}

// isSpoilt reports whether a connection is of no use after a failed BEGIN. If so, it is
// closed for good.
func (tx *Tx) isSpoilt(err error) bool {
	closed := tx.conn.Raw(func(conn any) error {
		if v, ok := conn.(driver.Validator); ok && !v.IsValid() || pgerr.State(err) == "25P02" {
			return driver.ErrBadConn
		}
		return nil
	})
	return closed != nil // which it is already if err was ErrBadConn
}

// Suspect has a heartbeat sent at once if err, of a statement of the transaction, says that
// the server may be gone. An error of a context that has ended says nothing.
func (tx *Tx) Suspect(ctx context.Context, err error) {
	if ctx.Err() == nil && session.IsSuspicious(err) {
		tx.HeartbeatNow()
	}
}

// HeartbeatNow asks for a heartbeat of the term's session, and for those that share the pool with the
// transaction.
func (tx *Tx) HeartbeatNow() {
	tx.session.HeartbeatNow()
	session.Suspect(tx.pool)
}

// end rolls back, unless the transaction has ended.
func (tx *Tx) end() {
	_ = tx.Tx.Rollback()
	_ = tx.conn.Close()
}

// Rollback ends the transaction, unless it has ended. On a dead link the server does,
// when the lease has run out: that is not waited for.
func (tx *Tx) Rollback() { _, _ = tx.finish(func(context.Context) error { return nil }) }

// Finish commits, unless fn has failed. It returns nil, ErrRolledBack, or ErrOutcomeUnknown, also if COMMIT has no
// answer in time, or ErrEndedByFn if the transaction is not the one that was fenced.
func (tx *Tx) Finish(failed error) error {
	outcome, late := tx.finish(func(ctx context.Context) (err error) {
		if !pgerr.MaybeBroken(failed) {
			err = tx.check(ctx)
		}
		switch {
		case errors.Is(err, pgerr.ErrEndedByFn):
			return err
		case failed == nil && err != nil: // COMMIT is not sent
			tx.Suspect(ctx, err)
			return fmt.Errorf("%w: ask before COMMIT whether the transaction goes on (have fn close its rows): %w", pgerr.ErrRolledBack, err)
		case failed == nil:
			return tx.outcome(ctx, tx.Tx.Commit())
		}
		return nil
	})
	switch {
	case failed != nil && outcome != nil:
		return fmt.Errorf("%w: %w", outcome, failed)
	case failed != nil:
		return pgerr.Wrap(pgerr.ErrRolledBack, failed)
	case late != nil:
		return fmt.Errorf("%w: COMMIT was not answered: %w", pgerr.ErrOutcomeUnknown, late)
	}
	return outcome
}

// finish makes the last calls, and rolls back unless they commit. late is not nil if there is no answer in time.
func (tx *Tx) finish(last func(context.Context) error) (outcome, late error) {
	if tx.ended {
		return nil, nil
	}
	tx.ended = true
	ctx, cancel := answerTime(tx.session, tx.Within)
	defer cancel()
	return backoff.Await(ctx, func(ctx context.Context) (error, error) {
		defer tx.end()
		return last(ctx), nil
	})
}

// check returns an error that wraps ErrEndedByFn unless the transaction is still the one that was fenced, or was
// aborted, which COMMIT says.
func (tx *Tx) check(ctx context.Context) error {
	began, err := db.New(tx.Tx).TransactionStart(ctx)
	switch {
	case pgerr.State(err) == "25P02":
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("%w: %w", pgerr.ErrEndedByFn, err)
	case err == nil && began != tx.Began:
		return pgerr.ErrEndedByFn
	}
	return err
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
		tx.HeartbeatNow()
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

// answerTime bounds the wait for an answer that does not come on the session: to one lease, or
// to half of the remaining drain once ended is done, so that the work can return in time.
func answerTime(s *session.Session, ended context.Context) (context.Context, context.CancelFunc) {
	within, giveUp := context.WithCancelCause(context.WithoutCancel(ended))
	detach := context.AfterFunc(ended, func() {
		backoff.Sleep(within, s.Proof.DrainLeft()/2)
		giveUp(context.Cause(ended))
	})
	ctx, cancel := context.WithTimeoutCause(within, s.Proof.Lease.Length, fmt.Errorf("%w within one lease", pgerr.ErrNoAnswer))
	return ctx, func() {
		cancel()
		detach()
		giveUp(nil)
	}
}

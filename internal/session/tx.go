package session

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// A Tx is a transaction of the user's, on a connection that is kept beside it to
// tell, after a failed COMMIT, whether it still lives. As of a session, none of its
// driver calls is trusted to return. It must be ended by Commit or Rollback.
type Tx struct {
	*sql.Tx
	session *Session
	pool    *sql.DB
	conn    *sql.Conn
	ended   bool // or left to itself
}

// Begin begins a transaction on a connection of the pool: another one, as
// database/sql does it, if that turns out to be dead, or inside a transaction of other
// code's, where lib/pq refuses to begin another.
func (s *Session) Begin(ctx context.Context, pool *sql.DB, opts *sql.TxOptions) (*Tx, error) {
	return backoff.AwaitOr(ctx, func(ctx context.Context) (*Tx, error) {
		for idle := pool.Stats().Idle; ; idle-- {
			tx := &Tx{session: s, pool: pool}
			var err error
			if tx.conn, err = pool.Conn(ctx); err != nil {
				tx.Suspect(ctx, err)
				return nil, err
			}
			if tx.Tx, err = tx.conn.BeginTx(ctx, opts); err == nil {
				return tx, nil
			}
			tx.Suspect(ctx, err)
			spoilt := tx.isSpoilt(err)
			_ = tx.conn.Close()
			if idle <= 0 || !spoilt {
				return nil, err
			}
		}
	}, (*Tx).end)
}

// isSpoilt reports whether the connection on which a transaction could not be begun is
// of no use. If so it is closed for good.
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
// the server may be gone. The end of the transaction's context does not.
func (tx *Tx) Suspect(ctx context.Context, err error) {
	if ctx.Err() == nil && isSuspicious(err) {
		tx.raiseSuspicion()
	}
}

// raiseSuspicion is for the term's session, and for others that share the pool with the
// transaction.
func (tx *Tx) raiseSuspicion() {
	tx.session.raiseSuspicion()
	live.suspect(tx.pool)
}

// end rolls back, unless the transaction has ended.
func (tx *Tx) end() {
	_ = tx.Tx.Rollback()
	_ = tx.conn.Close()
}

// Rollback ends the transaction, unless it has ended. On a dead link the server does,
// when the lease has run out: that is not waited for.
func (tx *Tx) Rollback() {
	if tx.ended {
		return
	}
	tx.ended = true
	ctx, cancel := tx.session.answerTime()
	defer cancel()
	_, _ = backoff.Await(ctx, func(context.Context) (any, error) {
		tx.end()
		return nil, nil
	})
}

// Commit commits, and tells what is known about the outcome: nil, ErrRolledBack
// or ErrOutcomeUnknown, also if there is no answer in time.
func (tx *Tx) Commit() error {
	tx.ended = true
	ctx, cancel := tx.session.answerTime()
	defer cancel()
	outcome, late := backoff.Await(ctx, func(ctx context.Context) (error, error) {
		defer tx.conn.Close()
		return tx.outcome(ctx, tx.Tx.Commit()), nil
	})
	if late != nil {
		return fmt.Errorf("%w: COMMIT was not answered: %w", ErrOutcomeUnknown, late)
	}
	return outcome
}

// outcome is what a driver's answer to COMMIT means. Whether the server rolled back and
// goes on, or went down with the COMMIT half written, is told by what becomes of the
// connection: drivers do not tell an ERROR from a PANIC. An error of the driver's own,
// without a SQLSTATE, on a connection that goes on, is how both say that the server has
// answered ROLLBACK: a statement had failed, and fn has not returned the error.
func (tx *Tx) outcome(ctx context.Context, err error) error {
	switch state := pgerr.State(err); {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("%w: fn has ended the transaction, which InTx does: %w", ErrOutcomeUnknown, err)
	case pgerr.Broken(err) || !abortsByItself(state) && tx.conn.PingContext(ctx) != nil:
		tx.raiseSuspicion()
		return pgerr.Wrap(ErrOutcomeUnknown, err)
	}
	return pgerr.Wrap(ErrRolledBack, err) // the server says so
}

// abortsByItself is for the classes of SQLSTATE that are no outcome of a COMMIT but that
// it was rolled back, whatever becomes of the connection: a constraint that was violated
// (23), a transaction that has no time left (25), and one in the way of others (40).
// PostgreSQL manual, appendix A.
func abortsByItself(state string) bool {
	return len(state) == 5 && slices.Contains([]string{"23", "25", "40"}, state[:2])
}

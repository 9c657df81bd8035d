package fenced

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/session"
)

// A Tx is a transaction of the user's that Enter has begun. Its connection is kept beside it: after a failed
// COMMIT it shows whether the server lives. As with a session, no driver call is trusted to
// return. Finish or Rollback must end it.
type Tx struct {
	*sql.Tx
	term   Term
	pool   *sql.DB
	conn   *sql.Conn
	name   string             // of the transaction: see db.FencedTransaction
	giveUp context.CancelFunc // ends its context
	ended  bool               // or left to itself
}

// take takes a connection from the pool.
func (tx *Tx) take(ctx context.Context) (err error) {
	tx.conn, err = tx.pool.Conn(ctx)
	return err
}

// isSpoilt reports whether a connection is of no use after a failed statement. If so, it is
// closed for good.
func (tx *Tx) isSpoilt(err error) bool {
	closed := pin.AfterTx(func() error {
		return tx.conn.Raw(func(conn any) error {
			if v, ok := conn.(driver.Validator); ok && !v.IsValid() || pgerr.State(err) == "25P02" {
				return driver.ErrBadConn
			}
			return nil
		})
	})
	return closed != nil // which it is already if err was ErrBadConn
}

// close gives the connection up, which is in no transaction: for good, or to the pool.
func (tx *Tx) close(forGood bool) {
	ctx, cancel := context.WithTimeout(context.Background(), pin.CloseGrace)
	defer cancel()
	_, _ = backoff.Await(ctx, func(ctx context.Context) (any, error) {
		if forGood {
			pin.CloseForGood(ctx, tx.conn, false)
		}
		return nil, tx.conn.Close()
	})
}

// Suspect has a heartbeat sent at once if err, of a statement of the transaction, says that
// the server may be gone. An error of a context that has ended says nothing.
func (tx *Tx) Suspect(ctx context.Context, err error) {
	if ctx.Err() == nil && session.IsSuspicious(err) {
		tx.term.suspect(tx.pool)
	}
}

// suspect asks for a heartbeat of the term's session, and for those that share the pool with the
// transaction.
func (in Term) suspect(pool *sql.DB) {
	in.Lock.Session.HeartbeatNow()
	session.Suspect(pool)
}

// end rolls back, unless the transaction has ended.
func (tx *Tx) end() {
	if tx.Tx != nil { // a standby has begun none
		_ = tx.Tx.Rollback()
	}
	_ = tx.conn.Close()
	tx.giveUp()
}

// Rollback ends the transaction, unless it has ended. On a dead link the server does,
// when the lease has run out: that is not waited for.
func (tx *Tx) Rollback() {
	if tx.ended {
		return
	}
	tx.ended = true
	ctx, cancel := tx.term.answerTime()
	defer cancel()
	tx.rollBack(ctx)
}

func (tx *Tx) rollBack(ctx context.Context) {
	ctx, cancel := atMost(ctx)
	defer cancel()
	_, _ = backoff.Await(ctx, func(context.Context) (any, error) { tx.end(); return nil, nil })
}

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

// answerTime bounds the wait for an answer that does not come on the session: to one lease, or
// to half of the remaining drain once the term has ended, so that the work can return in time.
func (in Term) answerTime() (context.Context, context.CancelFunc) {
	proof := in.Lock.Session.Proof
	within, giveUp := context.WithCancelCause(context.WithoutCancel(in.Ended))
	detach := context.AfterFunc(in.Ended, func() {
		backoff.Sleep(within, proof.DrainLeft()/2)
		giveUp(context.Cause(in.Ended))
	})
	ctx, cancel := context.WithTimeoutCause(within, proof.Lease.Length, fmt.Errorf("%w within one lease", pgerr.ErrNoAnswer))
	return ctx, func() {
		cancel()
		detach()
		giveUp(nil)
	}
}

package fenced

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/live"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
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
	return pgerr.Connecting(err)
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

// close gives up the connection, which is in no transaction: it closes it for good, or returns it to the pool.
func (tx *Tx) close(forGood bool) {
	ctx, cancel := context.WithTimeout(context.Background(), tx.term.grace())
	defer cancel()
	_, _ = backoff.Await(ctx, func(ctx context.Context) (any, error) {
		if forGood {
			pin.CloseForGood(ctx, tx.conn, false)
		}
		return nil, tx.conn.Close()
	})
}

// Suspect asks for a heartbeat at once if err, the error of a statement in the transaction, says
// that the server may be gone. An error of a context that has ended says nothing.
func (tx *Tx) Suspect(ctx context.Context, err error) {
	if ctx.Err() == nil && live.IsSuspicious(err) {
		tx.term.suspect(tx.pool)
	}
}

// end rolls back, unless the transaction has ended.
func (tx *Tx) end() {
	if tx.Tx != nil { // a standby has begun none
		_ = tx.Tx.Rollback()
	}
	_ = tx.conn.Close()
	tx.giveUp()
}

// Rollback ends the transaction, unless it has ended. On a dead link the server ends it when
// the lease has run out: Rollback does not wait for that.
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

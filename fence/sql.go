// Package fence checks a fencing token as part of a write, for stores other than the
// election's database. (In that database use the elector's Term.InTx, which needs no
// token.)
//
//	tx, err := store.BeginTx(ctx, nil)
//	err = fence.Advance(ctx, tx, "reports", term.Token()) // ErrStale if a newer leader wrote
//	…                                                     // the writes of the term
//	err = tx.Commit()
//
// # What is not promised
//
// A token fences only what every writer checks: a write without a token, or around the
// check, is not refused. Until the new leader writes for the first time, the store does
// not know its token, and accepts the old leader's writes. So a leader that reads before
// it writes must pass the fence before it reads: with [Advance] in the reading
// transaction, or with any request through [Handler].
//
// # How a token fences
//
// A term's token is larger than those of all earlier terms. A store keeps the largest
// token that it has seen, and refuses smaller ones. The check and the write must be one
// step: between a separate check and its write, a newer leader may write. There are three
// ways:
//
//   - [Advance] locks a guard row in the caller's transaction, so that the next leader
//     waits for the end of the transaction.
//   - [Applied] is for a single conditional UPDATE … WHERE token <= $n.
//   - [Transport] and [Handler] send and check the token by HTTP. The handler makes the
//     requests of a newer token wait for those of older ones.
//
// # When tokens fall
//
// A store may outlive the election's server. After a pg_upgrade, a dump and restore, or
// the loss of a promoted branch, new tokens can be smaller, and every new leader gets
// [ErrStale]. Then raise the epoch of the election's database, with ALTER DATABASE … SET
// pgelector.epoch: the upper 16 bits of the largest token in the store are always enough.
// (pgelector doctor --last-token prints the smallest sufficient epoch.) The store needs no
// change.
//
// The package imports only the standard library. Its SQL is PostgreSQL's, for any driver.
package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ErrStale is returned if the store has seen a newer token: another candidate leads, and
// the writer must stop. If every leader gets it after the election's server was upgraded
// or restored, tokens have fallen: see the package comment.
var ErrStale = errors.New("fence: stale token: the store has seen a newer one, so another candidate leads")

// CreateTable creates the table that [Advance] needs, in the store. It has a row for each
// resource. Like [AdvanceSQL] it names the table without a schema: nobody untrusted should
// be allowed to create tables in the schemas of your search_path.
const CreateTable = `CREATE TABLE IF NOT EXISTS fence (resource pg_catalog.text PRIMARY KEY, token bigint NOT NULL)`

// AdvanceSQL is the statement of [Advance], for programs that do not use database/sql: $1
// is the resource, $2 the token. If it affects no row, the token is stale. It must be the
// first statement of the transaction.
const AdvanceSQL = `INSERT INTO fence (resource, token) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE fence.token OPERATOR(pg_catalog.<=) excluded.token`

// Advance fences a transaction: it raises the resource's token in the table of
// [CreateTable]. If the table has a newer token it returns an error that wraps [ErrStale],
// and the caller must roll back. The row stays locked until the transaction ends, so that
// nobody with a newer token accesses the resource meanwhile.
//
// Call Advance before all reads and writes that it should guard. Any isolation level will
// do; above READ COMMITTED, one of two concurrent transactions fails with SQLSTATE 40001
// and may be retried. Transactions on the same resource run one at a time, even in one
// term.
func Advance(ctx context.Context, tx *sql.Tx, resource string, token int64) error {
	return Applied(tx.ExecContext(ctx, AdvanceSQL, resource, token))
}

// Applied checks the result of an UPDATE (or an INSERT … ON CONFLICT DO UPDATE) whose
// condition compares the token, as in
//
//	UPDATE lamp SET color = $3, token = $2 WHERE id = $1 AND token <= $2
//
// It wraps err if that is not nil, and returns [ErrStale] if no row was affected: the row
// has a newer token, or does not exist. Every write must store its token in the row, as
// above, for later writes to be compared with.
func Applied(result sql.Result, err error) error {
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("fence: the driver does not report whether the write was applied: %w", err)
	}
	if n == 0 {
		return ErrStale
	}
	return nil
}

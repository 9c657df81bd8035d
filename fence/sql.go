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

package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ErrStale is returned when a write comes with a token that is older than one
// that was seen: another leads, and the writer must stop. If it is returned to every
// leader since the election's server was upgraded or restored, tokens have fallen:
// see the package comment.
var ErrStale = errors.New("fence: the token is older than one that was seen: another leads by now")

// CreateTable makes the table that [Advance] needs, in the store that is
// written to. It has a row for each resource that is fenced. Like [AdvanceSQL] it
// names the table without a schema: the first schema of your search_path should be
// one in which no stranger may create a table, with triggers, of that name.
const CreateTable = `CREATE TABLE IF NOT EXISTS fence (resource pg_catalog.text PRIMARY KEY, token bigint NOT NULL)`

// AdvanceSQL is the statement of [Advance], for those who do not use
// database/sql: $1 is the resource, $2 the token. If it affects no row, the
// token is stale. It must be the first statement of the transaction that writes.
const AdvanceSQL = `INSERT INTO fence (resource, token) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE fence.token OPERATOR(pg_catalog.<=) excluded.token`

// Advance makes the transaction part of the token's term, as far as the resource
// is concerned: it raises the resource's token in the table of [CreateTable], or
// returns [ErrStale] if a newer one is there; then the caller must roll back.
// The row stays locked until the transaction ends, so that nobody with a newer
// token reads or writes the resource beside it.
//
// It must come before anything in the transaction that the term is to
// guard, reads included. The isolation level may be any; above READ COMMITTED a
// concurrent Advance of the same resource fails one of the two with SQLSTATE
// 40001, and the transaction may be tried again. Transactions that share a
// resource run one at a time, also those of one term.
func Advance(ctx context.Context, tx *sql.Tx, resource string, token int64) error {
	return Applied(tx.ExecContext(ctx, AdvanceSQL, resource, token))
}

// Applied is what became of an UPDATE (or an INSERT … ON CONFLICT DO UPDATE)
// whose condition compares the token, as in
//
//	UPDATE lamp SET color = $3, token = $2 WHERE id = $1 AND token <= $2
//
// It returns err if that is not nil, and [ErrStale] if no row was affected. A row
// that does not exist is not told apart from one with a newer token. The
// row must store the token with every write, as above: it is what later
// writes are compared with.
func Applied(result sql.Result, err error) error {
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("fence: whether the write was applied is not known: %w", err)
	}
	if n == 0 {
		return ErrStale
	}
	return nil
}

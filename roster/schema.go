package roster

import (
	"context"
	"database/sql"
	"strings"

	pgdb "github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/roster/internal/db"
)

// placeholder stands for the chosen schema in queries/roster and migrations. sqlc's
// statements are constants, and a search_path set on a pooled connection would stay there
// for its next borrower.
const placeholder = "chosen."

// inSchema is a DBTX that replaces the placeholder by a schema.
type inSchema struct {
	under  db.DBTX
	schema string // quoted, with the dot
}

var _ db.DBTX = inSchema{}

func (s inSchema) replace(query string) string {
	return strings.ReplaceAll(query, placeholder, s.schema)
}

func (s inSchema) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return s.under.ExecContext(ctx, s.replace(query), args...)
}

func (s inSchema) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return s.under.PrepareContext(ctx, s.replace(query))
}

func (s inSchema) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return s.under.QueryContext(ctx, s.replace(query), args...)
}

func (s inSchema) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return s.under.QueryRowContext(ctx, s.replace(query), args...)
}

// ask makes a call on the pool, or on a connection of it.
func ask[T any](ctx context.Context, c config, pool pooled.Pool, call func(*db.Queries) (T, error)) (T, error) {
	return pooled.Ask(ctx, pool, func(under pgdb.DBTX) (T, error) { return call(c.queries(under)) })
}

// tell is ask for a call without an answer.
func tell(ctx context.Context, c config, pool pooled.Pool, call func(*db.Queries) error) error {
	_, err := ask(ctx, c, pool, func(q *db.Queries) (any, error) { return nil, call(q) })
	return err
}

func (c config) queries(under db.DBTX) *db.Queries { return db.New(c.on(under)) }

func (c config) on(under db.DBTX) inSchema { return inSchema{under, quote(c.schema) + "."} }

// quote quotes an identifier that contains no NUL.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

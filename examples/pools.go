package examples

import (
	"database/sql"

	"github.com/XSAM/otelsql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// OverPgxpool returns the pool that an elector needs, over a program's pgxpool. Leader and
// deputy keep one of its connections.
func OverPgxpool(pool *pgxpool.Pool) *sql.DB { return stdlib.OpenDBFromPool(pool) }

// Traced opens a pool whose statements OpenTelemetry traces, those of an election too.
func Traced(driver, dsn string, opts ...otelsql.Option) (*sql.DB, error) {
	return otelsql.Open(driver, dsn, opts...)
}

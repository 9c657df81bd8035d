// Package db holds the typed wrappers that sqlc generates from queries/*.sql:
// everything that this library ever asks of PostgreSQL.
//
// [New] takes any [DBTX]: a *sql.DB, the *sql.Conn of a pinned session, a
// *sql.Tx, or a test's own. No type of a driver appears here, and none is
// imported, so lib/pq, pgx/v5/stdlib and go-sqlmock serve alike. Each SQL
// statement is exported as a constant (such as [TryLock]) that begins with its
// "-- name:" line, by which a test double can tell what it is asked.
//
// To change a statement, edit queries/ and run "make generate".
package db

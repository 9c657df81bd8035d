// Package db holds the typed wrappers that sqlc generates from queries/*.sql:
// everything that this library ever asks of PostgreSQL.
//
// [New] takes any [DBTX]: a *sql.DB, the *sql.Conn of a pinned session, a
// *sql.Tx, or a test's own. No type of a driver appears here, and none is
// imported, so lib/pq, pgx/v5/stdlib and go-sqlmock serve alike. Each SQL
// statement is exported as a constant (such as [TryLock]) that begins with its
// "-- name:" line, by which a test double can tell what it is asked.
//
// The package carries no promise: its names follow the queries, and any version may change
// them. Programs use package elector.
//
// To change a statement, edit queries/ and run "make generate".
package db

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Statements that sqlc cannot type.
const (
	// RepeatableRead and ReadCommitted are the first statements of a transaction, since wrappers
	// of a driver may know no isolation levels. One of them fails (25001) in a transaction that
	// other code has left open after a query, because the level can no longer change. (SET
	// TRANSACTION would leave its mark in pg_settings when the transaction has ended.)
	RepeatableRead = "-- name: RepeatableRead :exec\nSET LOCAL transaction_isolation = 'repeatable read'"
	ReadCommitted  = "-- name: ReadCommitted :exec\nSET LOCAL transaction_isolation = 'read committed'"

	// Nothing is an empty statement: its answer shows that the server lives.
	Nothing = "-- name: Nothing :exec"

	// RollBackAndChain is the first statement of a transaction that is to be committed. BEGIN is
	// only a warning in one that other code has left open: that one is rolled back then.
	RollBackAndChain = "-- name: RollBackAndChain :exec\nROLLBACK AND CHAIN"

	// What stands between Savepoint and RollBackToIt may fail, and the transaction goes on.
	Savepoint    = "-- name: Savepoint :exec\nSAVEPOINT pgelector"
	RollBackToIt = "-- name: RollBackToIt :exec\nROLLBACK TO SAVEPOINT pgelector"
	ReleaseIt    = "-- name: ReleaseIt :exec\nRELEASE SAVEPOINT pgelector"

	// PingTransaction is Ping for a session that holds its locks inside a transaction. The
	// answer is the mark of that transaction (Confirm), which the caller knows from the statement
	// that made it. Once the transaction has ended, the answer is empty, what somebody has set, or
	// an error (42704). It takes no snapshot, not even for an instant: if
	// one was seen at that instant, CREATE INDEX CONCURRENTLY would wait for the end of the
	// transaction.
	PingTransaction = "-- name: PingTransaction :one\nSHOW pgelector.transaction"
)

// MostRows is how many rows AdvisoryLocks returns at most. If it returns as many, others may be missing.
const MostRows = 10_000

// Keys writes keys as the statements take them that are about many: a JSON array of
// strings, which no number's precision bounds.
func Keys(keys ...int64) string {
	texts := make([]string, 0, len(keys))
	for _, key := range keys {
		texts = append(texts, strconv.FormatInt(key, 10))
	}
	text, _ := json.Marshal(texts) // strings always can be
	return string(text)
}

// Time is a time that a statement tells in microseconds since 1970, the zero Time
// for 0, which stands for none.
func Time(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}

// Blocker says who keeps a lock from all candidates, and how to end that, by a row of Holder or
// AdvisoryLocks that blocks.
func Blocker(pid int32, application, role, mode, prepared string) string {
	if prepared == "" {
		return fmt.Sprintf("backend %d (%q, role %q) holds the lock in mode %s, so nobody can be elected: end that session: SELECT pg_catalog.pg_terminate_backend(%d)",
			pid, application, role, mode, pid)
	}
	literal := "'" + strings.ReplaceAll(prepared, "'", "''") + "'"
	if strings.ContainsFunc(prepared, func(r rune) bool { return !unicode.IsPrint(r) }) {
		literal = strconv.Quote(prepared)
	}
	return fmt.Sprintf("a prepared transaction of role %q holds the lock in mode %s, so nobody can be elected: end it: ROLLBACK PREPARED %s", role, mode, literal)
}

// Package pgerr reads what an error of a driver or a context says, by its
// SQLSTATE and its kind, never by its text, and wraps it so that it stays within
// reach of errors.Is and errors.As.
package pgerr

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// State is the SQLSTATE of a driver's error, "" if it has none. The errors of
// lib/pq and of pgx both have this method.
func State(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}

// IsMissingStatement reports whether a prepared statement does not exist any more (26000), or
// exists already (42P05).
func IsMissingStatement(err error) bool {
	state := State(err)
	return state == "42P05" || state == "26000"
}

// Broken reports whether err says that the connection was dead, or that the
// server ended it (57P01 shutdown, 57P02 crash, 57P05 idle), or that something between did
// (class 08, connection exceptions). For a prepared statement on a dead connection
// database/sql says sql.ErrConnDone.
func Broken(err error) bool {
	var network *net.OpError
	switch state := State(err); {
	case state == "57P01", state == "57P02", state == "57P05", strings.HasPrefix(state, "08"):
		return true
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network)
}

// OfStatement reports whether the server has refused a statement, and may answer the next one on the
// same connection. It may not after an error of class 08 or 57P (see Broken), and does not in a
// transaction that has failed (class 25). A prepared statement that is missing shows another backend.
func OfStatement(err error) bool {
	state := State(err)
	ends := strings.HasPrefix(state, "08") || strings.HasPrefix(state, "25") || strings.HasPrefix(state, "57P")
	return state != "" && !ends && !IsMissingStatement(err)
}

// MaybeBroken is Broken, and true also for an error of pgx that has the method SafeToRetry. That
// says "conn closed" of a connection that ended during a statement of its simple protocol, BEGIN
// for one, but also that the caller's context was done before it.
func MaybeBroken(err error) bool {
	var pgx interface{ SafeToRetry() bool }
	return Broken(err) || errors.As(err, &pgx) && pgx.SafeToRetry()
}

// Wrap wraps err with a sentinel, unless it already does.
func Wrap(sentinel, err error) error {
	if errors.Is(err, sentinel) {
		return err
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

// CauseOr is why a call failed: the context's cause if that ended, with the
// driver's error kept, else the error itself; nil if it did not fail.
func CauseOr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// Package elector returns these as its own, and documents when.
var (
	ErrConfig            = errors.New("elector: invalid configuration")
	ErrUnsupportedServer = errors.New("elector: the server cannot keep the promise")

	ErrNotLeader       = errors.New("elector: not the leader")
	ErrSessionLost     = errors.New("elector: the session was lost")
	ErrLeaseExpired    = errors.New("elector: the lease expired")
	ErrNoAnswer        = errors.New("elector: the server does not answer")
	ErrServerReadOnly  = errors.New("elector: the server is in recovery (a hot standby), whose locks are its own: connect to the primary, for instance with target_session_attrs=read-write")
	ErrOldPrimary      = errors.New("elector: an old primary still answers beside the one that was promoted: stop the old one, and see that no connection leads there")
	ErrServerTooOld    = fmt.Errorf("%w: it cannot enforce a lease: PostgreSQL 14 or newer is needed", ErrUnsupportedServer)
	ErrSessionPooled   = errors.New("elector: a pooler between this program and the server shares backends between connections: give the elector a pool that connects to the server itself, or through session pooling")
	ErrNoAdvisoryLocks = fmt.Errorf("%w: it grants advisory locks that do not show in pg_locks, so they exclude nobody: use a PostgreSQL server", ErrUnsupportedServer)
	ErrNoSessionLocks  = fmt.Errorf("%w: its advisory locks of sessions do not show in pg_locks, so they exclude nobody: where those of transactions do, use WithScope(Auto or TransactionScope)", ErrUnsupportedServer)
	ErrPoolTooSmall    = fmt.Errorf("%w: the pool has no connection to spare beside what a session pins", ErrConfig)
	ErrPoolClosed      = fmt.Errorf("%w: the pool is closed: close it only after Run, Stop or Close has returned", ErrConfig)
	ErrLockTableFull   = errors.New("elector: the server's lock table is full: raise max_locks_per_transaction (and restart it), or use fewer elections")
	ErrRolledBack      = errors.New("elector: the transaction was rolled back")
	ErrOutcomeUnknown  = errors.New("elector: it is not known whether the transaction was committed")
	ErrNotSynchronous  = errors.New("elector: commits do not wait for every standby that can be promoted")
	ErrTooEarly        = errors.New("elector: a leader on a primary that was replaced may still be valid")
)

// ErrEndedByFn is returned when a function of InTx has ended its transaction.
var ErrEndedByFn = fmt.Errorf("%w: fn has ended its transaction, which InTx does: what it did before may be committed, and what it did after that "+
	"was outside the term's fence: have it send no COMMIT, ROLLBACK or PREPARE TRANSACTION", ErrOutcomeUnknown)

// ErrOpenTransaction is returned when the pool has lent a connection with a transaction that
// other code has left open. Whatever uses it would be inside that transaction.
var ErrOpenTransaction = errors.New("elector: a connection of the pool came with a transaction that other code has left open: end each with COMMIT or ROLLBACK")

// ErrMixedUp is returned when a prepared statement comes and goes.
var ErrMixedUp = fmt.Errorf("%w (its backends do not know this client's prepared statements: with pgx, set default_query_exec_mode=exec)", ErrSessionPooled)

// IsMixedUp reports whether a prepared statement does not exist any more, or
// exists already. Once, that may be because other code has run DISCARD ALL on the
// connection; twice in a row, because another backend answers, and then the error says so.
func IsMixedUp(err error) bool {
	return IsMissingStatement(err) && !errors.Is(err, ErrSessionPooled)
}

// Explain names the cause of errors that have only one: a full lock table, or shared
// backends, where prepared statements come and go.
func Explain(err error) error {
	switch {
	case IsMixedUp(err):
		return Wrap(ErrMixedUp, err)
	case State(err) == "53200":
		return Wrap(ErrLockTableFull, err)
	}
	return err
}

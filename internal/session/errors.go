package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/internal/pgerr"
)

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
	ErrPoolTooSmall    = fmt.Errorf("%w: the pool has no connection to spare beside what a session pins", ErrConfig)
	ErrPoolClosed      = fmt.Errorf("%w: the pool is closed: close it only after Run, Stop or Close has returned", ErrConfig)
	ErrLockTableFull   = errors.New("elector: the server's lock table is full: raise max_locks_per_transaction (and restart it), or use fewer elections")
	ErrRolledBack      = errors.New("elector: the transaction was rolled back")
	ErrOutcomeUnknown  = errors.New("elector: it is not known whether the transaction was committed")
	ErrNotSynchronous  = errors.New("elector: commits do not wait for every standby that can be promoted")
	ErrTooEarly        = errors.New("elector: a leader on a primary that was replaced may still be valid")
)

// ErrEndedByFn is of a function of InTx that has ended its transaction.
var ErrEndedByFn = fmt.Errorf("%w: fn has ended its transaction, which InTx does: what it did before may be committed, and what it did after that "+
	"was outside the term's fence: have it send no COMMIT, ROLLBACK or PREPARE TRANSACTION", ErrOutcomeUnknown)

// errClosed ends a session that its owner has closed.
var errClosed = errors.New("elector: the session was closed")

// errTransactionOver is of a session whose transaction has ended on the server.
var errTransactionOver = errors.New("elector: the transaction that held the lock has ended on the server")

// errTwoServers is of a transaction whose locks another connection of the pool does not see.
var errTwoServers = errors.New("elector: the pool leads to two servers, and only one of them has the lock: " +
	"is an address moving in a failover, or does it lead to several primaries?")

// errLifeTaken is of a session that cannot take the lock by which others know it.
var errLifeTaken = errors.New("elector: another session holds the lock by which this one is known: does a stranger use this database?")

// errMixedUp is of a prepared statement that comes and goes.
var errMixedUp = fmt.Errorf("%w (its backends do not know this client's prepared statements: with pgx, set default_query_exec_mode=exec)", ErrSessionPooled)

// ErrOpenTransaction is of a connection that the pool has lent with a transaction that
// other code has left open. Whatever uses it would be inside that transaction.
var ErrOpenTransaction = errors.New("elector: a connection of the pool came with a transaction that other code has left open: end each with COMMIT or ROLLBACK")

// CheckOutside returns an error if a statement has found the connection inside a
// transaction of other code.
func (s *Session) CheckOutside(inTransaction bool) error {
	if !inTransaction || s.inside {
		return nil
	}
	s.pin.Taint()
	return ErrOpenTransaction
}

// TimedOut reports whether err says that a call has taken longer than the validity.
func (s *Session) TimedOut(err error) bool { return errors.Is(err, s.errTimeout) }

// isMissingStatement reports whether a prepared statement does not exist any more, or
// exists already. Once, that may be because other code has run DISCARD ALL on the
// connection; twice in a row, because another backend answers, and then the error says so.
func isMissingStatement(err error) bool {
	return pgerr.IsMissingStatement(err) && !errors.Is(err, ErrSessionPooled)
}

// Explain names the cause of errors that have only one: a full lock table, or a pooler,
// where prepared statements come and go.
func Explain(err error) error {
	switch {
	case isMissingStatement(err):
		return pgerr.Wrap(errMixedUp, err)
	case pgerr.State(err) == "53200":
		return pgerr.Wrap(ErrLockTableFull, err)
	}
	return err
}

// refusesSetting reports whether the server refused a session setting, and not the
// session: an invalid value, a lack of rights, one that cannot be changed now, one that is
// not supported, or an unknown name.
func refusesSetting(err error) bool {
	if errors.Is(err, ErrServerReadOnly) {
		return false
	}
	switch pgerr.State(err) {
	case "22023", "42501", "55P02", "0A000", "42704":
		return true
	}
	return false
}

// noConnection says why the pool gave no connection, and what to do about it. full is whether others
// used all that it may open when it was asked.
func noConnection(ctx context.Context, late bool, pool *sql.DB, full bool, bound time.Duration, err error) error {
	if !late {
		return fmt.Errorf("elector: take a connection from the pool: %w", Explain(pgerr.CauseOr(ctx, err)))
	}
	why := fmt.Sprintf("is the server reachable? Is connect_timeout set, and at most %v divided by the number of hosts? "+
		"If the driver has a pool of its own below this one (a pgxpool), is its MaxConns large enough?", max(bound, connectTimeout))
	if full {
		why = "all were in use, or did not connect: is MaxOpenConns large enough?"
	}
	stats := pool.Stats()
	return fmt.Errorf("elector: no connection from the pool within %v (%d open, %d in use, at most %d; 0 is no limit): %s %w",
		bound, stats.OpenConnections, stats.InUse, stats.MaxOpenConnections, why, err)
}

package elector

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/pgelector/pgelector/hooks"
)

// The errors of this package. Every error that it returns wraps one of these,
// or the cause of the context that ended, and keeps the driver's error within
// reach of errors.As.
var (
	// ErrConfig is returned by New when an argument or option cannot be used;
	// the message names it and the inequality that fails.
	ErrConfig = errors.New("elector: invalid configuration")

	// ErrNotLeader is returned when something is asked of a term that has ended.
	ErrNotLeader = errors.New("elector: not the leader")

	// ErrNoLeader is returned by Leader when no session holds the lock.
	ErrNoLeader = errors.New("elector: nobody leads the election")

	// ErrResigned is the cause of a term that was given up by Resign, or whose
	// lead returned.
	ErrResigned = errors.New("elector: the term was resigned")

	// ErrSessionLost is the cause of a term whose session the server ended, or
	// whose connection broke.
	ErrSessionLost = errors.New("elector: the session was lost")

	// ErrLeaseExpired is the cause of a term for which no heartbeat was answered
	// in time. The server ends the session, if it has not yet, when the lease runs out.
	ErrLeaseExpired = errors.New("elector: the lease expired")

	// ErrNoAnswer is returned when a statement of a campaign was not answered in
	// the time for which a lease is valid.
	ErrNoAnswer = errors.New("elector: the server does not answer")

	// ErrServerReadOnly is returned when the server is a hot standby, which would
	// grant a lock that its primary knows nothing of.
	ErrServerReadOnly = errors.New("elector: the server is in recovery (a hot standby), whose locks are its own: connect to the primary, for instance with target_session_attrs=read-write")

	// ErrServerTooOld is returned when the server has no idle_session_timeout,
	// on which the lease rests.
	ErrServerTooOld = errors.New("elector: the server cannot enforce a lease: PostgreSQL 14 or newer is needed")

	// ErrSessionPooled is returned when statements of one connection reach
	// different backends: a pooler in transaction or statement mode.
	ErrSessionPooled = errors.New("elector: a pooler between this program and the server shares backends between connections: give the elector a pool that connects to the server itself, or through session pooling")

	// ErrNoAdvisoryLocks is returned when a granted lock does not show in
	// pg_locks: the server's advisory locks are stubs.
	ErrNoAdvisoryLocks = errors.New("elector: the server grants advisory locks that do not show in pg_locks, so they exclude nobody: use a PostgreSQL server")

	// ErrPoolTooSmall is returned when MaxOpenConns leaves no connection beside
	// the one that a session pins, or the two with WithWatch.
	ErrPoolTooSmall = errors.New("elector: the pool has no connection to spare beside what a session pins")

	// ErrAlreadyRunning is returned when an elector is asked to do two things at
	// once: it runs one campaign, and holds one term, at a time.
	ErrAlreadyRunning = errors.New("elector: already running: this elector campaigns or leads; use one elector per candidate")

	// ErrUnhealthy is the cause of a term whose candidate's health fell below
	// its minimum.
	ErrUnhealthy = errors.New("elector: the candidate is unhealthy")

	// ErrGaveUp is returned when WithMaxAttempts attempts in a row have failed.
	ErrGaveUp = errors.New("elector: gave up after too many failed attempts")

	// ErrOverrun is returned by Resign, and reported to OnError, when the term's
	// work has not returned in time.
	ErrOverrun = errors.New("elector: the work runs on after its term")

	// ErrLeadFailed is the cause of a term whose lead returned an error or
	// panicked, or whose OnElected hook panicked.
	ErrLeadFailed = errors.New("elector: lead failed")

	// ErrHookPanicked is reported to OnError when a hook panicked.
	ErrHookPanicked = errors.New("elector: a hook panicked")

	// ErrRolledBack is returned by InTx when nothing of the transaction was
	// committed.
	ErrRolledBack = errors.New("elector: the transaction was rolled back")

	// ErrOutcomeUnknown is returned by InTx when the connection was lost during
	// COMMIT: the server may have committed the transaction or not.
	ErrOutcomeUnknown = errors.New("elector: it is not known whether the transaction was committed")

	// ErrSessionHidden is returned by InTx when the role of the pool may not see
	// when the leader's session began.
	ErrSessionHidden = errors.New("elector: the role of this pool cannot see the leader's session: use the elector's own role, or GRANT pg_read_all_stats to this one")

	// ErrLockTableFull is reported when the server has no room for another lock.
	// Nothing that is held is lost by it, and the campaign goes on.
	ErrLockTableFull = errors.New("elector: the server's lock table is full: raise max_locks_per_transaction (and restart it), or use fewer elections")

	// ErrStopped is the cause of a term that was ended by Stop or Session.Close,
	// and returned when a closed session is asked for more.
	ErrStopped = errors.New("elector: stopped")
)

// ending is the cause of a term's context: why it ended, for people and for
// the closed set of reasons.
type ending struct {
	reason hooks.Reason
	err    error
}

func (e *ending) Error() string { return e.err.Error() }
func (e *ending) Unwrap() error { return e.err }

// reasonOf finds the reason in a cause.
func reasonOf(cause error) hooks.Reason {
	var e *ending
	if errors.As(cause, &e) {
		return e.reason
	}
	if errors.Is(cause, ErrLeaseExpired) {
		return hooks.LeaseExpired
	}
	return hooks.SessionLost
}

// lost reports whether a term with that cause was taken away, not given up.
func lost(cause error) bool {
	reason := reasonOf(cause)
	return reason == hooks.SessionLost || reason == hooks.LeaseExpired
}

// because wraps err with a sentinel, unless it already does.
func because(sentinel, err error) error {
	if errors.Is(err, sentinel) {
		return err
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

// sqlState is the SQLSTATE of a driver's error, "" if it has none. The errors
// of lib/pq and of pgx both have this method.
func sqlState(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}

// broken reports whether err says that the connection was dead, or that the
// server ended it (57P01 shutdown, 57P02 crash, 57P05 idle).
func broken(err error) bool {
	var network *net.OpError
	switch sqlState(err) {
	case "57P01", "57P02", "57P05":
		return true
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network)
}

// explain names the cause of errors that have one only: a lock table that is full,
// or a pooler, where a prepared statement exists already, or no more, because
// another backend answers.
func explain(err error) error {
	switch sqlState(err) {
	case "42P05", "26000":
		return because(ErrSessionPooled, err)
	case "53200":
		return because(ErrLockTableFull, err)
	}
	return err
}

// refusesSetting reports whether the server refused a session setting, and not
// the session: an invalid value, a lack of rights, one that cannot be changed
// now, one that is not supported, or an unknown name.
func refusesSetting(err error) bool {
	switch sqlState(err) {
	case "22023", "42501", "55P02", "0A000", "42704":
		return true
	}
	return false
}

// refusals are permanent: no retry will make the server able to keep the promise.
var refusals = []error{ErrStopped, ErrSessionPooled, ErrNoAdvisoryLocks, ErrPoolTooSmall, ErrServerTooOld, ErrServerReadOnly}

func refused(err error) bool {
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// ended is the error of a context that is done: its cause.
func ended(ctx context.Context, doing string) error {
	return fmt.Errorf("elector: %s: %w", doing, context.Cause(ctx))
}

// noConnection says why the pool gave no connection, and what to do about it.
func noConnection(ctx, waitCtx context.Context, pool *sql.DB, l lease, err error) error {
	if ctx.Err() == nil && waitCtx.Err() != nil {
		stats := pool.Stats()
		return fmt.Errorf("elector: no connection from the pool within %v (%d open, %d in use, at most %d; 0 is no limit): "+
			"is the server reachable, and MaxOpenConns large enough? %w", l.validity(), stats.OpenConnections, stats.InUse, stats.MaxOpenConnections, err)
	}
	return fmt.Errorf("elector: take a connection from the pool: %w", explain(causeOr(ctx, err)))
}

package pgerr

import (
	"errors"
	"fmt"
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
	ErrSessionPooled   = errors.New("elector: a pooler shares backends between connections: connect to the server itself, or through session pooling (docs/runbook.md#behind-a-pooler)")
	ErrNoAdvisoryLocks = fmt.Errorf("%w: it grants advisory locks that do not show in pg_locks, so they exclude nobody: use a PostgreSQL server", ErrUnsupportedServer)
	ErrNoSessionLocks  = fmt.Errorf("%w: its advisory locks of sessions do not show in pg_locks, so they exclude nobody: where those of transactions do, use WithScope(Auto or TransactionScope)", ErrUnsupportedServer)
	ErrPoolTooSmall    = fmt.Errorf("%w: the pool has no connection to spare beside what a session pins", ErrConfig)
	ErrPoolClosed      = fmt.Errorf("%w: the pool is closed: close it only after Run, Stop or Close has returned", ErrConfig)
	ErrLockTableFull   = errors.New("elector: the server's lock table is full: raise max_locks_per_transaction (and restart it), or use fewer elections")
	ErrRolledBack      = errors.New("elector: the transaction was rolled back")
	ErrOutcomeUnknown  = errors.New("elector: it is not known whether the transaction was committed")
	ErrNotSynchronous  = errors.New("elector: commits do not wait for every standby that can be promoted")
	ErrTooEarly        = errors.New("elector: a leader on a server that is gone, or was replaced, may still be valid")
)

// ErrEndedByFn is returned when a function of InTx has ended its transaction.
var ErrEndedByFn = fmt.Errorf("%w: fn has ended its transaction, which InTx does: what it did before may be committed, and what it did after that "+
	"was outside the term's fence: have it send no COMMIT, ROLLBACK or PREPARE TRANSACTION", ErrOutcomeUnknown)

// ErrOpenTransaction is returned when the pool has lent a connection with a transaction that
// other code has left open. Whatever uses it would be inside that transaction.
var ErrOpenTransaction = errors.New("elector: a connection of the pool came with a transaction that other code has left open: end each with COMMIT or ROLLBACK")

// ErrMixedUp is returned when a prepared statement comes and goes. It is an ErrSessionPooled whose text says what helps first.
var ErrMixedUp error = mixedUp{}

type mixedUp struct{}

func (mixedUp) Error() string {
	return "elector: a pooler does not keep the prepared statements of this client: set default_query_exec_mode=exec in the DSN of pgx (docs/runbook.md#behind-a-pooler)"
}
func (mixedUp) Unwrap() error { return ErrSessionPooled }

// ReplacedBy is ErrOldPrimary, and names the timeline of the primary that was promoted.
func ReplacedBy(timeline int64) error { return replacedBy(timeline) }

type replacedBy int64

func (replacedBy) Error() string { return ErrOldPrimary.Error() }
func (replacedBy) Unwrap() error { return ErrOldPrimary }

// NewerTimeline returns the timeline of ReplacedBy; 0 if err is no such error.
func NewerTimeline(err error) int64 {
	timeline, _ := errors.AsType[replacedBy](err)
	return int64(timeline)
}

// Package migrations lets one process at a time migrate a database. A process that is killed or frozen does
// not keep the others out for ever, and the next one never begins while a statement of the last one still runs.
// Packages migrations/goose and migrations/golangmigrate, each a module of its own, migrate under the [Lock].
//
// What is not promised: goose has no way to cancel a migration whose term was lost. It goes
// on, and the next process waits for it.
package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// A Lock is held by the process that migrates. It is a lock.SessionLocker and a lock.Locker
// of goose. Use it for one migration at a time.
type Lock struct {
	pool    *sql.DB
	elector *elector.Elector
	term    *elector.Term
	before  [3]string // what boundGuard and noticeDeath set, before
}

const (
	retry         = 100 * time.Millisecond // between two attempts to be elected, or to take the guard
	unlockTimeout = 10 * time.Second
)

// New makes the lock. pool is of the database that is migrated, and needs three connections: New, Lock and
// SessionLock return an error that wraps elector.ErrConfig if SetMaxOpenConns allows fewer.
// elector.WithLease sets how soon a frozen process is replaced, and for how long a migration
// may leave its connection idle: for a migration in Go that computes, choose it longer.
func New(pool *sql.DB, election string, opts ...elector.Option) (*Lock, error) {
	if err := enough(pool); err != nil {
		return nil, err
	}
	quick := []elector.Option{elector.WithTakeover(elector.Poll), elector.WithRetryInterval(retry)}
	e, err := elector.New(pool, election, append(quick, opts...)...)
	return &Lock{pool: pool, elector: e}, err
}

// least is how many connections are in use at once: one migrates, one holds the election's lock,
// and one looks after that one.
const least = 3

// enough returns an error if the pool is too small. Else the migration would wait for ever for a
// connection that the lock has.
func enough(pool *sql.DB) error {
	if limit := pool.Stats().MaxOpenConnections; limit > 0 && limit < least {
		return fmt.Errorf("%w: migrations: SetMaxOpenConns(%d): want at least %d", elector.ErrConfig, limit, least)
	}
	return nil
}

// Term is the term under which this process migrates, or nil if it does not. Its context ends when the term does.
func (l *Lock) Term() *elector.Term { return l.term }

// Lock waits until this process is elected. It keeps two processes from migrating, but not a
// process from beginning while a statement of one that was killed runs on in the server.
// Prefer SessionLock, where no transaction pooler is in between.
func (l *Lock) Lock(ctx context.Context, _ *sql.DB) error {
	if err := enough(l.pool); err != nil { // it may have been set since New
		return err
	}
	term, err := l.elector.Campaign(ctx)
	if err == nil { // else another caller may have the term
		l.term = term
	}
	return err
}

// Unlock lets the next process be elected. It returns an error if the term was lost, because
// another process may have migrated meanwhile.
func (l *Lock) Unlock(ctx context.Context, _ *sql.DB) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
	defer cancel()
	term := l.term
	if l.term = nil; term == nil {
		return errors.New("migrations: Unlock without Lock")
	}
	return term.Resign(ctx)
}

// resign is Unlock under the guard, beside which nobody migrates: a lost term did no harm.
func (l *Lock) resign(ctx context.Context) error {
	if err := l.Unlock(ctx, nil); !errors.Is(err, elector.ErrNotLeader) && !errors.Is(err, elector.ErrSessionLost) {
		return err
	}
	return nil
}

// SessionLock waits until this process is elected, and then for the guard: a second lock, on
// the connection that migrates. A process that was killed may have a statement that still
// runs on that connection's backend, which keeps the guard until the statement has ended.
func (l *Lock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	for {
		if err := l.Lock(ctx, nil); err != nil {
			return err
		}
		err := l.takeGuard(ctx, conn)
		if err == nil {
			return nil
		}
		err = errors.Join(err, l.resign(ctx))
		if !errors.Is(err, errTermLost) {
			Discard(conn) // it may have the guard
			return err
		}
	}
}

// SessionUnlock releases the guard, and lets the next process be elected.
func (l *Lock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
	defer cancel()
	err := l.releaseGuard(ctx, conn)
	if err != nil {
		Discard(conn) // the server then releases the guard
	}
	return errors.Join(err, l.resign(ctx))
}

// The statements of the guard. It waits by trying: a statement that waits for a lock holds a
// snapshot, for which CREATE INDEX CONCURRENTLY waits, and that is a deadlock. The server ends
// the connection if it is idle for a lease, as that of a frozen process, and ends its
// statement soon after the process was killed, if its system can tell (Linux can).
const (
	tryGuard    = "SELECT pg_catalog.pg_try_advisory_lock($1::pg_catalog.int4, $2::pg_catalog.int4)"
	boundGuard  = "SELECT pg_catalog.set_config('idle_session_timeout', $1, false), pg_catalog.set_config('idle_in_transaction_session_timeout', $1, false)"
	noticeDeath = "SET client_connection_check_interval = '500ms'"
	unlockGuard = "SELECT pg_catalog.pg_advisory_unlock($1::pg_catalog.int4, $2::pg_catalog.int4)"
	settings    = "SELECT pg_catalog.current_setting('idle_session_timeout'), pg_catalog.current_setting('idle_in_transaction_session_timeout'), pg_catalog.current_setting('client_connection_check_interval')"
	unbound     = "SELECT pg_catalog.set_config('idle_session_timeout', $1, false), pg_catalog.set_config('idle_in_transaction_session_timeout', $2, false), pg_catalog.set_config('client_connection_check_interval', $3, false)"
)

var errTermLost = errors.New("migrations: the term was lost while waiting for the last process's statement")

// guard is the key of the guard, in the space of keys that no election uses.
func (l *Lock) guard() (high, low int32) {
	key := elector.KeyFromName(l.elector.Election() + " guard of migrations")
	return int32(key >> 32), int32(key)
}

func (l *Lock) takeGuard(ctx context.Context, conn *sql.Conn) error {
	own := l.elector.Settings()
	if own.Scope == elector.TransactionScope {
		return errors.New("migrations: a transaction pooler shares the connection with others: use goose.WithLocker")
	}
	high, low := l.guard()
	for taken := false; !taken; {
		if err := conn.QueryRowContext(ctx, tryGuard, high, low).Scan(&taken); err != nil {
			return fmt.Errorf("migrations: take the guard: %w", err)
		}
		if taken {
			break
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.term.Context().Done():
			return errTermLost
		}
	}
	// Where ctx has ended, pgx sends nothing and calls the connection bad. A pool below the pool would keep it, with the guard.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
	defer cancel()
	if err := conn.QueryRowContext(ctx, settings).Scan(&l.before[0], &l.before[1], &l.before[2]); err != nil {
		return fmt.Errorf("migrations: read the settings: %w", err)
	}
	if _, err := conn.ExecContext(ctx, boundGuard, fmt.Sprint(own.Lease.Milliseconds())); err != nil {
		return fmt.Errorf("migrations: bound the guard: %w", err)
	}
	_, _ = conn.ExecContext(ctx, noticeDeath) // else a statement runs to its end
	return nil
}

func (l *Lock) releaseGuard(ctx context.Context, conn *sql.Conn) error {
	high, low := l.guard()
	var released bool
	if err := conn.QueryRowContext(ctx, unlockGuard, high, low).Scan(&released); err != nil {
		return fmt.Errorf("migrations: release the guard: %w", err)
	}
	if !released {
		return errors.New("migrations: the connection had lost the guard")
	}
	if _, err := conn.ExecContext(ctx, unbound, l.before[0], l.before[1], l.before[2]); err != nil {
		return fmt.Errorf("migrations: restore the settings: %w", err)
	}
	return nil
}

// Discard closes a connection instead of returning it to its pool: for one on which migrations may have left settings,
// a role or a lock. conn.Close then returns sql.ErrConnDone.
func Discard(conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	_, _ = conn.ExecContext(ctx, "BEGIN") // a pool below this one, as a pgxpool, keeps no connection that is inside a transaction
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// InvalidIndexes lists the indexes that a CREATE INDEX CONCURRENTLY has not finished, or not
// finished yet. A migration that begins with DROP INDEX CONCURRENTLY IF EXISTS leaves none.
func InvalidIndexes(ctx context.Context, pool *sql.DB) (names []string, err error) {
	rows, err := pool.QueryContext(ctx, `SELECT i.indexrelid::pg_catalog.regclass::pg_catalog.text FROM pg_catalog.pg_index i
		JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) i.indexrelid
		WHERE NOT i.indisvalid AND c.relkind OPERATOR(pg_catalog.=) 'i'::pg_catalog."char" ORDER BY 1`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

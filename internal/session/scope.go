package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
)

// A Scope is how long the locks of a session last.
type Scope int

const (
	Auto Scope = iota // SessionScope, unless a transaction pooler is found
	SessionScope
	TransactionScope
)

// In transaction scope a session has its locks and settings inside one transaction, for which
// a transaction pooler keeps a backend. The server ends the transaction of a silent client
// (idle_in_transaction_session_timeout), as it ends an idle session otherwise.
//
// The transaction has no snapshot and no transaction id, which would hold back VACUUM. After a
// query of the extended protocol its portal keeps a snapshot until the next statement. So
// PingTransaction follows each query. Statements that need a transaction id, or read a
// relation (whose lock would last until the end), run on another connection. An error ends the
// transaction, and so the session.

// InTransaction reports whether the session has its locks inside a transaction.
func (s *Session) InTransaction() bool { return s.inside }

// Stay sends PingTransaction. It returns nil if the session's transaction, and so each of its
// locks, is there; and outside a transaction.
func (s *Session) Stay(ctx context.Context) error {
	if !s.inside {
		return nil
	}
	_, err := doSimple(ctx, s, func(ctx context.Context, _ *db.Queries) (any, error) { return nil, s.pingTransaction(ctx) })
	return err
}

// Anew begins another transaction, without the locks of the last one.
func (s *Session) Anew(ctx context.Context) error {
	if err := s.rollBack(ctx, nil); err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return explainBegin(s, err)
	}
	return nil
}

// TryInTransaction tries the lock of the setting pgelector.key.
func (s *Session) TryInTransaction(ctx context.Context) (granted bool, err error) {
	rows, err := doSimple(ctx, s, func(ctx context.Context, q *db.Queries) (int64, error) { return q.TryInTransaction(ctx) })
	if err == nil && rows == 0 {
		err = errTransactionOver
	}
	return rows == 2, err
}

// behindSavepoint is Do for a call that the server may refuse, which would end the session's
// transaction.
func behindSavepoint[T any](ctx context.Context, s *Session, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	return tryOr(ctx, s, call, func(T) {})
}

// tryOr is DoOr for a call that the server may refuse, which would end the session's
// transaction.
func tryOr[T any](ctx context.Context, s *Session, call func(context.Context, *db.Queries) (T, error), drop func(T)) (T, error) {
	a, err := DoOr(ctx, s, func(ctx context.Context, q *db.Queries) (any, error) {
		return s.savepoint(ctx, func() (any, error) { return call(ctx, q) })
	}, func(late any) {
		value, _ := late.(T)
		drop(value)
	})
	value, _ := a.(T)
	if err == nil {
		err, _ = a.(error)
	}
	return value, err
}

// savepoint returns the value of the call, or as the value the error with which the server
// refuses it. The savepoint stays if the call has taken a lock for now.
func (s *Session) savepoint(ctx context.Context, call func() (any, error)) (value any, err error) {
	if !s.pin.InTx() {
		return call()
	}
	if err = s.pin.Exec(ctx, db.Savepoint); err != nil {
		return nil, err
	}
	before := s.forNow
	if value, err = call(); pgerr.State(err) != "" {
		value = err
		err = s.pin.Exec(ctx, db.RollBackToIt)
	}
	if err == nil && s.forNow == before {
		err = s.pin.Exec(ctx, db.ReleaseIt)
	}
	return value, err
}

// EndTransaction commits the session's transaction, and so releases its locks. It is called
// within Do, and reports whether the session had them until then.
func (s *Session) EndTransaction(ctx context.Context) (held bool, err error) {
	if err := s.pingTransaction(ctx); err != nil {
		return false, err
	}
	return true, s.commit()
}

// commit is called within Do.
func (s *Session) commit() error {
	s.stays = false
	return s.pin.Commit()
}

// Apart is Do for a call whose locks and transaction id must not last as long as those of
// the session. In transaction scope another connection makes it.
func Apart[T any](ctx context.Context, s *Session, call func(context.Context, *db.Queries) (T, error)) (value T, err error) {
	bound := s.Proof.Left()
	if s.aside != nil { // just granted, by the extended protocol, and not started
		bound = 2 * s.Proof.Lease.Validity()
		defer s.staying(ctx)()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bound, s.errTimeout)
	defer cancel()
	if value, err = Beside(ctx, s, call); err == nil {
		err = s.Stay(ctx) // if it has its lock still, nobody else had it meanwhile
	}
	return value, err
}

// staying keeps a session alive that is not started, until stop is called.
func (s *Session) staying(ctx context.Context) (stop func()) {
	pausing, cancel := context.WithCancel(ctx)
	var pings sync.WaitGroup
	pings.Go(func() {
		for s.Stay(ctx) == nil && backoff.Sleep(pausing, s.Proof.Lease.Heartbeat) {
		}
	})
	return func() {
		cancel()
		pings.Wait()
	}
}

// Beside is Apart for a call that says nothing of the session, which need not hold a lock.
func Beside[T any](ctx context.Context, s *Session, call func(context.Context, *db.Queries) (T, error)) (value T, err error) {
	if !s.inside {
		return Do(ctx, s, call)
	}
	aside, own := s.aside, s.aside == nil
	if own { // as while it leads
		if aside, err = s.borrowAside(ctx); err != nil {
			return value, err
		}
	}
	value, err = once(ctx, aside, s.settings, call)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows): // a call may go on
		aside.Discard()
		if !own {
			s.aside = nil
		}
	case own:
		aside.GiveBack()
	}
	return value, err
}

// once makes a call in a transaction of its own, with the settings.
func once[T any](ctx context.Context, s *Session, settings string, call func(context.Context, *db.Queries) (T, error)) (value T, err error) {
	s.inside = true // begin finds a transaction that other code has left open, whose commit is not ours
	if err := s.begin(ctx); err != nil {
		return value, err
	}
	_, err = doFresh(ctx, s, func(ctx context.Context, q *db.Queries) (int64, error) {
		return q.ApplySettings(ctx, db.ApplySettingsParams{Settings: settings, OnlyLocal: true})
	})
	if err == nil {
		value, err = doFresh(ctx, s, call)
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return value, s.rollBack(ctx, err)
	}
	if _, failed := doFresh(ctx, s, func(context.Context, *db.Queries) (any, error) { return nil, s.commit() }); failed != nil {
		err = failed // even of no rows: the call may go on
	}
	return value, err
}

// noTransaction says what may be the cause. There may be no pooler.
const noTransaction = "no answer, or the connection was closed: is the server reachable? If there is a pooler, then the pooler may have no server connection left " +
	"(default_pool_size and query_wait_timeout of PgBouncer), not reach the server, or permit no transactions (statement pooling)"

// explainBegin says why a transaction did not begin, as far as a pooler may be the cause.
func explainBegin(s *Session, err error) error {
	switch {
	case s.TimedOut(err), pooled.IsRefusal(err): // which no driver distinguishes
		return fmt.Errorf("elector: begin a transaction: "+noTransaction+": %w", err)
	case pgerr.State(err) == "0A000": // READ WRITE, in recovery
		return fmt.Errorf("elector: begin a transaction: %w", pgerr.Wrap(pgerr.ErrServerReadOnly, err))
	}
	return fmt.Errorf("elector: begin a transaction: %w", pgerr.Explain(err))
}

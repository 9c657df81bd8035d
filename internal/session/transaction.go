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
	"github.com/pgelector/pgelector/internal/pin"
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
func (s *Session) InTransaction() bool { return s.tx.inside }

// BeginTransaction has the next calls made within a transaction, until RollBack.
func (s *Session) BeginTransaction(ctx context.Context) error {
	_, err := s.Fresh().Call(ctx, func(ctx context.Context, _ *db.Queries) error {
		s.tx.mark = ""
		err := s.pin.Begin(ctx)
		for _, level := range []string{db.RepeatableRead, db.ReadCommitted} {
			if err == nil && s.tx.inside {
				err = s.pin.Exec(ctx, level)
			}
		}
		if state := pgerr.State(err); state == "25001" || state == "25P02" {
			err = pgerr.Wrap(pgerr.ErrOpenTransaction, err)
		}
		return err
	}, nil)
	return err
}

// RollBack ends the transaction. It returns err, or why the rollback failed.
func (s *Session) RollBack(ctx context.Context, err error) error {
	_, failed := s.Fresh().Call(ctx, func(context.Context, *db.Queries) error {
		s.tx.probeAfterCall = false
		return s.pin.RollBack()
	}, nil)
	if err != nil {
		return err
	}
	return failed
}

// Stay sends PingTransaction. It returns nil if the session's transaction, and so each of its
// locks, is there; and outside a transaction.
func (s *Session) Stay(ctx context.Context) error {
	if !s.tx.inside {
		return nil
	}
	_, err := s.Simple().Call(ctx, func(ctx context.Context, _ *db.Queries) error { return s.pingTransaction(ctx) }, nil)
	return err
}

// Anew begins another transaction, without the locks of the last one.
func (s *Session) Anew(ctx context.Context) error {
	if err := s.RollBack(ctx, nil); err != nil {
		return err
	}
	if err := s.BeginTransaction(ctx); err != nil {
		return explainBegin(s, err)
	}
	return nil
}

// TryInTransaction tries the lock of the setting pgelector.key.
func (s *Session) TryInTransaction(ctx context.Context) (granted bool, err error) {
	rows, err := Ask0(ctx, s.Simple(), (*db.Queries).TryInTransaction)
	if err == nil && rows == 0 {
		err = ErrTransactionOver
	}
	return rows == 2, err
}

// pingTransaction asks whether the transaction goes on. It is called within Do.
func (s *Session) pingTransaction(ctx context.Context) error {
	if !s.pin.InTx() {
		return ErrTransactionOver
	}
	state, err := s.pin.Show(ctx, db.PingTransaction)
	if pgerr.State(err) == "42704" || err == nil && (state == "" || state != s.tx.mark) {
		err = ErrTransactionOver
	}
	return err
}

// Trial makes calls that the server may refuse, which would end the session's transaction.
func (s *Session) Trial() Caller {
	return caller(func(ctx context.Context, call pin.Call, late func()) (bool, error) {
		var refused error
		answered, err := s.Call(ctx, func(ctx context.Context, q *db.Queries) (err error) {
			refused, err = s.savepoint(ctx, func() error { return call(ctx, q) })
			return err
		}, func() {
			if refused == nil && late != nil {
				late()
			}
		})
		if answered && err == nil {
			err = refused
		}
		return answered, err
	})
}

// savepoint makes a call. refused is the error with which the server refuses it, after which the
// transaction goes on. The savepoint stays if the call has taken a lock for now.
func (s *Session) savepoint(ctx context.Context, call func() error) (refused, err error) {
	if !s.pin.InTx() {
		return nil, call()
	}
	if err = s.pin.Exec(ctx, db.Savepoint); err != nil {
		return nil, err
	}
	before := s.tx.forNow
	if err = call(); pgerr.State(err) != "" {
		refused = err
		err = s.pin.Exec(ctx, db.RollBackToIt)
	}
	if err == nil && s.tx.forNow == before {
		err = s.pin.Exec(ctx, db.ReleaseIt)
	}
	return refused, err
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
	s.tx.probeAfterCall = false
	return s.pin.Commit()
}

// AuxThenVerify makes calls whose locks and transaction id must not last as long as those of the session. In
// transaction scope another connection makes them.
func (s *Session) AuxThenVerify() Caller {
	return caller(func(ctx context.Context, call pin.Call, late func()) (bool, error) {
		bound := s.Proof.Left()
		if s.tx.aux != nil { // just granted, by the extended protocol, and not started
			bound = 2 * s.Proof.Lease.Validity()
			defer s.staying(ctx)()
		}
		ctx, cancel := context.WithTimeoutCause(ctx, bound, s.errTimeout)
		defer cancel()
		answered, err := s.Aux().Call(ctx, call, late)
		if err == nil {
			err = s.Stay(ctx) // if it has its lock still, nobody else had it meanwhile
		}
		return answered, err
	})
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

// Aux is AuxThenVerify for calls that say nothing of the session, which need not hold a lock.
func (s *Session) Aux() Caller {
	if !s.tx.inside {
		return s
	}
	return caller(func(ctx context.Context, call pin.Call, _ func()) (answered bool, err error) {
		aux, own := s.tx.aux, s.tx.aux == nil
		if own { // as while it leads
			if aux, err = s.tx.borrowAux(ctx); err != nil {
				return false, err
			}
		}
		answered, err = aux.inOwnTx(ctx, s.tx.settings, call)
		switch {
		case err != nil && !errors.Is(err, sql.ErrNoRows): // a call may go on
			aux.Discard()
			if !own {
				s.tx.aux = nil
			}
		case own:
			aux.GiveBack()
		}
		return answered, err
	})
}

// inOwnTx makes a call in a transaction of its own, with the settings.
func (s *Session) inOwnTx(ctx context.Context, settings string, call pin.Call) (answered bool, err error) {
	s.tx.inside = true // Begin finds a transaction that other code has left open, whose commit is not ours
	if err := s.BeginTransaction(ctx); err != nil {
		return false, err
	}
	_, err = Ask(ctx, s.Fresh(), (*db.Queries).ApplySettings, db.ApplySettingsParams{Settings: settings, OnlyLocal: true})
	if err == nil {
		answered, err = s.Fresh().Call(ctx, call, nil)
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return answered, s.RollBack(ctx, err)
	}
	if _, failed := s.Fresh().Call(ctx, func(context.Context, *db.Queries) error { return s.commit() }, nil); failed != nil {
		err = failed // even of no rows: the call may go on
	}
	return answered, err
}

// NoTransaction says what may be the cause. There may be no pooler.
const NoTransaction = "no answer, or the connection was closed: is the server reachable? If there is a pooler, then the pooler may have no server connection left " +
	"(default_pool_size and query_wait_timeout of PgBouncer), not reach the server, or permit no transactions (statement pooling)"

// explainBegin says why a transaction did not begin, as far as a pooler may be the cause.
func explainBegin(s *Session, err error) error {
	switch {
	case s.TimedOut(err), pooled.IsRefusal(err): // which no driver distinguishes
		return fmt.Errorf("elector: begin a transaction: "+NoTransaction+": %w", err)
	case pgerr.State(err) == "0A000": // READ WRITE, in recovery
		return fmt.Errorf("elector: begin a transaction: %w", pgerr.Wrap(pgerr.ErrServerReadOnly, err))
	}
	return fmt.Errorf("elector: begin a transaction: %w", pgerr.Explain(err))
}

// ApplyLocally applies settings for the rest of the transaction.
func (s *Session) ApplyLocally(ctx context.Context, settings []Setting) error {
	_, err := Ask(ctx, s.Fresh(), (*db.Queries).ApplySettings, db.ApplySettingsParams{Settings: Encode(settings), OnlyLocal: true})
	return err
}

package fenced

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/transaction"
)

// mostElsewhere is how many connections that lead to another server are passed over at most, beside those
// that were idle: a pool may lead to a primary and its standbys in turn.
const mostElsewhere = 3

// Enter begins a transaction that the next holder of the lock waits for, on any connection of the same database,
// and bounds how long that can take. A connection that is of no use is closed, and the next one is tried: one that
// is dead or silent, that is inside a transaction of other code, or that leads to a standby or to an old primary.
// The error wraps pgerr.ErrSessionLost if the session does not hold the lock any more, ErrGuardTaken if it does and
// another session is at the barrier, pgerr.ErrConfig if the pool leads elsewhere, and pgerr.ErrOpenTransaction if
// other code has written in the transaction.
func (in Term) Enter(ctx context.Context, pool *sql.DB, opts *sql.TxOptions) (*Tx, error) {
	name, err := in.name(ctx)
	if err != nil {
		return nil, err
	}
	for idle, elsewhere := pooled.NextIdle(pool), 0; ; {
		tx, again, err := in.try(ctx, name, pool, opts)
		if err == nil || !again || ctx.Err() != nil {
			return tx, err
		}
		if isElsewhere(err) && elsewhere < mostElsewhere {
			elsewhere++
		} else if !idle.More() {
			return nil, err
		}
	}
}

// name returns nameOf the session. An error of nameOf says nothing about the lock, so name then verifies the lock.
func (in Term) name(ctx context.Context) (int64, error) {
	name, err := nameOf(ctx, in.Lock.Session())
	if err != nil {
		err = fmt.Errorf("elector: name the session for fenced transactions: %w", pgerr.Explain(err))
		if lost := in.Lock.Verify(ctx); lost != nil {
			err = pgerr.Wrap(lost, err)
		}
	}
	return name, err
}

// An entry is one try to enter the term.
type entry struct {
	tx      *Tx
	taken   atomic.Bool    // the pool has given a connection
	begun   atomic.Bool    // so BEGIN was answered, and what follows has a context that ends by itself
	spoilt  bool           // the connection was of no use, and is closed
	outcome string         // of db.EnterTerm
	reached db.IdentifyRow // the server, unless the outcome is "entered"
	unknown error          // why the server is not known
}

// try makes one try, on one connection. again reports that the connection was of no use, and was closed.
func (in Term) try(ctx context.Context, name int64, pool *sql.DB, opts *sql.TxOptions) (tx *Tx, again bool, err error) {
	own, giveUp := context.WithCancel(ctx)
	bounded, cancel := in.toEnter(ctx)
	defer cancel()
	e := &entry{tx: &Tx{term: in, pool: pool, giveUp: giveUp}}
	full := election.IsFull(pool)
	returned := make(chan struct{})
	answered, err := backoff.Answer(bounded, func() error {
		defer close(returned)
		return e.enter(bounded, own, name, opts)
	}, e.tx.end)
	if !answered && !e.begun.Load() || answered && (err != nil || e.outcome != "entered") {
		defer giveUp()
	}
	late, isLate := context.Cause(bounded).(silent)
	switch {
	case err != nil && isLate:
		return nil, true, in.silence(bounded, pool, full, e.taken.Load(), late, err)
	case err != nil && ctx.Err() != nil:
		if e.begun.Load() { // a driver that listens rolls back now
			select {
			case <-returned:
			case <-time.After(in.grace()):
			}
		}
		return nil, false, err
	case err != nil:
		e.tx.Suspect(ctx, err)
		return nil, e.spoilt, err
	case e.outcome == "entered":
		return e.tx, false, nil
	case e.outcome == "open":
		_ = e.tx.conn.Close()
		return nil, false, pgerr.ErrOpenTransaction
	}
	err = in.refusal(ctx, e)
	again = isElsewhere(err) && !errors.Is(err, pgerr.ErrSessionLost)
	e.tx.close(again)
	return nil, again, err
}

// enter takes a connection, begins a transaction, and has it enter the term. The transaction has the context own:
// database/sql would roll back when bounded ends, which is that of the single statements.
func (e *entry) enter(bounded, own context.Context, name int64, opts *sql.TxOptions) (err error) {
	tx := e.tx
	if err = tx.take(bounded); err != nil {
		return err
	}
	e.taken.Store(true)
	if tx.Tx, err = tx.conn.BeginTx(own, opts); pgerr.State(err) == "0A000" { // a standby: lib/pq wants to write
		e.outcome = "ended"
		e.reached, e.unknown = db.New(tx.conn).Identify(bounded)
		return nil
	}
	var row db.EnterTermRow
	if err == nil {
		e.begun.Store(true)
		if row, err = db.New(tx.Tx).EnterTerm(bounded, tx.term.params(name)); err != nil {
			_ = tx.Tx.Rollback()
			err = fmt.Errorf("elector: enter the term: %w", err)
		}
	}
	if err != nil {
		e.spoilt = tx.isSpoilt(err)
		_ = tx.conn.Close()
		tx.giveUp()
		return err
	}
	e.outcome, tx.name = row.Outcome, row.Fenced
	if e.outcome == "entered" {
		return nil
	}
	if e.outcome != "open" {
		e.reached, e.unknown = db.New(tx.Tx).Identify(bounded)
	}
	_ = tx.Tx.Rollback() // before the session is asked, which may take its time: the next leader waits for the transaction
	return nil
}

func (in Term) params(name int64) db.EnterTermParams {
	l := in.Lock
	high, low := lockkey.Halves(l.Key())
	return db.EnterTermParams{GuardHigh: high, GuardLow: low, Key: l.Key(), Pid: l.Session().PID(), Name: name, Transaction: transaction.Name(l.Session()),
		Settings: settings(l.Session().Lease().Length)}
}

// silence reports a connection that has not answered in time, and returns the error.
func (in Term) silence(bounded context.Context, pool *sql.DB, full, taken bool, late silent, err error) error {
	if taken {
		err = fmt.Errorf("elector: a connection of the pool does not answer InTx, and is given up: %w: does something between this program and "+
			"the server forget connections that are idle? A shorter SetConnMaxIdleTime closes them before", late)
	} else {
		err = election.NoConnection(bounded, true, pool, full, late.bound, pgerr.Wrap(pgerr.ErrNoAnswer, err))
	}
	in.suspect(pool)
	in.Report(err)
	return err
}

// refusal returns why the transaction could not enter its term.
func (in Term) refusal(ctx context.Context, e *entry) error {
	l := in.Lock
	switch err := l.Verify(ctx); {
	case err != nil:
		return err
	case e.outcome == "superseded" && e.unknown == nil && in.Places.IsOn(ctx, l.Session(), e.reached): // a next leader would have the lock
		return ErrGuardTaken
	case e.unknown == nil:
		return in.Places.Elsewhere(ctx, l.Session(), e.reached)
	}
	return fmt.Errorf("%w: the session of the term (backend %d) holds its lock, but not on the server and database of this pool", pgerr.ErrConfig, l.Session().PID())
}

// isElsewhere reports whether an error says that a connection leads to a standby or to another primary.
func isElsewhere(err error) bool {
	return errors.Is(err, pgerr.ErrServerReadOnly) || errors.Is(err, pgerr.ErrOldPrimary)
}

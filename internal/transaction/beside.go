package transaction

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/pooled"
)

// Beside asks what a session inside a transaction must not ask: the locks on the relations that are read, and the transaction
// id, would last as long as the session's own locks. So another connection asks. In session scope the session asks.
func Beside[A, T any](ctx context.Context, s *election.Session, statement func(*db.Queries, context.Context, A) (T, error), argument A) (T, error) {
	t := Of(s)
	if t == nil {
		return election.Ask(ctx, s, statement, argument)
	}
	return pooled.Value(statement, argument, func(call pin.Call) error { return t.beside(ctx, call) })
}

// BesideThenStay asks as Beside does. It returns an error unless the session still has its locks after the answer.
func BesideThenStay[A, T any](ctx context.Context, s *election.Session, statement func(*db.Queries, context.Context, A) (T, error), argument A) (T, error) {
	t := Of(s)
	if t == nil {
		return election.Ask(ctx, s, statement, argument)
	}
	return pooled.Value(statement, argument, func(call pin.Call) error { return t.besideThenStay(ctx, s, call) })
}

func (t *Statements) besideThenStay(ctx context.Context, s *election.Session, call pin.Call) error {
	bound := s.Left()
	if !s.IsStarted() { // just granted, by the extended protocol
		bound = s.Lease().Validity()
		defer t.staying(ctx, s)()
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	err := t.beside(ctx, call)
	if err == nil {
		err = s.Heartbeat(ctx) // if the session still has its lock, nobody else had the lock meanwhile
	}
	return err
}

// staying keeps a session alive until stop is called, although the session is not started.
func (t *Statements) staying(ctx context.Context, s *election.Session) (stop func()) {
	pausing, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go backoff.Apart(func() {
		defer close(stopped)
		for s.Heartbeat(ctx) == nil && backoff.Sleep(pausing, t.from.Lease.Heartbeat) {
		}
	})()
	return func() {
		cancel()
		<-stopped
	}
}

// beside makes a call on another connection.
func (t *Statements) beside(ctx context.Context, call pin.Call) (err error) {
	aux := t.aux.Load()
	borrowed := aux == nil
	if borrowed { // as while it leads
		if aux, err = t.from.Take(ctx); err != nil {
			return err
		}
		aux.StayInside()
	}
	err = inOwn(ctx, t.from, aux, call)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows): // a call may go on
		if borrowed || t.aux.CompareAndSwap(aux, nil) {
			aux.Discard(true, false)
		}
	case borrowed:
		aux.GiveBack()
	}
	return err
}

// On asks on another connection of the pool, in a transaction of its own if candidates lead inside transactions. It waits no longer
// than the validity.
func On[A, T any](ctx context.Context, from *election.Source, inside bool, statement func(*db.Queries, context.Context, A) (T, error), argument A) (T, error) {
	return pooled.Value(statement, argument, func(call pin.Call) error { return on(ctx, from, inside, call) })
}

func on(ctx context.Context, from *election.Source, inside bool, call pin.Call) error {
	validity := from.Lease.Validity()
	ctx, cancel := context.WithTimeoutCause(ctx, validity, fmt.Errorf("%w within %v", pgerr.ErrNoAnswer, validity))
	defer cancel()
	conn, err := from.Take(ctx)
	if err != nil {
		return err
	}
	if inside {
		conn.StayInside()
		err = inOwn(ctx, from, conn, call)
	} else {
		_, err = conn.Call(ctx, call, nil)
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) { // the call may go on
		conn.Discard(inside, false)
		return err
	}
	conn.GiveBack()
	return err
}

// inOwn makes a call on another connection, in a transaction of its own with the session's settings.
func inOwn(ctx context.Context, from *election.Source, aux *pin.Conn, call pin.Call) error {
	_, err := aux.Call(ctx, func(ctx context.Context, _ *db.Queries) error {
		err := beginOwn(ctx, from, aux)
		if err == nil {
			err = call(ctx, aux.Queries())
		}
		switch {
		case !aux.InTx():
			return err
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			_ = aux.RollBack()
			return err
		}
		return cmp.Or(aux.Commit(), err)
	}, nil)
	return err
}

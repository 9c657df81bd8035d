// Package transaction is transaction scope: a session has its locks and settings inside one transaction,
// for which a transaction pooler keeps a backend. The server ends the transaction of a silent client
// (idle_in_transaction_session_timeout), as it ends an idle session otherwise.
//
// The transaction has no snapshot and no transaction id, which would hold back VACUUM. After a
// query of the extended protocol its portal keeps a snapshot until the next statement. So
// PingTransaction follows each query. Statements that need a transaction id, or read a
// relation (whose lock would last until the end), run on another connection. An error ends the
// transaction, and so the session.
package transaction

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/session"
	"github.com/pgelector/pgelector/internal/turn"
)

// ErrOver is returned when a session's transaction has ended on the server.
var ErrOver = errors.New("elector: the transaction that held the lock has ended on the server")

// A Transaction owns the locks of a session. It implements session.Owner and lock.Owner.
type Transaction struct {
	s        *session.Session
	from     *session.Source  // of a connection for Aux
	released bool             // its locks, on purpose
	forNow   bool             // a savepoint stays open, for a lock that LetGo releases
	aux      *session.Session // makes the calls of Aux; may be nil
}

// A Part lends sessions in transaction scope.
type Part struct{}

// Turns are those of who checks a server, or takes two connections for a session: one at a time on each
// pool. Of many electors of one pool each might get one connection, and wait for the other until all
// give up.
var Turns turn.Queues

// LendToLead first takes the second connection, so that a granted lock never waits for one.
func (Part) LendToLead(ctx context.Context, from *session.Source) (*session.Session, error) {
	_, leave, err := Turns.Take(ctx, from.Pool())
	if err != nil {
		return nil, fmt.Errorf("elector: wait for two connections: %w", err)
	}
	defer leave()
	aux, err := onPrimary(ctx, from, func() (*session.Session, error) { return from.Borrow(ctx) })
	if err != nil {
		return nil, err
	}
	s, err := onPrimary(ctx, from, func() (*session.Session, error) { return from.Lend(ctx, true) })
	if err != nil {
		aux.Discard()
		return nil, err
	}
	s.Owner().(*Transaction).aux = aux
	return s, nil
}

// maxServers is how many servers a pool may lead to in turn.
const maxServers = 3

// onPrimary lends a session on a primary. If the check of the server has met a standby, the pool may lead
// there in turn: of two new connections one is useless, at each attempt.
func onPrimary(ctx context.Context, from *session.Source, lend func() (*session.Session, error)) (*session.Session, error) {
	if !from.MetStandby() {
		return lend()
	}
	for n := 1; ; n++ {
		s, err := lend()
		if err == nil {
			var server db.DescribeServerRow
			if server, err = session.Describe(ctx, s); err == nil && !server.InRecovery {
				return s, nil
			}
			s.Discard()
			err = cmp.Or(err, pgerr.ErrServerReadOnly)
		}
		if n == maxServers || !errors.Is(err, pgerr.ErrServerReadOnly) {
			return nil, err
		}
	}
}

// Begin makes a transaction the owner of the session's locks. If one is, it is rolled back.
func (Part) Begin(ctx context.Context, from *session.Source, s *session.Session) error {
	t, ok := s.Owner().(*Transaction)
	if !ok {
		t = own(s, from.Copy())
	} else if err := t.RollBack(ctx); err != nil {
		return err
	}
	return explain(t.begin(ctx))
}

func own(s *session.Session, from *session.Source) *Transaction {
	t := &Transaction{s: s, from: from}
	s.SetOwner(t)
	return t
}

// begin has the next calls made within a transaction, until RollBack.
func (t *Transaction) begin(ctx context.Context) error {
	started, _ := t.s.Backend.Mark()
	t.s.Backend.SetMark(started, "")
	t.released, t.forNow = false, false
	return begin(ctx, t.s, db.RepeatableRead, db.ReadCommitted)
}

// begin begins a transaction on the session's connection, by these statements. A transaction that other
// code has left open is an error.
func begin(ctx context.Context, s *session.Session, statements ...string) error {
	_, err := s.Fresh().Call(ctx, func(ctx context.Context, _ *db.Queries) error {
		err := s.Pin().Begin()
		for _, statement := range statements {
			if err == nil {
				err = s.Pin().Exec(ctx, statement)
			}
		}
		switch pgerr.State(err) {
		case "25001", "25P02":
			err = pgerr.Wrap(pgerr.ErrOpenTransaction, err)
		case "0A000": // READ WRITE, which lib/pq always asks for, in recovery
			err = pgerr.Wrap(pgerr.ErrServerReadOnly, err)
		}
		return err
	}, nil)
	return err
}

// RollBack ends the transaction, if there is one.
func (t *Transaction) RollBack(ctx context.Context) error {
	if !t.s.Pin().InTx() {
		return nil
	}
	return t.end(ctx, (*pin.Conn).RollBack)
}

// end ends the transaction in that way.
func (t *Transaction) end(ctx context.Context, by func(*pin.Conn) error) error {
	_, err := t.s.Fresh().Call(ctx, func(context.Context, *db.Queries) error {
		t.released = true
		return by(t.s.Pin())
	}, nil)
	return err
}

// NoAnswer says what may be the cause if a transaction does not begin. There may be no pooler.
const NoAnswer = "no answer, or the connection was closed: is the server reachable? A pooler may have no server connection left " +
	"(default_pool_size of PgBouncer), or permit no transactions (docs/runbook.md#behind-a-pooler)"

// explain says why a transaction did not begin, as far as a pooler may be the cause.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case session.TimedOut(err), pooled.IsRefusal(err): // which no driver distinguishes
		return fmt.Errorf("elector: begin a transaction: "+NoAnswer+": %w", err)
	}
	return fmt.Errorf("elector: begin a transaction: %w", pgerr.Explain(err))
}

// Apply applies settings for the rest of the transaction that the session is in.
func Apply(ctx context.Context, s *session.Session, settings []session.Setting) error {
	_, err := session.Ask(ctx, s.Fresh(), (*db.Queries).ApplySettings, db.ApplySettingsParams{Settings: session.Encode(settings), OnlyLocal: true})
	return err
}

// Try applies settings in a transaction that it rolls back. The session is in session scope.
func Try(ctx context.Context, s *session.Session, settings []session.Setting) error {
	err := begin(ctx, s)
	if err != nil {
		return err
	}
	err = Apply(ctx, s, settings)
	_, failed := s.Fresh().Call(ctx, func(context.Context, *db.Queries) error { return s.Pin().RollBack() }, nil)
	return cmp.Or(err, failed)
}

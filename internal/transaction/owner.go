package transaction

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/session"
)

func (t *Transaction) Scope() session.Scope { return session.TransactionScope }

// holds reports whether the transaction holds locks that are relied on: a call that fails costs them, and
// a pooler may have ended it between two calls.
func (t *Transaction) holds() bool { return t.s.IsStarted() && !t.released }

func (t *Transaction) After(ctx context.Context) error {
	if t.holds() {
		return t.ping(ctx)
	}
	return nil
}

// Failed reports whether the server has released the locks.
func (t *Transaction) Failed() bool { return t.holds() }

// Ping has requests looked for after each heartbeat: it cannot try a lock, because a full lock table
// would end the transaction.
func (t *Transaction) Ping(ctx context.Context, _ *db.Queries) (db.PingRow, error) {
	answer := db.PingRow{Pid: t.s.PID(), Rung: true}
	if !t.s.Pin().InTx() { // it was released
		return answer, nil
	}
	return answer, t.ping(ctx)
}

func (t *Transaction) Stay(ctx context.Context) error {
	_, err := t.s.Simple().Call(ctx, func(ctx context.Context, _ *db.Queries) error { return t.ping(ctx) }, nil)
	return err
}

// ping asks whether the transaction, and so each of its locks, is there. It is called within Do.
func (t *Transaction) ping(ctx context.Context) error {
	if !t.s.Pin().InTx() {
		return ErrOver
	}
	state, err := t.s.Pin().Show(ctx, db.PingTransaction)
	if _, mark := t.s.Backend.Mark(); pgerr.State(err) == "42704" || err == nil && (state == "" || state != mark) {
		err = ErrOver
	}
	return err
}

// By makes trials behind a savepoint, and calls whose locks and transaction id must not last as long as
// those of the session on another connection.
func (t *Transaction) By(way session.Way) session.Caller {
	switch way {
	case session.Trial:
		return session.CallerFunc(t.behindSavepoint)
	case session.Aux:
		return session.CallerFunc(t.onAux)
	}
	return session.CallerFunc(t.onAuxThenVerify)
}

// behindSavepoint makes a call that the server may refuse, after which the transaction goes on.
func (t *Transaction) behindSavepoint(ctx context.Context, call pin.Call, late func()) (bool, error) {
	var refused error
	answered, err := t.s.Call(ctx, func(ctx context.Context, q *db.Queries) (err error) {
		refused, err = t.savepoint(ctx, func() error { return call(ctx, q) })
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
}

// savepoint makes a call. refused is the error with which the server refuses it. The savepoint stays if
// the call has taken a lock that LetGo releases.
func (t *Transaction) savepoint(ctx context.Context, call func() error) (refused, err error) {
	conn := t.s.Pin()
	if !conn.InTx() {
		return nil, call()
	}
	if err = conn.Exec(ctx, db.Savepoint); err != nil {
		return nil, err
	}
	before := t.forNow
	if err = call(); pgerr.State(err) != "" {
		refused = err
		err = conn.Exec(ctx, db.RollBackToIt)
	}
	if err == nil && t.forNow == before {
		err = conn.Exec(ctx, db.ReleaseIt)
	}
	return refused, err
}

func (t *Transaction) onAuxThenVerify(ctx context.Context, call pin.Call, late func()) (bool, error) {
	bound := t.s.Proof.Left()
	if t.aux != nil { // just granted, by the extended protocol, and not started
		bound = 2 * t.s.Proof.Lease.Validity()
		defer t.staying(ctx)()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bound, t.s.Timeout())
	defer cancel()
	answered, err := t.onAux(ctx, call, late)
	if err == nil {
		err = t.Stay(ctx) // if it has its lock still, nobody else had it meanwhile
	}
	return answered, err
}

// staying keeps a session alive that is not started, until stop is called.
func (t *Transaction) staying(ctx context.Context) (stop func()) {
	pausing, cancel := context.WithCancel(ctx)
	var pings sync.WaitGroup
	pings.Go(func() {
		for t.Stay(ctx) == nil && backoff.Sleep(pausing, t.s.Proof.Lease.Heartbeat) {
		}
	})
	return func() {
		cancel()
		pings.Wait()
	}
}

func (t *Transaction) onAux(ctx context.Context, call pin.Call, _ func()) (answered bool, err error) {
	aux, borrowed := t.aux, t.aux == nil
	if borrowed { // as while it leads
		if aux, err = t.from.Borrow(ctx); err != nil {
			return false, err
		}
	}
	answered, err = t.inOwnTx(ctx, aux, call)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows): // a call may go on
		aux.Discard()
		if !borrowed {
			t.aux = nil
		}
	case borrowed:
		aux.GiveBack()
	}
	return answered, err
}

// inOwnTx makes a call on another connection, in a transaction of its own with the session's settings.
func (t *Transaction) inOwnTx(ctx context.Context, aux *session.Session, call pin.Call) (answered bool, err error) {
	other := own(aux, t.from) // begin finds a transaction that other code has left open, whose commit is not ours
	if err := other.begin(ctx); err != nil {
		return false, err
	}
	if err = Apply(ctx, aux, t.from.Settings); err == nil {
		answered, err = aux.Fresh().Call(ctx, call, nil)
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		_ = other.RollBack(ctx)
		return answered, err
	}
	if failed := other.end(ctx, (*pin.Conn).Commit); failed != nil {
		err = failed // even of no rows: the call may go on
	}
	return answered, err
}

// Drop gives back the connection beside the session, if there is one.
func (t *Transaction) Drop(discard bool) {
	switch aux := t.aux; {
	case aux == nil:
	case discard:
		aux.Discard()
	default:
		t.aux = nil
		aux.GiveBack()
	}
}

// Try tries the lock. It does not look for the leader.
func (t *Transaction) Try(ctx context.Context, p db.TryLockParams) (db.TryLockRow, error) {
	return session.Do(ctx, t.s, func(q *db.Queries, ctx context.Context) (db.TryLockRow, error) {
		row, err := q.TryTransactionLock(ctx, db.TryTransactionLockParams{Key: p.Key, Settings: p.Settings, OfferHigh: p.OfferHigh, OfferLow: p.OfferLow,
			Sit: p.Sit, SeatHigh: p.SeatHigh, SeatLow: p.SeatLow})
		t.s.Backend.SetMark(row.Started, row.Mark)
		return db.TryLockRow{Outcome: row.Outcome, Seated: row.Seated, Pid: row.Pid}, err
	})
}

// TryAgain tries the lock of the setting pgelector.key.
func (t *Transaction) TryAgain(ctx context.Context, _ int64) (row db.TryAsDeputyRow, err error) {
	rows, err := session.Do(ctx, t.s.Simple(), (*db.Queries).TryInTransaction)
	if err == nil && rows == 0 {
		err = ErrOver
	}
	return db.TryAsDeputyRow{Granted: rows == 2, Pid: t.s.PID()}, err
}

// Holds reports whether the transaction goes on, which has the lock as long as it does. If it does not, the
// call has ended the session.
func (t *Transaction) Holds(ctx context.Context, _ int64, _ func(held bool)) (bool, error) {
	err := t.Stay(ctx)
	return err == nil, err
}

// Transaction returns the name of the transaction that holds the lock, which another connection has seen.
// It is an error if that has reached another server, on which another backend may have the same process
// id: in a failover one pool may lead to two.
func (t *Transaction) Transaction(seen string) (string, error) {
	if started, _ := t.s.Backend.Mark(); !strings.HasSuffix(seen, " "+started) {
		return "", lock.ErrTwoServers
	}
	return seen, nil
}

// Unlock commits the transaction, and so releases all its locks.
func (t *Transaction) Unlock(ctx context.Context, _ *db.Queries, _ int64) (held bool, err error) {
	if err := t.ping(ctx); err != nil {
		return false, err
	}
	t.released = true
	return true, t.s.Pin().Commit()
}

// TryPair tries a lock of two integers. Only ROLLBACK TO can release one, with all that were taken after
// it. So one at a time can be let go, and while there is one, none is granted.
func (t *Transaction) TryPair(ctx context.Context, q *db.Queries, key int64, forNow bool) (granted bool, err error) {
	if !t.forNow {
		high, low := lockkey.Halves(key)
		granted, err = q.TryPair(ctx, db.TryPairParams{Inside: true, High: high, Low: low})
		t.forNow = granted && forNow
	}
	return granted, err
}

// LetGo rolls back to the savepoint.
func (t *Transaction) LetGo(ctx context.Context, _ *db.Queries, _ int64) (held bool, err error) {
	conn := t.s.Pin()
	if !conn.InTx() { // with which it has ended
		return true, nil
	}
	if err = conn.Exec(ctx, db.RollBackToIt); err == nil {
		err = conn.Exec(ctx, db.ReleaseIt)
	}
	t.forNow = false
	return true, err
}

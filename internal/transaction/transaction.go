// Package transaction is the answerer of an election in transaction scope. A session has its lock and its settings inside one
// transaction: a transaction pooler keeps one backend for it. The server ends the transaction of a silent client
// (idle_in_transaction_session_timeout), as it ends an idle session in session scope.
//
// The transaction has no snapshot and no transaction id: they would hold back VACUUM. After a query of the extended protocol
// its portal keeps a snapshot until the next statement, so PingTransaction follows each query. Statements that need a
// transaction id, or read a relation (whose lock would last until the end), run on another connection (Beside). An error
// ends the transaction, and so the session.
package transaction

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/seat"
)

// Statements are the answers of one session inside a transaction.
type Statements struct {
	from *election.Source
	asks *seat.Asks
	wary func() bool // whether connections of the pool may lead to a standby in turn

	aux           atomic.Pointer[pin.Conn] // for what needs a transaction of its own; nil once the session is kept alive
	closed        atomic.Bool              // perhaps beside a call that does not return
	pid           int32
	started, mark string // of the server and of the transaction; "" before a statement has set the mark
	name          string // of the transaction, as others see it
	waits         bool
	kept          bool // the session has a seat: it tries the lock by the smallest statement
	forNow        bool // a savepoint stays open, for a lock that LetGo releases
}

// New makes the answers of a session that from lends. wary says whether connections of the pool may lead to a standby in turn: then
// of two new connections one is of no use.
func New(from *election.Source, asks *seat.Asks, wary func() bool) *Statements {
	return &Statements{from: from, asks: asks, wary: wary}
}

// Of returns the answers of a session inside a transaction; nil in session scope.
func Of(s *election.Session) *Statements {
	t, _ := s.Answerer().(*Statements)
	return t
}

// IsOf reports whether a session has its locks inside a transaction.
func IsOf(s *election.Session) bool { return Of(s) != nil }

// Name names the transaction that holds the session's lock; "" in session scope.
func Name(s *election.Session) string {
	if t := Of(s); t != nil {
		return t.name
	}
	return ""
}

// ServerStart is when the session's server started, if a transaction has told; "" in session scope.
func ServerStart(s *election.Session) string {
	if t := Of(s); t != nil {
		return t.started
	}
	return ""
}

// Open takes the second connection, unless it has one, and begins the transaction. So a granted lock never waits for a connection.
func (t *Statements) Open(ctx context.Context, c *pin.Conn, _ []election.Setting) (a election.Answer, err error) {
	c.StayInside()
	if c.InTx() {
		err = c.RollBack()
	}
	t.mark, t.kept, t.waits, t.forNow = "", false, false, false
	if at, ok := ctx.Value(brought{}).(*atomic.Pointer[pin.Conn]); ok && t.aux.Load() == nil {
		t.has(at.Swap(nil))
	}
	if t.aux.Load() == nil && err == nil {
		if t.wary() {
			err = describe(ctx, c) // before it takes another: in turn, that would lead to the other server
		}
		if err == nil {
			err = t.takeBeside(ctx)
		}
	}
	if err == nil {
		err = Explain(Begin(ctx, c, db.RepeatableRead, db.ReadCommitted))
	}
	if err == nil && t.wary() {
		err = describe(ctx, c)
	}
	return a, err
}

// MayWait says that the first answer may take its time: a pooler may let a transaction wait for a backend.
func (*Statements) MayWait() {}

// brought is the key of a context's value: where the second connection is of a session that is to be lent.
type brought struct{}

// MaxServers is how many servers a pool may lead to in turn.
const MaxServers = 3

// takeBeside takes the second connection, to a primary.
func (t *Statements) takeBeside(ctx context.Context) error {
	for n := 1; ; n++ {
		aux, err := t.from.Take(ctx)
		if err != nil {
			return err
		}
		aux.StayInside()
		if t.wary() {
			_, err = aux.Call(ctx, func(ctx context.Context, _ *db.Queries) error { return describe(ctx, aux) }, nil)
		}
		if err == nil {
			t.has(aux)
			return nil
		}
		aux.Discard(true, false)
		if n == MaxServers || !errors.Is(err, pgerr.ErrServerReadOnly) {
			return err
		}
	}
}

// has gives the session its second connection.
func (t *Statements) has(aux *pin.Conn) {
	if t.aux.Store(aux); t.closed.Load() {
		t.drop(true)
	}
}

// describe returns an error if the connection leads to a standby.
func describe(ctx context.Context, c *pin.Conn) error {
	server, err := c.Queries().DescribeServer(ctx)
	if err == nil && server.InRecovery {
		err = pgerr.ErrServerReadOnly
	}
	return err
}

// Waits makes the next tries wait in the server's queue, or not.
func (t *Statements) Waits(wait bool) { t.waits, t.kept = wait, true }

// Sets records that the session was set up.
func (t *Statements) Sets(row db.PrepareWaitRow) {
	t.pid, t.started, t.mark = row.Pid, row.Started, row.Mark
}

// Try tries the lock. It does not look for the leader, which would take locks of relations.
func (t *Statements) Try(ctx context.Context, c *pin.Conn, settings []election.Setting, wants []election.Want) ([]election.Tried, election.Answer, error) {
	key := wants[0].Key
	switch {
	case t.waits:
		if err := c.Queries().WaitLock(ctx); err != nil {
			return nil, election.Answer{}, err
		}
		return t.tryAgain(ctx, c)
	case t.kept:
		return t.tryAgain(ctx, c)
	}
	p := db.TryTransactionLockParams{Key: key, Settings: election.Encode(append(slices.Clone(settings), seat.KeySetting(key))), Sit: t.asks.Sit}
	p.SeatHigh, p.SeatLow = lockkey.Halves(seat.Key(key))
	p.OfferHigh, p.OfferLow = lockkey.Halves(t.asks.Offer)
	row, err := c.Queries().TryTransactionLock(ctx, p)
	if err != nil {
		return nil, election.Answer{}, err
	}
	t.pid, t.started, t.mark = row.Pid, row.Started, row.Mark
	tried, err := t.asks.Heard(row.Outcome, row.Seated)
	if t.kept = tried.Keep; t.kept && err == nil {
		_, err = t.goesOn(ctx, c)
	}
	return []election.Tried{tried}, election.Answer{PID: row.Pid, Mark: row.Mark}, err
}

// tryAgain tries the lock of the setting pgelector.key. The lock is granted again to a transaction that has it.
func (t *Statements) tryAgain(ctx context.Context, c *pin.Conn) ([]election.Tried, election.Answer, error) {
	rows, err := c.Queries().TryInTransaction(ctx)
	if err == nil && rows == 0 {
		err = ErrOver
	}
	return []election.Tried{{Granted: rows == 2, Keep: true}}, election.Answer{PID: t.pid, Mark: t.mark}, err
}

// goesOn asks whether the transaction, and so each of its locks, still exists. It is called within a call.
func (t *Statements) goesOn(ctx context.Context, c *pin.Conn) (a election.Answer, err error) {
	if !c.InTx() {
		return a, ErrOver
	}
	mark, err := c.Show(ctx, db.PingTransaction)
	if pgerr.State(err) == "42704" || err == nil && (mark != t.mark || mark == "") {
		err = ErrOver
	}
	if err != nil {
		return a, pgerr.Wrap(pgerr.ErrSessionLost, err) // an error frees the locks at once
	}
	return election.Answer{PID: t.pid, Mark: mark}, nil
}

// Confirm looks at the lock from the second connection, and keeps the transaction alive meanwhile. If the transaction goes on
// afterwards, nobody else had the lock meanwhile. The first call only begins a transaction on the second connection: on a slow link
// each call takes its time.
func (t *Statements) Confirm(ctx context.Context, c *pin.Conn, keys []int64) ([]election.Confirmed, election.Answer, error) {
	aux := t.aux.Load() // which Close gives up, perhaps while a call on it goes on
	if aux == nil {
		return nil, election.Answer{}, errAlone
	}
	if !aux.InTx() {
		a, err := t.onAux(ctx, c, aux, func(ctx context.Context, _ *db.Queries) error { return beginOwn(ctx, t.from, aux) })
		return []election.Confirmed{{Held: true}}, a, err
	}
	high, low := lockkey.Halves(keys[0])
	var row db.ConfirmRow
	a, err := t.onAux(ctx, c, aux, func(ctx context.Context, q *db.Queries) (err error) {
		if row, err = q.Confirm(ctx, db.ConfirmParams{Pid: t.pid, Key: keys[0], GuardHigh: high, GuardLow: low}); err == nil {
			err = aux.Commit()
		}
		return err
	})
	switch {
	case err != nil:
		return nil, a, err
	case !strings.HasSuffix(row.Transaction, " "+t.started) && row.Transaction != "":
		return nil, a, ErrTwoServers
	case row.Transaction == "":
		return nil, a, missing(ctx, c)
	case !row.Held:
		return nil, a, seat.ErrSharedBackend
	}
	t.name = row.Transaction
	return []election.Confirmed{{Held: row.Held, Passed: row.Held, Token: row.Token, Epoch: row.Epoch}}, a, nil
}

// missing is why the second connection does not see a lock that was granted. Another server has other locks; or the server's
// locks are stubs.
func missing(ctx context.Context, c *pin.Conn) error {
	key := int64(rand.Uint64())
	high, low := lockkey.Halves(key)
	switch shown, err := c.Queries().TrialLock(ctx, db.TrialLockParams{Inside: true, Key: key, High: high, Low: low}); {
	case err != nil:
		return err
	case !shown:
		return pgerr.ErrNoAdvisoryLocks
	}
	return ErrTwoServers
}

// onAux makes a call on the second connection. Meanwhile it keeps the transaction on c alive, and at the end it asks whether that
// transaction goes on. It is called within a call on c.
func (t *Statements) onAux(ctx context.Context, c, aux *pin.Conn, call pin.Call) (a election.Answer, err error) {
	answered := make(chan error, 1)
	go backoff.Apart(func() {
		_, err := aux.Call(ctx, call, nil)
		answered <- err
	})()
	for again := time.NewTimer(backoff.AtOnce); ; {
		select {
		case err := <-answered:
			if err == nil {
				a, err = t.goesOn(ctx, c)
			}
			return a, err
		case <-ctx.Done():
			return a, context.Cause(ctx)
		case <-again.C:
			if a, err = t.goesOn(ctx, c); err != nil {
				return a, err
			}
			again.Reset(t.from.Lease.Heartbeat)
		}
	}
}

// Beat always reports rung, so the leader looks for requests after each heartbeat. Beat cannot find out by trying a lock, because
// a full lock table would end the transaction.
func (t *Statements) Beat(ctx context.Context, c *pin.Conn) (rung bool, a election.Answer, err error) {
	a, err = t.goesOn(ctx, c)
	return true, a, err
}

// Holds reports whether the transaction goes on: it has the lock for as long.
func (t *Statements) Holds(ctx context.Context, c *pin.Conn, _ int64) (bool, election.Answer, error) {
	a, err := t.goesOn(ctx, c)
	return err == nil, a, err
}

// Aside asks behind a savepoint, so that the transaction survives a refusal.
func (t *Statements) Aside(ctx context.Context, c *pin.Conn, ask func() error) (refused, err error) {
	letsGo := ctx.Value(lettingGo{}) != nil
	switch {
	case !c.InTx() && letsGo: // with which it has ended
		return nil, nil
	case !c.InTx(): // it was released
		return ask(), nil
	}
	if letsGo {
		err = t.letGo(ctx, c)
	} else if err = c.Exec(ctx, db.Savepoint); err == nil {
		before := t.forNow
		refused = ask()
		switch {
		case pgerr.State(refused) != "":
			err = c.Exec(ctx, db.RollBackToIt)
		case refused != nil && !errors.Is(refused, sql.ErrNoRows): // of the driver: that is no refusal
			err = refused
		}
		if err == nil && t.forNow == before {
			err = c.Exec(ctx, db.ReleaseIt)
		}
	}
	if err == nil && t.mark != "" { // else the transaction holds nothing, and cannot be asked
		_, err = t.goesOn(ctx, c)
	}
	if err != nil {
		err = pgerr.Wrap(pgerr.ErrSessionLost, err)
	}
	return refused, err
}

// Unlock commits the transaction, and so releases all its locks.
func (t *Statements) Unlock(ctx context.Context, c *pin.Conn, keys []int64) ([]int64, error) {
	_, err := t.goesOn(ctx, c)
	if err == nil {
		err = c.Commit()
	}
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// Close ends the transaction, and gives up the second connection.
func (t *Statements) Close(_ context.Context, c *pin.Conn, keep bool) (err error) {
	t.closed.Store(true)
	t.drop(!keep)
	if keep && c.InTx() {
		err = c.RollBack()
	}
	return err
}

// drop gives up the second connection, if there is one.
func (t *Statements) drop(discard bool) {
	switch aux := t.aux.Swap(nil); {
	case aux == nil:
	case discard || aux.IsBusy():
		aux.Discard(true, false)
	default:
		aux.GiveBack()
	}
}

// errAlone is returned when the second connection was lost. A granted lock does not wait for another one.
var errAlone = fmt.Errorf("%w: its second connection was lost", pgerr.ErrSessionLost)

// A Part gives the second connection back once the session is kept alive. Until then it replaces one that was lost.
type Part struct{ election.NoPart }

func (Part) Kept(ctx context.Context, s *election.Session) (err error) {
	if t := Of(s); t != nil && t.aux.Load() == nil {
		err = t.takeBeside(ctx)
	}
	return err
}

func (Part) Started(s *election.Session) {
	if t := Of(s); t != nil {
		t.drop(false)
	}
}

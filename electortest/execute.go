package electortest

import (
	"errors"
	"time"
)

// An execution is one message being answered. Its methods are called with the
// server's mutex held; only wait lets go of it meanwhile.
type execution struct {
	*backend
	tx       *transaction // the client's, or one for this statement alone
	deadline time.Time    // by statement_timeout; zero is none
}

// errGone says that the backend has ended.
var errGone = errors.New("electortest: the backend has ended")

// answer executes one message. ended reports that the backend has ended instead.
func (b *backend) answer(m *message) (a answer, ended bool) {
	s := b.server
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-b.cancelled: // meant for an earlier statement, so for none
	default:
	}
	if b.hasEnded() {
		return a, true
	}
	x := &execution{backend: b, tx: b.tx}
	switch m.kind {
	case aBegin:
		x.begin()
	case aCommit:
		a.err = x.end(true)
	case aRollback:
		a.err = x.end(false)
	case aQuery:
		b.asked = time.Now()
		a.Answer, a.err = x.query(m)
	}
	if errors.Is(a.err, errTransactionTooLong) {
		s.end(b, a.err)
	}
	return a, b.hasEnded()
}

func (b *backend) hasEnded() bool { return b.server.backends[b.pid] != b }

func (x *execution) begin() {
	x.backend.tx = &transaction{began: time.Now()}
	if limit := x.settings.time("transaction_timeout"); limit > 0 {
		x.backend.tx.deadline = time.Now().Add(x.server.onClock(limit))
	}
}

// query executes a statement, in the client's transaction or one of its own.
func (x *execution) query(m *message) (a Answer, err error) {
	if x.tx != nil && x.tx.failed {
		return a, newError(failedTransaction, "current transaction is aborted, commands ignored until end of transaction block")
	}
	if limit := x.settings.time("statement_timeout"); limit > 0 {
		x.deadline = time.Now().Add(x.server.onClock(limit))
	}
	name, run := find(m.query)
	x.server.tell(x.backend, Event{What: name, Args: m.args})
	alone := x.tx == nil
	if alone {
		x.tx = &transaction{began: time.Now()}
		x.backend.tx = x.tx
	}
	a, err = run(x, m)
	if x.hasEnded() {
		return a, errGone
	}
	x.tx.failed = err != nil
	if alone {
		if ended := x.end(err == nil); ended != nil {
			return a, ended
		}
	}
	x.server.tell(x.backend, Event{What: name, Args: m.args, Done: true, Err: err})
	return a, err
}

// errRolledBack is how a driver says that the server has answered ROLLBACK to a
// COMMIT. It has no SQLSTATE, as with lib/pq and pgx.
var errRolledBack = errors.New("electortest: commit unexpectedly resulted in rollback")

// end ends the transaction: what was committed is on the disk, and then seen, and
// then the locks are free.
func (x *execution) end(commit bool) (err error) {
	tx := x.tx
	if tx == nil {
		return nil
	}
	if commit && tx.failed {
		commit, err = false, errRolledBack
	}
	if commit && (tx.xid != 0 || len(tx.commit) > 0) {
		if err := x.writeOut(tx.xid); err != nil {
			return err
		}
		if err := x.awaitStandbys(); err != nil {
			return err
		}
	}
	if commit {
		for _, fn := range tx.commit {
			fn()
		}
	}
	x.settings.end(commit)
	x.server.locks.release(x.backend, byTransaction)
	x.backend.tx = nil
	return err
}

// writeOut makes a transaction id one that a crash does not forget.
func (x *execution) writeOut(xid int64) error {
	if x.server.flush > 0 {
		if err := x.sleep(x.server.flush); err != nil {
			return err
		}
	}
	x.server.durable = max(x.server.durable, xid)
	return nil
}

// sleep does nothing for a while, and cannot be cancelled.
func (x *execution) sleep(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	x.server.mu.Unlock()
	defer x.server.mu.Lock()
	select {
	case <-t.C:
		if x.awaitServer() {
			return nil
		}
	case <-x.gone:
	}
	return errGone
}

// acquire waits for a lock, for as long as lock_timeout allows.
func (x *execution) acquire(id lockID, m mode, s scope) error {
	w, err := x.server.locks.wait(x.backend, id, m, s)
	if w == nil || err != nil {
		return err
	}
	err = x.wait(w.granted)
	if err != nil && !x.hasEnded() && !w.isGranted() {
		x.server.locks.leave(w)
	}
	return err
}

// wait lets others do something until ready is closed. As in PostgreSQL, it is
// only while it waits that a statement looks for a timeout, a cancel, or, if it is
// told to, a client that is gone.
func (x *execution) wait(ready <-chan struct{}) error {
	s := x.server
	limit := newTimer(s.onClock(x.settings.time("lock_timeout")))
	defer limit.Stop()
	statement, transaction := newTimer(until(x.deadline)), newTimer(until(x.tx.deadline))
	defer statement.Stop()
	defer transaction.Stop()
	look := s.onClock(x.settings.time("client_connection_check_interval"))
	for {
		looking := newTimer(look)
		why := x.interrupted(ready, limit, statement, transaction, looking)
		looking.Stop()
		switch {
		case x.hasEnded():
			return errGone
		case why == errLook && x.hasBye():
			s.end(x.backend, nil)
			return errGone
		case why != errLook:
			return why
		}
	}
}

var errLook = errors.New("electortest: look whether the client is gone")

func (x *execution) interrupted(ready <-chan struct{}, limit, statement, transaction, looking timer) (err error) {
	x.server.mu.Unlock()
	defer x.server.mu.Lock()
	select {
	case <-ready:
	case <-x.gone:
	case <-limit.C:
		err = newError(lockNotAvailable, "canceling statement due to lock timeout")
	case <-statement.C:
		err = newError(queryCanceled, "canceling statement due to statement timeout")
	case <-transaction.C:
		err = errTransactionTooLong
	case <-x.cancelled:
		err = newError(queryCanceled, "canceling statement due to user request")
	case <-looking.C:
		err = errLook
	}
	x.awaitServer()
	return err
}

// until is the time that is left to a deadline, 0 if there is none.
func until(deadline time.Time) time.Duration {
	if deadline.IsZero() {
		return 0
	}
	return max(time.Until(deadline), 1)
}

// xid is the transaction's id, which it gets when it first asks.
func (x *execution) xid() int64 {
	if x.tx.xid == 0 {
		x.server.lastXID++
		x.tx.xid = x.server.lastXID
	}
	return x.tx.xid
}

package electortest

import (
	"errors"
	"time"

	"github.com/pgelector/pgelector/db"
)

// An execution answers one message. The caller of its methods holds the server's mutex.
// wait and sleep release it meanwhile.
type execution struct {
	*backend
	tx       *transaction // the client's, or the statement's own
	deadline time.Time    // of statement_timeout; zero means none
}

// errGone means that the backend has ended.
var errGone = errors.New("electortest: the backend has ended")

// answer executes one message. ended reports that the backend ended instead.
func (b *backend) answer(m *message) (a answer, ended bool) {
	s := b.server
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-b.cancelled: // of an earlier statement
	default:
	}
	if b.hasEnded() {
		return a, true
	}
	x := &execution{backend: b, tx: b.tx}
	switch m.kind {
	case aBegin:
		s.transactions++
		b.tx = &transaction{number: s.transactions, began: time.Now()}
	case aCommit:
		a.err = x.end(true)
	case aRollback:
		a.err = x.end(false)
	case aQuery:
		b.asked = time.Now()
		a.Answer, a.err = x.query(m)
	}
	return a, b.hasEnded()
}

func (b *backend) hasEnded() bool { return b.server.backends[b.pid] != b }

// query executes a statement, in the client's transaction or its own.
func (x *execution) query(m *message) (a Answer, err error) {
	if x.tx != nil && x.tx.failed && m.query != db.RollBackToIt {
		return a, newError(failedTransaction, "current transaction is aborted, commands ignored until end of transaction block")
	}
	if limit := x.settings.time("statement_timeout"); limit > 0 {
		x.deadline = time.Now().Add(x.server.onClock(limit))
	}
	name, run := find(m.query)
	x.server.report(x.backend, Event{What: name, Args: m.args})
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
	x.server.report(x.backend, Event{What: name, Args: m.args, Done: true, Err: err})
	return a, err
}

// errRolledBack is the driver's error if the server answers ROLLBACK to COMMIT. As in lib/pq
// and pgx it has no SQLSTATE.
var errRolledBack = errors.New("electortest: commit unexpectedly resulted in rollback")

// end ends the transaction. A commit is first flushed, then visible, then releases the
// locks.
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

// writeOut makes a transaction durable.
func (x *execution) writeOut(xid int64) error {
	if x.server.flush > 0 {
		if err := x.sleep(x.server.flush); err != nil {
			return err
		}
	}
	x.server.durable = max(x.server.durable, xid)
	return nil
}

// sleep waits and cannot be cancelled.
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

// acquire waits for a lock, at most lock_timeout.
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

// wait waits until ready is closed. As in PostgreSQL, a statement checks for timeouts and
// cancels, and with client_connection_check_interval for the client, only while it waits.
func (x *execution) wait(ready <-chan struct{}) error {
	s := x.server
	limit := newTimer(s.onClock(x.settings.time("lock_timeout")))
	defer limit.Stop()
	statement := newTimer(until(x.deadline))
	defer statement.Stop()
	interval := s.onClock(x.settings.time("client_connection_check_interval"))
	for {
		check := newTimer(interval)
		why := x.interrupted(ready, limit, statement, check)
		check.Stop()
		switch {
		case x.hasEnded():
			return errGone
		case why == errCheckClient && x.hasBye():
			s.end(x.backend, nil)
			return errGone
		case why != errCheckClient:
			return why
		}
	}
}

var errCheckClient = errors.New("electortest: check the client")

func (x *execution) interrupted(ready <-chan struct{}, limit, statement, check timer) (err error) {
	x.server.mu.Unlock()
	defer x.server.mu.Lock()
	select {
	case <-ready:
	case <-x.gone:
	case <-limit.C:
		err = newError(lockNotAvailable, "canceling statement due to lock timeout")
	case <-statement.C:
		err = newError(queryCanceled, "canceling statement due to statement timeout")
	case <-x.cancelled:
		err = newError(queryCanceled, "canceling statement due to user request")
	case <-check.C:
		err = errCheckClient
	}
	x.awaitServer()
	return err
}

// until returns the time until a deadline, or 0 if there is none.
func until(deadline time.Time) time.Duration {
	if deadline.IsZero() {
		return 0
	}
	return max(time.Until(deadline), 1)
}

// xid returns the transaction's id. The first call assigns it.
func (x *execution) xid() int64 {
	if x.tx.xid == 0 {
		x.server.lastXID++
		x.tx.xid = x.server.lastXID
	}
	return x.tx.xid
}

package electortest

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/db"
)

// A backend is the server's end of a connection. One goroutine answers its messages in
// order. The server's mutex guards the mutable fields.
type backend struct {
	server  *Server
	pid     int32
	started time.Time

	settings settings
	tx       *transaction // nil if none
	client   *conn        // for whom a pooler keeps it; nil without a pooler
	asked    time.Time    // when the last statement began
	begun    int64        // transactions, of which each has a mark
	inbox    []*message
	remote   remote

	wake      chan struct{} // holds a value if the inbox may have changed
	cancelled chan struct{} // holds a value if the statement must be cancelled
	gone      chan struct{} // closed when the backend has ended
	told      chan struct{} // closed when the client hears of that
	final     error         // the client's error then
	served    chan struct{} // closed when its goroutine has ended
}

// A transaction is an open transaction.
type transaction struct {
	number int64 // of the virtual transaction; 0 for a statement's own
	began  time.Time
	stamp  int64 // its start, which no other transaction has, although time may stand still
	failed bool
	fenced bool // by EnterTerm
	xid    int64
	commit []func()

	savepoints []map[lockID][2]int // the grants of each that is open
}

// nameOfTransaction names the backend's transaction, also among those of other servers.
func (b *backend) nameOfTransaction() string { return b.tx.name() + " " + b.server.start() }

// name is the name of an open transaction, or of none.
func (t *transaction) name() string {
	if t == nil {
		return "none"
	}
	return strconv.FormatInt(t.number, 10)
}

// A message is a message of a client.
type message struct {
	kind     messageKind
	ctx      context.Context // has the values of the client's, and does not end
	query    string
	args     []any
	opts     driver.TxOptions // of aBegin
	own      bool             // the library begins the transaction for itself
	foreign  bool             // the statement is the tested program's
	line     string           // of the tested program, that sent it
	prepared *prepared
	arrives  time.Time
	from     *Process
	client   *conn          // through a pooler
	reply    chan answer    // buffered
	after    func(*backend) // called after the answer; may be nil
}

func (m *message) then(b *backend) {
	if m.after != nil {
		m.after(b)
	}
}

type messageKind int

const (
	aQuery messageKind = iota
	anExec
	aPrepare
	aBegin
	aCommit
	aRollback
	aPing
	aBye
)

// An answer is an answer of the server.
type answer struct {
	Answer
	err error
}

// post puts a message into the inbox.
func (b *backend) post(m *message) {
	b.server.mu.Lock()
	b.inbox = append(b.inbox, m)
	b.server.mu.Unlock()
	b.rouse()
}

func (b *backend) rouse() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// cancel cancels the current statement.
func (b *backend) cancel() {
	select {
	case b.cancelled <- struct{}{}:
	default:
	}
}

// cancelFor cancels the statement of a client, unless a pooler keeps the backend for another.
func (b *backend) cancelFor(c *conn) {
	b.server.mu.Lock()
	others := c.p.pooler != nil && b.client != c
	b.server.mu.Unlock()
	if !others {
		b.cancel()
	}
}

// serve answers messages until the backend ends.
func (b *backend) serve() {
	defer func() {
		b.remote.close()
		b.server.mu.Lock()
		delete(b.server.remote, b)
		b.server.mu.Unlock()
		close(b.served)
	}()
	for {
		m := b.next()
		if m == nil {
			return
		}
		if m.kind == aBye {
			b.server.mu.Lock()
			stale := b.client != m.client // the pooler keeps it for another by now
			if !stale {
				b.server.end(b, nil)
			}
			b.server.mu.Unlock()
			if stale {
				continue
			}
			m.then(b)
			return
		}
		a, ended := b.answer(m)
		if !ended {
			m.reply <- a
		}
		m.then(b)
		if ended {
			return
		}
	}
}

// next returns the next message that has arrived, or nil if the backend has ended. While it
// waits, the idle timeout runs.
func (b *backend) next() *message {
	idle, why := b.idleTimeout()
	defer idle.Stop()
	for {
		if !b.awaitServer() {
			return nil
		}
		m, later, changed := b.arrived()
		if m != nil {
			return m
		}
		select {
		case <-b.wake:
		case <-changed:
		case <-later.C:
		case <-idle.C:
			if !b.awaitServer() {
				return nil
			}
			b.server.mu.Lock()
			b.server.end(b, why)
			b.server.mu.Unlock()
			return nil
		case <-b.gone:
			return nil
		}
		later.Stop()
	}
}

// arrived takes the first message if it has arrived. Otherwise later fires when it arrives,
// or changed is closed when the network changes.
func (b *backend) arrived() (m *message, later timer, changed <-chan struct{}) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	if len(b.inbox) == 0 {
		return nil, timer{}, nil
	}
	first := b.inbox[0]
	if wait := time.Until(first.arrives); wait > 0 {
		return nil, newTimer(wait), nil
	}
	if changed = first.from.blocked(requests); changed != nil {
		return nil, timer{}, changed
	}
	b.inbox = b.inbox[1:]
	return first, timer{}, nil
}

// hasBye reports whether the client has closed the connection.
func (b *backend) hasBye() bool {
	if len(b.inbox) == 0 {
		return false
	}
	first := b.inbox[0]
	return first.kind == aBye && time.Until(first.arrives) <= 0 && first.from.blocked(requests) == nil
}

// idleTimeout returns the timeout while the client is silent, and the error that ends the
// session then.
func (b *backend) idleTimeout() (timer, error) {
	s := b.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.tx == nil {
		return newTimer(s.onClock(b.settings.time("idle_session_timeout"))),
			newError(idleSession, "terminating connection due to idle-session timeout")
	}
	limit := s.onClock(b.settings.time("idle_in_transaction_session_timeout"))
	return newTimer(limit), newError(idleInTransaction, "terminating connection due to idle-in-transaction timeout")
}

// awaitServer waits while the server is stalled, and reports whether the backend lives.
func (b *backend) awaitServer() bool {
	for {
		b.server.mu.Lock()
		stalled := b.server.stalled
		b.server.mu.Unlock()
		if stalled == nil {
			break
		}
		select {
		case <-stalled:
		case <-b.gone:
			return false
		}
	}
	select {
	case <-b.gone:
		return false
	default:
		return true
	}
}

// A timer is a time.Timer, or never fires if it is zero.
type timer struct {
	C <-chan time.Time
	t *time.Timer
}

// newTimer returns the zero timer if d is not positive.
func newTimer(d time.Duration) timer {
	if d <= 0 {
		return timer{}
	}
	t := time.NewTimer(d)
	return timer{C: t.C, t: t}
}

func (t timer) Stop() {
	if t.t != nil {
		t.t.Stop()
	}
}

// An execution answers one message. The caller of its methods holds the server's mutex.
// wait and sleep release it meanwhile.
type execution struct {
	*backend
	tx       *transaction // the client's, or the statement's own
	deadline time.Time    // of statement_timeout; zero means none
	forwards bool         // another database answers
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
		a.err = x.beginFor(m)
	case aCommit:
		a.err = x.finish(m, true)
	case aRollback:
		a.err = x.finish(m, false)
	case aQuery, anExec, aPrepare:
		b.asked = time.Now()
		a.Answer, a.err = x.query(m)
	}
	return a, b.hasEnded()
}

// beginFor begins a transaction of the client, and of the database that its statements go to.
func (x *execution) beginFor(m *message) error {
	f := x.server.forward
	if f == nil || m.own {
		x.begin()
		return nil
	}
	x.isRemote()
	x.server.mu.Unlock()
	ctx, _, cancel := x.interruptible(m.ctx)
	err := f.failed(m, "BEGIN", x.remote.begin(ctx, f, m.opts))
	cancel(nil)
	x.server.mu.Lock()
	if err == nil && !x.hasEnded() {
		x.begin()
	}
	return err
}

// finish ends the transaction of the client.
func (x *execution) finish(m *message, commit bool) error {
	f, forwarded := x.server.forward, x.remote.tx != nil
	err := x.end(commit)
	if f != nil && forwarded {
		what := "ROLLBACK"
		if commit {
			what = "COMMIT"
		}
		_ = f.failed(m, what, err)
	}
	return err
}

func (b *backend) begin() {
	b.server.transactions++
	b.begun++
	b.tx = b.server.newTransaction(b.server.transactions)
}

func (s *Server) newTransaction(number int64) *transaction {
	s.stamps++
	return &transaction{number: number, began: time.Now(), stamp: time.Now().UnixMicro() + s.stamps}
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
	if m.foreign {
		name, run = m.query, others
	}
	x.server.report(x.backend, Event{What: name, Args: m.args})
	alone := x.tx == nil
	if alone {
		x.tx = x.server.newTransaction(0)
		x.begun++
		x.backend.tx = x.tx
	}
	a, err = run(x, m)
	if x.hasEnded() {
		return a, errGone
	}
	x.tx.failed = err != nil && !x.forwards       // the other database aborts its own transaction
	if x.tx.failed && len(x.tx.savepoints) == 0 { // an error ends the transaction, and the client is still to say ROLLBACK
		x.server.locks.release(x.backend, byTransaction)
	}
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
	if commit && (tx.xid != 0 || len(tx.commit) > 0 || x.remote.tx != nil) {
		if err := x.writeOut(tx.xid); err != nil {
			return err
		}
		if err := x.awaitStandbys(); err != nil {
			return err
		}
	}
	if failed := x.remote.end(commit); failed != nil {
		commit, err = false, cmp.Or(err, failed)
	}
	if commit {
		for _, fn := range tx.commit {
			fn()
		}
		if tx.fenced {
			last := x.server.committed
			x.server.committed = append(last[max(0, len(last)-rememberedCommits+1):], x.server.fencedName(tx))
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

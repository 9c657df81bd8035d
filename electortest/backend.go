package electortest

import (
	"strconv"
	"time"
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
	inbox    []*message

	wake      chan struct{} // holds a value if the inbox may have changed
	cancelled chan struct{} // holds a value if the statement must be cancelled
	gone      chan struct{} // closed when the backend has ended
	final     error         // the client's error after gone
}

// A transaction is an open transaction.
type transaction struct {
	number int64 // of the virtual transaction; 0 for a statement's own
	began  time.Time
	failed bool
	xid    int64
	commit []func()
	asked  map[int32]int64 // read by LastAsked: a transaction sees the activity as of its first read
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
	kind    messageKind
	query   string
	args    []any
	arrives time.Time
	from    *Process
	client  *conn          // through a pooler
	reply   chan answer    // buffered
	after   func(*backend) // called after the answer; may be nil
}

func (m *message) then(b *backend) {
	if m.after != nil {
		m.after(b)
	}
}

type messageKind int

const (
	aQuery messageKind = iota
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

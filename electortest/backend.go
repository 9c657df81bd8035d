package electortest

import (
	"time"
)

// A backend is the server's end of a connection: one goroutine, as PostgreSQL has
// one process, that answers one message after the other. The server's mutex
// guards all that changes.
type backend struct {
	server  *Server
	pid     int32
	started time.Time

	settings settings
	tx       *transaction // nil outside
	asked    time.Time    // when the last statement began
	inbox    []*message

	wake      chan struct{} // holds a token if there may be something new to look at
	cancelled chan struct{} // holds a token if the statement is to be cancelled
	gone      chan struct{} // closed when the backend has ended
	final     error         // once gone: what its client reads
}

// A transaction is one that a client has begun.
type transaction struct {
	began    time.Time
	failed   bool
	xid      int64
	commit   []func()
	deadline time.Time       // by transaction_timeout; zero is none
	asked    map[int32]int64 // what LastAsked has seen: a transaction sees activity as it was at the first look
}

// A message is what a client sends.
type message struct {
	kind    messageKind
	query   string
	args    []any
	arrives time.Time
	from    *Process
	reply   chan answer    // has room for one
	after   func(*backend) // called when the backend has answered; may be nil
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

// An answer is what the server sends back.
type answer struct {
	Answer
	err error
}

// post puts a message into the inbox; one that nobody reads any more is lost.
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

// cancel asks for the end of the statement under way.
func (b *backend) cancel() {
	select {
	case b.cancelled <- struct{}{}:
	default:
	}
}

// serve is the backend's life.
func (b *backend) serve() {
	for {
		m := b.next()
		if m == nil {
			return
		}
		if m.kind == aBye {
			b.server.mu.Lock()
			b.server.end(b, nil)
			b.server.mu.Unlock()
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

// next is the next message that has arrived, or nil once the backend has ended.
// While it waits, the idle timeout runs.
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

// arrived takes the first message, if it has arrived. If not, later rings when it
// does, or changed is closed when the way is free.
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

// hasBye looks whether the client has hung up.
func (b *backend) hasBye() bool {
	if len(b.inbox) == 0 {
		return false
	}
	first := b.inbox[0]
	return first.kind == aBye && time.Until(first.arrives) <= 0 && first.from.blocked(requests) == nil
}

// idleTimeout is the one that runs while the client is silent, and the error by
// which it ends the session.
func (b *backend) idleTimeout() (timer, error) {
	s := b.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.tx == nil {
		return newTimer(s.onClock(b.settings.time("idle_session_timeout"))),
			newError(idleSession, "terminating connection due to idle-session timeout")
	}
	limit := s.onClock(b.settings.time("idle_in_transaction_session_timeout"))
	if left := until(b.tx.deadline); left > 0 && (limit == 0 || left < limit) {
		return newTimer(left), errTransactionTooLong
	}
	return newTimer(limit), newError(idleInTransaction, "terminating connection due to idle-in-transaction timeout")
}

// awaitServer waits while the server is stalled, and reports whether the backend
// goes on.
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

// A timer may be none: then it never rings.
type timer struct {
	C <-chan time.Time
	t *time.Timer
}

// newTimer makes no timer for 0.
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

//go:build unix

// Package mimic imitates poolers and servers that nobody can install here, as their documentation or
// their source says they behave.
package mimic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// A Policy is what a pooler does with the backends of its clients.
type Policy struct {
	// Keeps is called with each statement. It returns whether the client has its backend to itself from
	// now on: 1 to begin, -1 to end that, 0 for no change. Without it each transaction may have another one.
	Keeps func(statement string) int
	// Turn is after how many transactions a client that kept its backend is given another one, which a
	// session pooler promises not to do; 0: never.
	Turn int
	// Least is how many backends there are at least: each transaction has the one that waited longest.
	Least int
}

// A Pooler stands before a server that trusts its clients. It speaks no TLS.
type Pooler struct {
	policy   Policy
	upstream string
	listener net.Listener
	working  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	open    map[net.Conn]bool
	waiting map[string][]*backend // by user and database
}

// New starts a pooler before the server at upstream, a host and a port.
func New(upstream string, policy Policy) (*Pooler, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Pooler{policy: policy, upstream: upstream, listener: listener, open: map[net.Conn]bool{}, waiting: map[string][]*backend{}}
	p.working.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.working.Go(func() { p.serve(client) })
		}
	})
	return p, nil
}

// Addr is the pooler's host and port.
func (p *Pooler) Addr() string { return p.listener.Addr().String() }

// Close ends all connections.
func (p *Pooler) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.working.Wait()
}

// track has Close close a connection.
func (p *Pooler) track(c net.Conn) (untrack func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[c] = true; p.closed {
		_ = c.Close()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, c)
		_ = c.Close()
	}
}

// A backend is a connection to the server.
type backend struct {
	net.Conn
	greeting []byte // the parameters of the server, and the key
	forget   func()
}

// lives reports whether an idle backend has said nothing: at its end it would.
func (b *backend) lives() bool {
	_ = b.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := b.Read(make([]byte, 1))
	_ = b.SetReadDeadline(time.Time{})
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// borrow returns the backend of that user and database that waited longest, or connects.
func (p *Pooler) borrow(user, database string) (*backend, error) {
	p.mu.Lock()
	key := user + "/" + database
	for len(p.waiting[key]) >= max(1, p.policy.Least) {
		b := p.waiting[key][0]
		p.waiting[key] = p.waiting[key][1:]
		p.mu.Unlock()
		if b.lives() {
			return b, nil
		}
		b.forget()
		p.mu.Lock()
	}
	p.mu.Unlock()
	conn, err := net.Dial("tcp4", p.upstream)
	if err != nil {
		return nil, err
	}
	b := &backend{Conn: conn, forget: p.track(conn)}
	startup := []byte("\x00\x00\x00\x00\x00\x03\x00\x00user\x00" + user + "\x00database\x00" + database + "\x00\x00")
	binary.BigEndian.PutUint32(startup, uint32(len(startup)))
	if _, err := b.Write(startup); err != nil {
		b.forget()
		return nil, err
	}
	for {
		kind, body, err := Read(b, true)
		switch {
		case err != nil || kind == 'E':
			b.forget()
			return nil, fmt.Errorf("connect: %w: %s", io.ErrUnexpectedEOF, body)
		case kind == 'Z':
			return b, nil
		case kind == 'S' || kind == 'K':
			b.greeting = append(b.greeting, Frame(kind, body)...)
		}
	}
}

func (p *Pooler) giveBack(user, database string, b *backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting[user+"/"+database] = append(p.waiting[user+"/"+database], b)
}

// A client is one connection to the pooler.
type client struct {
	*Pooler
	net.Conn
	user, database string
	statements     Statements
	b              *backend
	kept           int  // reasons to keep the backend
	turns          int  // transactions on a backend that is kept
	inside         bool // a transaction
}

func (p *Pooler) serve(conn net.Conn) {
	defer p.track(conn)()
	_, startup, err := Read(conn, false)
	if err != nil || len(startup) < 4 {
		return
	}
	c := &client{Pooler: p, Conn: conn, statements: Statements{}}
	words := strings.Split(string(startup[4:]), "\x00")
	for i := 0; i+1 < len(words); i += 2 {
		switch words[i] {
		case "user":
			c.user = words[i+1]
		case "database":
			c.database = words[i+1]
		}
	}
	b, err := p.borrow(c.user, c.database)
	if err != nil {
		return
	}
	p.giveBack(c.user, c.database, b)
	if _, err := conn.Write(append(append([]byte("R\x00\x00\x00\x08\x00\x00\x00\x00"), b.greeting...), "Z\x00\x00\x00\x05I"...)); err != nil {
		return
	}
	for c.exchange() == nil {
	}
	switch {
	case c.b == nil:
	case c.inside:
		c.b.forget()
	default: // with all that the session has set, and its locks
		p.giveBack(c.user, c.database, c.b)
	}
}

// exchange passes on what the client sends until it waits for an answer, and the answer.
func (c *client) exchange() error {
	var request []byte
	for done := false; !done; {
		kind, body, err := Read(c.Conn, true)
		if err != nil || kind == 'X' {
			return io.EOF
		}
		c.see(kind, body)
		request = append(request, Frame(kind, body)...)
		done = kind == 'S' || kind == 'Q'
	}
	if c.b == nil {
		b, err := c.borrow(c.user, c.database)
		if err != nil {
			return err
		}
		c.b = b
	}
	if _, err := c.b.Write(request); err != nil {
		return c.lost(err)
	}
	for {
		kind, body, err := Read(c.b, true)
		if err != nil {
			return c.lost(err)
		}
		if kind == 'Z' {
			if c.inside = body[0] != 'I'; !c.inside {
				c.between()
			}
		}
		if _, err := c.Conn.Write(Frame(kind, body)); err != nil || kind == 'Z' {
			return err
		}
	}
}

// lost is the end of a client whose backend has ended.
func (c *client) lost(err error) error {
	c.b.forget()
	c.b = nil
	return err
}

// see asks the policy about the statements that are executed.
func (c *client) see(kind byte, body []byte) {
	if statement := c.statements.Executed(kind, body); statement != "" && c.policy.Keeps != nil {
		c.kept = max(0, c.kept+c.policy.Keeps(statement))
	}
}

// between is after a transaction: the client may lose its backend.
func (c *client) between() {
	if c.kept > 0 {
		if c.turns++; c.policy.Turn == 0 || c.turns < c.policy.Turn {
			return
		}
		c.turns = 0
	}
	c.giveBack(c.user, c.database, c.b)
	c.b = nil
}

// Session is a pooler in session mode that resets nothing.
var Session = Policy{Keeps: func(string) int { return 1 }}

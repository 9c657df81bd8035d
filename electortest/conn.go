package electortest

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"
)

// A conn is the client's end of a connection.
type conn struct {
	p    *Process
	end  *backend  // the server's end; nil through a pooler
	b    *backend  // end, or the backend that the pooler lent for a transaction
	last time.Time // when the last message arrives; messages stay in order
	dead bool
	tx   context.Context // of the transaction; nil if none
}

// connect makes a connection, in one round trip.
func (p *Process) connect(ctx context.Context) (*conn, error) {
	p.awaitThaw(ctx, false)
	defer p.awaitThaw(ctx, false)
	if !p.arrive(ctx.Done()) || !p.pass(ctx) {
		return nil, closedBy(ctx)
	}
	p.mu.Lock()
	server, pooler, killed := p.server, p.pooler, p.killed
	p.mu.Unlock()
	if killed {
		return nil, ErrKilled
	}
	c := &conn{p: p}
	if pooler == nil {
		b, err := server.connect()
		if err != nil {
			return nil, err
		}
		c.b, c.end = b, b
	}
	p.mu.Lock()
	p.conns[c] = true
	killed = p.killed
	p.mu.Unlock()
	if killed { // Kill may have missed the connection
		c.Close()
		return nil, ErrKilled
	}
	return c, nil
}

// pass waits until requests pass.
func (p *Process) pass(ctx context.Context) bool {
	for blocked := p.blocked(requests); blocked != nil && !p.isKilled(); blocked = p.blocked(requests) {
		select {
		case <-blocked:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// closedBy returns the error of a call whose context ended.
func closedBy(ctx context.Context) error {
	return fmt.Errorf("electortest: the connection was closed: %w", context.Cause(ctx))
}

// call sends a message and waits for the answer.
func (c *conn) call(ctx context.Context, m *message) (Answer, error) {
	c.p.awaitThaw(ctx, c.tx != nil)
	defer c.p.awaitThaw(ctx, c.tx != nil)
	switch {
	case c.p.isKilled():
		return Answer{}, ErrKilled
	case c.dead:
		return Answer{}, driver.ErrBadConn
	case ctx.Err() != nil:
		return Answer{}, ctx.Err()
	}
	b, err := c.route(ctx, m)
	if err != nil {
		return Answer{}, err
	}
	m.reply = make(chan answer, 1)
	c.send(b, m)
	a, ok := c.await(ctx, b, m)
	if !ok {
		c.giveUp(b)
		return Answer{}, closedBy(ctx)
	}
	if c.p.isKilled() {
		return Answer{}, ErrKilled
	}
	c.dead = c.dead || isFatal(a.err)
	return a.Answer, a.err
}

// await waits for the answer. ok is false if the context ended first.
func (c *conn) await(ctx context.Context, b *backend, m *message) (a answer, ok bool) {
	done := ctx.Done()
	for waiting := true; waiting; {
		changed := c.p.next()
		if c.p.isKilled() {
			return a, true
		}
		select {
		case a = <-m.reply:
			waiting = false
		case <-b.gone:
			select {
			case a = <-m.reply: // sent just before
			default:
				a.err = b.final
			}
			waiting = false
		case <-changed:
		case <-done:
			if !c.isStubborn() {
				return a, false
			}
			c.dead, done = true, nil
			c.cancel(b)
		}
	}
	for !c.p.arrive(done) {
		if !c.isStubborn() {
			return a, false
		}
		c.dead, done = true, nil
	}
	if ctx.Err() != nil && c.dead && a.err == nil { // a cancel may have come too late
		a.err = closedBy(ctx)
	}
	return a, true
}

// isStubborn reports whether a call ignores the end of its context.
func (c *conn) isStubborn() bool {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return c.p.driver == PQ && c.tx == nil
}

// send sends a message.
func (c *conn) send(b *backend, m *message) {
	m.from = c.p
	m.arrives = time.Now().Add(c.p.delay())
	if m.arrives.Before(c.last) {
		m.arrives = c.last
	}
	c.last = m.arrives
	b.post(m)
}

// cancel cancels the current statement over a separate connection, unless the network is
// cut.
func (c *conn) cancel(b *backend) {
	if c.p.blocked(requests) == nil {
		time.AfterFunc(c.p.delay(), func() { b.cancelFor(c) })
	}
}

// giveUp closes a connection during a call.
func (c *conn) giveUp(b *backend) {
	c.dead = true
	c.cancel(b)
	c.hangUp(b)
}

func (c *conn) hangUp(b *backend) {
	m := &message{kind: aBye}
	if c.p.pooler != nil {
		m.client, m.after = c, c.p.pooler.put
	}
	c.send(b, m)
}

// Close closes the connection. The server learns of it when the message arrives.
func (c *conn) Close() error {
	c.p.mu.Lock()
	delete(c.p.conns, c)
	c.p.mu.Unlock()
	if c.b != nil {
		c.hangUp(c.b)
		c.b = nil
	}
	c.dead = true
	return nil
}

// IsValid reports whether the pool may keep the connection.
func (c *conn) IsValid() bool { return !c.dead }

// ResetSession is called before the pool lends the connection again.
func (c *conn) ResetSession(context.Context) error {
	c.p.mu.Lock()
	checks := c.p.driver == PGX && !c.p.cut[answers]
	c.dead = c.dead || c.p.killed
	c.p.mu.Unlock()
	if checks && c.b != nil {
		select {
		case <-c.b.gone:
			c.dead = true
		default:
		}
	}
	if c.dead {
		return driver.ErrBadConn
	}
	return nil
}

package electortest

import (
	"context"
	"database/sql"
	"slices"
	"sync"
)

// A Pooler shares a few backends among clients, as pgbouncer does in transaction mode: a
// client keeps a backend for one transaction. Electors lead inside a transaction there.
type Pooler struct {
	server *Server
	size   int

	mu    sync.Mutex
	all   []*backend
	idle  []*backend    // the last used comes first
	freed chan struct{} // closed at the next change
}

// NewPooler returns a pooler with the given number of backends, at least 1.
func (s *Server) NewPooler(backends int) *Pooler {
	return &Pooler{server: s, size: max(backends, 1), freed: make(chan struct{})}
}

// Open returns a pool of connections to the pooler. The caller closes it. Closing the server
// ends the pooler's backends.
func (p *Pooler) Open() *sql.DB { return p.NewProcess().Open() }

// NewProcess returns a process that connects to the pooler. Its ConnectTo has the pooler
// connect to another server, for all of its clients.
func (p *Pooler) NewProcess() *Process {
	process := p.server.NewProcess()
	process.pooler = p
	return process
}

// Restart ends all backends of the pooler, as its end does.
func (p *Pooler) Restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.all {
		b.server.mu.Lock()
		b.server.end(b, errCut)
		b.server.mu.Unlock()
	}
	p.idle = nil
}

// connectTo has new backends be those of another server, and ends idle ones.
func (p *Pooler) connectTo(server *Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
	for _, b := range p.idle {
		b.server.mu.Lock()
		b.server.end(b, nil)
		b.server.mu.Unlock()
	}
	p.idle = nil
}

// take waits for a backend.
func (p *Pooler) take(ctx context.Context) (*backend, error) {
	for {
		b, freed, err := p.tryTake()
		if b != nil || err != nil {
			return b, err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, closedBy(ctx)
		}
	}
}

func (p *Pooler) tryTake() (*backend, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, (*backend).isGone)
	p.idle = slices.DeleteFunc(p.idle, (*backend).isGone)
	if last := len(p.idle) - 1; last >= 0 {
		b := p.idle[last]
		p.idle = p.idle[:last]
		return b, nil, nil
	}
	if len(p.all) >= p.size {
		return nil, p.freed, nil
	}
	b, err := p.server.connect()
	if err == nil {
		p.all = append(p.all, b)
	}
	return b, nil, err
}

// put takes a backend back unless its client's transaction is open. The backend's goroutine
// calls it.
func (p *Pooler) put(b *backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.server.mu.Lock() // others may end the backend
	switch {
	case b.tx != nil || b.isGone():
	case b.server != p.server:
		b.server.end(b, nil)
	default:
		b.client = nil
		p.idle = append(p.idle, b)
	}
	b.server.mu.Unlock()
	close(p.freed)
	p.freed = make(chan struct{})
}

func (b *backend) isGone() bool {
	select {
	case <-b.gone:
		return true
	default:
		return false
	}
}

// route returns the backend for a message: the connection's, the transaction's, or any.
func (c *conn) route(ctx context.Context, m *message) (*backend, error) {
	if c.p.pooler == nil {
		return c.b, nil
	}
	if c.b == nil {
		b, err := c.p.pooler.take(ctx)
		if err != nil {
			return nil, err
		}
		b.server.mu.Lock()
		b.client = c
		b.server.mu.Unlock()
		c.b = b
	}
	b := c.b
	m.after = c.p.pooler.put
	if c.tx == nil || m.kind == aCommit || m.kind == aRollback {
		c.b = nil
	}
	return b, nil
}

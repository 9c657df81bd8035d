//go:build unix

package pgcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// Proxy is a TCP proxy in front of a server. It can make the network fail, for existing and for new
// connections, until Heal.
type Proxy struct {
	listener net.Listener
	network  *gate
	workers  sync.WaitGroup
	cancels  bool // the end of a client is kept from the server after a cancel request

	mu              sync.Mutex
	route           []string       // where new connections lead, in turn; "" refuses one
	made            int            // connections by the route
	diverted        []string       // where the next ones lead first
	watch           func() Watcher // nil: nobody watches
	refusing        time.Time      // until then new connections are refused
	latency, jitter time.Duration
	first           time.Duration // the first bytes of a new connection are late by that
	closed          bool
	links           map[*link]struct{} // open connections
}

// Proxy starts a proxy in front of the server. Close, or the cluster's Stop, ends it.
func (c *Cluster) Proxy(ctx context.Context) (*Proxy, error) {
	p, err := NewProxy(ctx, c.Addr())
	if err == nil {
		c.addDependent(p.Close)
	}
	return p, err
}

// NewProxy starts a proxy in front of the server at upstream, a host and a port. The caller
// must call Close.
func NewProxy(ctx context.Context, upstream string) (*Proxy, error) {
	return newProxy(ctx, upstream, false)
}

func newProxy(ctx context.Context, upstream string, cancels bool) (*Proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort(sandbox.Loopback, "0"))
	if err != nil {
		return nil, fmt.Errorf("pgcluster: start a proxy: %w", err)
	}
	p := &Proxy{listener: listener, route: []string{upstream}, network: newGate(), cancels: cancels, links: make(map[*link]struct{})}
	p.workers.Go(p.serve)
	return p, nil
}

// Addr returns the host and port that the proxy listens on.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// DSN returns a URL, as Cluster.DSN does, for connections through the proxy.
func (p *Proxy) DSN(opts ...DSNOption) string { return dsn(p.Addr(), opts) }

// BlackHole stops all bytes in both directions. Connections stay open, even if one end closes:
// the other end does not learn it. New connections are accepted, and nothing answers. The
// bytes arrive after Heal, as if TCP had sent them again.
func (p *Proxy) BlackHole() { p.network.shut() }

// Slow delays each direction by latency, plus or minus jitter. It replaces an earlier Slow.
func (p *Proxy) Slow(latency, jitter time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency, p.jitter = latency, jitter
}

// A Watcher sees what the proxy reads on one connection, before it passes that on, or holds it back.
type Watcher interface {
	Client(b []byte)    // from the client
	Server(b []byte)    // from the server
	Closed(client bool) // the client has closed its end; false: the server has, or the proxy has broken the connection
}

// Watch has each new connection watched.
func (p *Proxy) Watch(watch func() Watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = watch
}

// delay returns by how much a part of a stream is late.
func (p *Proxy) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.jitter == 0 {
		return p.latency
	}
	return p.latency - p.jitter + rand.N(2*p.jitter)
}

// Heal ends BlackHole and Slow.
func (p *Proxy) Heal() {
	p.Slow(0, 0)
	p.network.open()
}

// Reset breaks every connection with a TCP RST to both ends. It does not affect new
// connections.
func (p *Proxy) Reset() { p.end(reset) }

// Forget leaves every open connection silent, at both ends, as a host that dies and a NAT that forgets
// it do: what is sent there is lost, and an end is told neither of the other's end. New connections
// are not affected. The silence ends with Reset, ResetForgotten, HangUp or Close.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.forgotten.Store(true)
	}
}

// ResetForgotten is Reset for the connections of Forget alone.
func (p *Proxy) ResetForgotten() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.forgotten.Load() {
			l.sever()
		}
	}
}

// HangUp closes every connection with a TCP FIN to both ends. It does not affect new
// connections.
func (p *Proxy) HangUp() { p.end(func(conn *net.TCPConn) { conn.Close() }) }

func (p *Proxy) end(how func(*net.TCPConn)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.end(how)
	}
}

// Close resets every connection and stops listening. It is idempotent.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Reset()
	p.workers.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// serve accepts connections until the listener closes.
func (p *Proxy) serve() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		l := newLink(conn.(*net.TCPConn))
		if upstream, ok := p.enter(l); ok {
			p.workers.Go(func() {
				defer p.leave(l)
				p.join(l, upstream)
			})
		}
	}
}

// enter registers a connection, unless the proxy is closed or leads it nowhere.
func (p *Proxy) enter(l *link) (upstream string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	upstream = p.next()
	if p.closed || upstream == "" {
		l.sever()
		return "", false
	}
	p.links[l] = struct{}{}
	if p.watch != nil {
		l.watch = p.watch()
	}
	l.late = p.first
	return upstream, true
}

func (p *Proxy) leave(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// gate holds back bytes while it is shut.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{})}
	close(g.opened)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
		g.opened = make(chan struct{})
	default:
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
	default:
		close(g.opened)
	}
}

// pass waits until the gate is open. It returns false if the link was severed first.
func (g *gate) pass(severed <-chan struct{}) bool {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
		return true
	case <-severed:
		return false
	}
}

// link is one client's connection and the matching connection to the server.
type link struct {
	client  *net.TCPConn
	watch   Watcher       // may be nil
	late    time.Duration // the first bytes of the client
	severed chan struct{} // closed when the link is broken
	cancels bool          // the client has sent a cancel request: set while it is read, read after that

	forgotten atomic.Bool // nothing passes any more

	mu     sync.Mutex
	server *net.TCPConn // nil until dialed
	broken bool
}

func newLink(client *net.TCPConn) *link {
	return &link{client: client, severed: make(chan struct{})}
}

// sever resets both connections. It is idempotent.
func (l *link) sever() { l.end(reset) }

// end ends both connections, in that way. It is idempotent.
func (l *link) end(how func(*net.TCPConn)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return
	}
	l.broken = true
	close(l.severed)
	how(l.client)
	if l.server != nil {
		how(l.server)
	}
}

// attach sets the connection to the server. If the link was severed meanwhile, attach resets
// the connection.
func (l *link) attach(server *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		reset(server)
		return false
	}
	l.server = server
	return true
}

// show shows the watcher what was read.
func (l *link) show(from *net.TCPConn, b []byte, err error) {
	switch {
	case l.watch == nil:
		return
	case from == l.client:
		l.watch.Client(b)
	default:
		l.watch.Server(b)
	}
	if err != nil {
		select {
		case <-l.severed: // nobody has closed an end: the proxy has broken the connection
			l.watch.Closed(false)
		default:
			l.watch.Closed(from == l.client)
		}
	}
}

// reset closes a connection with RST instead of FIN.
func reset(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}

// join connects the client to upstream, and returns when both connections have ended.
func (p *Proxy) join(l *link, upstream string) {
	if !p.network.pass(l.severed) {
		return
	}
	conn, err := net.Dial("tcp4", upstream)
	if err != nil {
		l.sever() // as without a proxy
		return
	}
	server := conn.(*net.TCPConn)
	if !l.attach(server) {
		return
	}
	var ends sync.WaitGroup
	ends.Go(func() {
		if p.pump(l, l.client, server, l.late); !p.cancels || !l.cancels {
			server.Close()
		}
	})
	ends.Go(func() {
		p.pump(l, server, l.client, 0)
		l.client.Close()
	})
	ends.Wait()
	server.Close()
}

// A part of a stream arrives when it is due.
type part struct {
	data []byte
	due  time.Time
}

// cancelRequest begins a cancel request: its length, and a code in place of the protocol's version.
var cancelRequest = []byte{0, 0, 0, 16, 4, 210, 22, 46}

// pump passes on what from sends until from ends; the first bytes late. It holds back both while the gate is shut.
func (p *Proxy) pump(l *link, from, to *net.TCPConn, late time.Duration) {
	parts := make(chan part, 1000)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(parts)
		b := make([]byte, 32<<10)
		for {
			n, err := from.Read(b)
			if from == l.client || !l.forgotten.Load() { // the client's end of a forgotten connection may still close
				l.show(from, b[:n], err)
			}
			if l.forgotten.Load() {
				<-l.severed
				return
			}
			select {
			case parts <- part{bytes.Clone(b[:n]), time.Now().Add(p.delay() + late)}:
				late = 0
			case <-l.severed:
				return
			}
			if err != nil {
				return
			}
		}
	})
	for one := range parts {
		select {
		case <-time.After(time.Until(one.due)):
		case <-l.severed:
		}
		if !p.network.pass(l.severed) {
			continue
		}
		if l.forgotten.Load() {
			<-l.severed
			continue
		}
		if from == l.client && bytes.HasPrefix(one.data, cancelRequest) {
			l.cancels = true
		}
		if _, err := to.Write(one.data); err != nil {
			l.sever()
		}
	}
	reading.Wait()
	if l.forgotten.Load() {
		<-l.severed
	}
}

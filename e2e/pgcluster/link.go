//go:build unix

package pgcluster

import (
	"net"
	"sync"

	"github.com/Shopify/toxiproxy/v2/stream"
)

// gate is what bytes pass through: open, or shut in a black hole.
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

// pass waits until the gate is open, and reports false if the link was severed first.
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

// link is one client's connection and the one made to the server for it.
type link struct {
	client  *net.TCPConn
	severed chan struct{} // closed when the link is broken

	mu     sync.Mutex
	server *net.TCPConn // nil until dialed
	broken bool
}

func newLink(client *net.TCPConn) *link {
	return &link{client: client, severed: make(chan struct{})}
}

// sever resets both connections. It is idempotent.
func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return
	}
	l.broken = true
	close(l.severed)
	reset(l.client)
	if l.server != nil {
		reset(l.server)
	}
}

// attach adds the connection to the server; if the link was severed meanwhile, it resets that one too.
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

// reset closes a connection with RST instead of FIN.
func reset(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}

// join connects the client to the server upstream, and returns when both connections have ended.
func (p *Proxy) join(l *link, name, upstream string) {
	if !p.network.pass(l.severed) {
		return
	}
	conn, err := net.Dial("tcp4", upstream)
	if err != nil {
		l.sever() // as if the proxy were not there
		return
	}
	server := conn.(*net.TCPConn)
	if !l.attach(server) {
		return
	}
	var ends sync.WaitGroup
	ends.Add(2)
	there := &end{link: l, conn: server, network: p.network, done: ends.Done}
	back := &end{link: l, conn: l.client, network: p.network, done: ends.Done}
	p.toxics.StartLink(p.api, name+"up", back, there, stream.Upstream)
	p.toxics.StartLink(p.api, name+"down", there, back, stream.Downstream)
	ends.Wait()
}

// end is one of a link's connections, as Toxiproxy sees it.
type end struct {
	link    *link
	conn    *net.TCPConn
	network *gate
	done    func()
}

// Read holds back whatever arrives while the gate is shut, the end of the stream too.
func (e *end) Read(b []byte) (int, error) {
	n, err := e.conn.Read(b)
	if !e.network.pass(e.link.severed) {
		return 0, net.ErrClosed
	}
	return n, err
}

// Write never fails: Toxiproxy leaves goroutines behind if it does. What cannot be written is dropped,
// and the link severed, which ends it in an orderly way.
func (e *end) Write(b []byte) (int, error) {
	if _, err := e.conn.Write(b); err != nil {
		e.link.sever()
	}
	return len(b), nil
}

// Close is called once, when the other direction has nothing more to write here.
func (e *end) Close() error {
	defer e.done()
	return e.conn.Close()
}

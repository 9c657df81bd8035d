//go:build unix

package e2e_test

import (
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pgelector/pgelector/hooks"
)

// An interjector is the connection of one client at the proxy. What it writes comes whole
// messages at a time, so that others can come between them.
type interjector struct {
	net.Conn

	mu      sync.Mutex // held while bytes are sent to the client
	pid     int        // of the client's backend
	partial []byte     // of a message of the server
}

func (c *interjector) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partial = append(c.partial, b...)
	whole := 0
	for {
		rest := c.partial[whole:]
		if len(rest) < 5 {
			break
		}
		size := 1 + int(binary.BigEndian.Uint32(rest[1:]))
		if len(rest) < size {
			break
		}
		if rest[0] == 'K' { // BackendKeyData
			c.pid = int(binary.BigEndian.Uint32(rest[5:]))
		}
		whole += size
	}
	if _, err := c.Conn.Write(c.partial[:whole]); err != nil {
		return 0, err
	}
	c.partial = slices.Clone(c.partial[whole:])
	return len(b), nil
}

// interject sends the client whole messages.
func (c *interjector) interject(t *testing.T, messages string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.Conn.Write([]byte(messages))
	expect(t, err)
}

// interjectors are the clients' connections at a proxy.
type interjectors struct {
	mu  sync.Mutex
	all []*interjector
}

// throughInterjectors returns an address of the server behind a proxy that can interject.
func (s *server) throughInterjectors(t *testing.T) (dsn string, clients *interjectors) {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	clients = &interjectors{}
	s.forward(t, at, func(c net.Conn) (net.Conn, error) {
		one := &interjector{Conn: c}
		clients.mu.Lock()
		defer clients.mu.Unlock()
		clients.all = append(clients.all, one)
		return one, nil
	})
	return "postgres://postgres@" + at.Addr().String() + "/postgres?sslmode=disable", clients
}

// of returns the connection of a backend.
func (i *interjectors) of(t *testing.T, pid int) *interjector {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, one := range i.all {
		one.mu.Lock()
		found := one.pid == pid
		one.mu.Unlock()
		if found {
			return one
		}
	}
	t.Fatalf("no client has the backend %d", pid)
	return nil
}

// message returns a message of the protocol.
func message(kind byte, body string) string {
	return string(binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(body)))) + body
}

// A real server hardly ever sends a message to a session that is idle. Here a proxy does, between
// the server's own, in the middle of a wait and of a heartbeat.
func TestAFloodOfMessagesCostsALeaderNeitherItsTermNorMemory(t *testing.T) { // alone: the heap is that of all tests
	over(t, map[string]drivers{"pq": pq, "pgx": pgx}, false, func(t *testing.T, d drivers) {
		s := direct(t)
		dsn, clients := s.throughInterjectors(t)
		c := s.stand(t, d.open(t, 0, dsn), s.election(t), directly()).run(t, nil)
		first := c.leads(t, d.listens())
		client := clients.of(t, s.holders(t, c.Key())[0])
		flood := func(size int) {
			text := strings.Repeat("x", size) + "\x00"
			client.interject(t, strings.Repeat(message('N', "SWARNING\x00VWARNING\x00C01000\x00M"+text+"\x00")+
				message('S', "application_name\x00"+text)+message('A', "\x00\x00\x00\x07channel\x00"+text), 3500))
			after := c.after()
			for range 2 { // the first may have been sent before
				next[hooks.Heartbeat](t, after, nil)
			}
		}
		flood(1000)
		used := heap()
		for range 3 { // 30 MB
			flood(1000)
		}
		// Notifications that arrive before the answer of a heartbeat are in one slice of pgx.Conn, which
		// keeps what was taken out of it until it grows.
		now := heap()
		for rounds := 0; now > used+10<<20 && rounds < 10; rounds++ {
			flood(1)
			now = heap()
		}
		if now > used+10<<20 {
			t.Errorf("the heap has grown from %d to %d bytes", used, now)
		}
		for _, lost := range c.rec.Demoted() {
			t.Errorf("demoted: %v", lost.Err)
		}
		if term := termOf(t, c); term.Token() != first.Token {
			t.Errorf("the term has the token %d, then %d", first.Token, term.Token())
		} else {
			expect(t, term.Verify(soon(t)))
		}
	})
}

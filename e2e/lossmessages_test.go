//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/mimic"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// An interjector is the connection of one client at the proxy. What the server says comes a whole
// message at a time, so that others can come between them.
type interjector struct {
	net.Conn

	mu  sync.Mutex // held while a message is sent to the client
	pid int        // of the client's backend
}

// ReadFrom sends the client what the server says, for io.Copy.
func (c *interjector) ReadFrom(server io.Reader) (int64, error) {
	for {
		kind, body, err := mimic.Read(server, true)
		if err != nil {
			return 0, err
		}
		c.mu.Lock()
		if kind == 'K' { // BackendKeyData
			c.pid = int(binary.BigEndian.Uint32(body))
		}
		_, err = c.Conn.Write(mimic.Frame(kind, body))
		c.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
}

// interject sends the client whole messages.
func (c *interjector) interject(t *testing.T, messages []byte) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.Conn.Write(messages)
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

// A real server hardly ever sends a message to a session that is idle. Here a proxy does, between
// the server's own, in the middle of a wait and of a heartbeat.
func TestAFloodOfMessagesCostsALeaderNeitherItsTermNorMemory(t *testing.T) { // alone: the heap is that of all tests
	over(t, map[string]drivers{"pq": pq, "pgx": pgx}, false, func(t *testing.T, d drivers) {
		s := direct(t)
		dsn, clients := s.throughInterjectors(t)
		c := s.stand(t, d.open(t, 0, dsn), s.election(t), directly(), elector.WithLease(10*time.Minute)).run(t, nil)
		first := c.leads(t, d.listens())
		client := clients.of(t, s.holders(t, c.Key())[0])
		flood := func(size int) {
			text := strings.Repeat("x", size) + "\x00"
			client.interject(t, bytes.Repeat(slices.Concat(mimic.Frame('N', []byte("SWARNING\x00VWARNING\x00C01000\x00M"+text+"\x00")),
				mimic.Frame('S', []byte("application_name\x00"+text)), mimic.Frame('A', []byte("\x00\x00\x00\x07channel\x00"+text))), 3500))
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

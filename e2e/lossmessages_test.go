//go:build unix

package e2e_test

import (
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// A real server hardly ever sends a message to a session that is idle. Here a proxy does, between
// the server's own.

// An interjector is the connection of one client at the proxy. What it writes comes whole
// messages at a time, so that others can come between them.
type interjector struct {
	net.Conn
	asked atomic.Int64 // how often the client has sent something

	mu       sync.Mutex // held while bytes are sent to the client
	pid      int        // of the client's backend
	answered int64      // what asked was when the server's last answer was complete
	partial  []byte     // of a message of the server
}

func (c *interjector) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.asked.Add(1)
	return n, err
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
		switch rest[0] {
		case 'K': // BackendKeyData
			c.pid = int(binary.BigEndian.Uint32(rest[5:]))
		case 'Z': // ReadyForQuery
			c.answered = c.asked.Load()
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

// interjectHalves sends the client, when it waits for no answer, a half of a message. It sends
// the other half when the client has sent a statement, whose answer comes after that.
func (c *interjector) interjectHalves(t *testing.T, first, second string) {
	t.Helper()
	eventually(t, "the client waits for no answer", func() bool {
		c.mu.Lock()
		if c.asked.Load() == c.answered {
			return true
		}
		c.mu.Unlock()
		return false
	})
	defer c.mu.Unlock()
	_, err := c.Conn.Write([]byte(first))
	expect(t, err)
	eventually(t, "the client has sent a statement", func() bool { return c.asked.Load() > c.answered })
	_, err = c.Conn.Write([]byte(second))
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

// notice returns a NoticeResponse.
func notice(severity, text string) string {
	return message('N', "S"+severity+"\x00V"+severity+"\x00C01000\x00M"+text+"\x00\x00")
}

// unasked are messages that a server may send at any time.
var unasked = map[string]string{
	"NOTICE":          notice("NOTICE", "the weather is fine"),
	"WARNING":         notice("WARNING", "the weather changes"),
	"ParameterStatus": message('S', "application_name\x00another\x00"),
	"notification":    message('A', "\x00\x00\x00\x07channel\x00payload\x00"),
}

// interjected runs a test of a leader behind a proxy that can interject on its connection.
func interjected(t *testing.T, d drivers, test func(c *candidate, client *interjector)) {
	t.Helper()
	s := direct(t)
	dsn, clients := s.throughInterjectors(t)
	c := s.stand(t, d.open(t, 0, dsn), s.election(t), directly()).run(t, nil)
	first := c.leads(t, d.listens())
	test(c, clients.of(t, s.holders(t, c.Key())[0]))
	for _, lost := range c.rec.Demoted() {
		t.Errorf("demoted: %v", lost.Err)
	}
	if term := termOf(t, c); term.Token() != first.Token {
		t.Errorf("the term has the token %d, then %d", first.Token, term.Token())
	} else {
		expect(t, term.Verify(soon(t)))
	}
}

// beats waits until heartbeats that were sent after now are answered.
func (c *candidate) beats(t *testing.T) {
	t.Helper()
	after := c.after()
	for range 2 {
		next[hooks.Heartbeat](t, after, nil)
	}
}

func TestMessagesThatALeaderDidNotAskForEndNoTerm(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		interjected(t, d, func(c *candidate, client *interjector) {
			for _, text := range unasked {
				for range 20 { // each at another moment of the wait, or of a heartbeat
					client.interject(t, text)
					time.Sleep(heartbeat / 15)
				}
			}
			c.beats(t)
		})
	})
}

// The next heartbeat is sent while half a message has arrived.
func TestAMessageThatArrivesInTwoHalvesEndsNoTerm(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		interjected(t, d, func(c *candidate, client *interjector) {
			for name, text := range unasked {
				for _, cut := range []int{1, 4, 5, len(text) - 1} { // in the header, and behind it
					after := c.after()
					client.interjectHalves(t, text[:cut], text[cut:])
					next[hooks.Heartbeat](t, after, nil)
					if n := len(c.rec.Demoted()); n > 0 {
						t.Fatalf("demoted by %s, cut after %d bytes", name, cut)
					}
				}
			}
		})
	})
}

func TestAFloodOfMessagesCostsALeaderNoMemory(t *testing.T) { // alone: the heap is that of all tests
	over(t, map[string]drivers{"pq": pq, "pgx": pgx}, false, func(t *testing.T, d drivers) {
		interjected(t, d, func(c *candidate, client *interjector) {
			many := func(size int) string {
				text := strings.Repeat("x", size)
				return strings.Repeat(notice("NOTICE", text)+message('S', "application_name\x00"+text+"\x00")+message('A', "\x00\x00\x00\x07channel\x00"+text+"\x00"), 3500)
			}
			large, small := many(1000), many(1)
			flood := func(messages string) {
				client.interject(t, messages)
				c.beats(t)
			}
			flood(large)
			first := heap()
			for range 3 { // 30 MB
				flood(large)
			}
			// Notifications that arrive before the answer of a heartbeat are in one slice of pgx.Conn, which
			// keeps what was taken out of it until it grows.
			now := heap()
			for rounds := 0; now > first+10<<20 && rounds < 10; rounds++ {
				flood(small)
				now = heap()
			}
			if now > first+10<<20 {
				t.Errorf("the heap has grown from %d to %d bytes", first, now)
			}
		})
	})
}

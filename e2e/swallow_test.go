//go:build unix

package e2e_test

import (
	"bytes"
	"database/sql"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/mimic"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/roster"
)

// A swallower is a proxy that drops the answer to one statement, and then cuts that connection:
// the server has done what the client never hears of.
type swallower struct {
	dsn      string
	target   string       // in the text of the statement
	armed    atomic.Bool  // the next one's answer is dropped
	executed atomic.Int32 // such statements, since it was armed
}

// swallows starts a swallower before the server.
func (s *server) swallows(t *testing.T, target string) *swallower {
	t.Helper()
	at, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	w := &swallower{target: strings.ToUpper(target), dsn: strings.Replace(s.database(t), s.Addr(), at.Addr().String(), 1)}
	s.forward(t, at, func(c net.Conn) (net.Conn, error) {
		return &swallowing{Conn: c, swallower: w, statements: mimic.Statements{}}, nil
	})
	return w
}

// arm has the next answer dropped, and counts from now on.
func (w *swallower) arm() {
	w.executed.Store(0)
	w.armed.Store(true)
}

// swallowing is a client's connection at a swallower.
type swallowing struct {
	net.Conn
	*swallower
	statements mimic.Statements
	started    bool
	unread     []byte // of the client's last message
	deaf       atomic.Bool
}

// Read returns the client's messages one by one, and looks for the statement.
func (c *swallowing) Read(b []byte) (int, error) {
	if len(c.unread) == 0 {
		kind, body, err := mimic.Read(c.Conn, c.started)
		if err != nil {
			return 0, err
		}
		if c.unread = mimic.Frame(kind, body); !c.started { // the first message has no type
			c.started, c.unread = true, c.unread[1:]
		}
		if text := c.statements.Executed(kind, body); strings.Contains(strings.ToUpper(text), c.target) {
			c.executed.Add(1)
			if c.armed.CompareAndSwap(true, false) {
				c.deaf.Store(true)
			}
		}
	}
	n := copy(b, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

// Write drops an answer once the client is deaf, and fails when the answer is complete.
func (c *swallowing) Write(b []byte) (int, error) {
	switch {
	case !c.deaf.Load():
		return c.Conn.Write(b)
	case bytes.HasSuffix(b, []byte("Z\x00\x00\x00\x05"+string(b[len(b)-1:]))):
		return 0, net.ErrClosed
	}
	return len(b), nil
}

// A statement that the server has executed, and whose answer is lost, is not sent again by the pool:
// each of these would lock, tell or write twice. The library itself makes an attempt again, on another
// session, while the lock of the lost one ends with its connection; and the roster writes the same
// rows again.
func TestAStatementWhoseAnswerIsLostIsExecutedOnce(t *testing.T) {
	inSessionScope(t, "it knows the statements of that scope")
	t.Parallel()
	for target, provoke := range map[string]func(t *testing.T, s *server, w *swallower, c *candidate, pool *sql.DB){
		"name: TryLock ": electsOnce,
		"name: Confirm ": electsOnce,
		"name: Unlock ": func(t *testing.T, _ *server, w *swallower, c *candidate, _ *sql.DB) {
			term, err := c.Campaign(soon(t))
			check(t, err)
			w.arm()
			_ = term.Resign(soon(t)) // the server frees the lock of the lost connection
		},
		"COMMIT": func(t *testing.T, _ *server, w *swallower, c *candidate, pool *sql.DB) {
			term, err := c.Campaign(soon(t))
			check(t, err)
			w.arm()
			wraps(t, term.InTx(soon(t), pool, nil, note("swallowed", "1")), elector.ErrOutcomeUnknown)
			if n := one[int](t, pool, "SELECT count(*)::int FROM swallowed"); n != 1 {
				t.Errorf("there are %d rows", n)
			}
			expect(t, term.Resign(soon(t)))
		},
		"name: Publish ": func(t *testing.T, _ *server, w *swallower, c *candidate, pool *sql.DB) {
			r := rosterOn(t, pool, "swallowed", roster.WithPublishInterval(time.Second))
			_, err := c.AddHooks(r)
			check(t, err)
			w.arm()
			term, err := c.Campaign(soon(t))
			check(t, err)
			defer func() { expect(t, term.Resign(soon(t))) }()
			eventually(t, "its candidate and its term are recorded once", func() bool {
				all, err := r.Candidates(soon(t), c.Key())
				return err == nil && len(all) == 1 && all[0].State == roster.Live && len(terms(t, r, c.Key())) == 1
			})
		},
	} {
		t.Run(strings.TrimSpace(target), func(t *testing.T) {
			overEach(t, func(t *testing.T, d drivers) {
				s := onShared(t)
				w := s.swallows(t, target)
				pool := d.open(t, 0, w.dsn)
				_, err := pool.Exec("CREATE TABLE swallowed (n int)")
				check(t, err)
				c := s.stand(t, pool, s.election(t), elector.WithTakeover(elector.Poll), elector.WithHeartbeatInterval(time.Second))
				provoke(t, s, w, c, pool)
				n := w.executed.Load()
				if again := target == "name: TryLock " || target == "name: Confirm " || target == "name: Publish "; n == 0 || n > 1 && !again {
					t.Errorf("%s was executed %d times", target, n)
				}
				eventually(t, "nobody has the lock", func() bool { return len(s.holders(t, c.Key())) == 0 })
			})
		})
	}
}

// electsOnce loses an answer of an attempt.
func electsOnce(t *testing.T, s *server, w *swallower, c *candidate, _ *sql.DB) {
	w.arm()
	term, err := c.Campaign(soon(t)) // by another attempt, on another session
	check(t, err)
	if n := len(s.holders(t, c.Key())); n != 1 {
		t.Errorf("%d sessions hold the lock", n)
	}
	expect(t, term.Verify(soon(t)))
	expect(t, term.Resign(soon(t)))
}

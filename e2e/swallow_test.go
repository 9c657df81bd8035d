//go:build unix

package e2e_test

import (
	"bytes"
	"database/sql"
	"io"
	"net"
	"strings"
	"sync"
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
	links    sync.WaitGroup
}

// swallows starts a swallower before the server.
func (s *server) swallows(t *testing.T, target string) *swallower {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	w := &swallower{target: target, dsn: strings.Replace(s.database(t), s.Addr(), listener.Addr().String(), 1)}
	w.links.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp4", s.Addr())
			if err != nil {
				_ = client.Close()
				continue
			}
			w.links.Go(func() { w.link(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		w.links.Wait() // the pools are closed
	})
	return w
}

// arm has the next answer dropped, and counts from now on.
func (w *swallower) arm() {
	w.executed.Store(0)
	w.armed.Store(true)
}

func (w *swallower) link(client, server net.Conn) {
	defer client.Close()
	defer server.Close()
	var deaf atomic.Bool
	var back sync.WaitGroup
	back.Go(func() {
		defer client.Close()
		buffer := make([]byte, 1<<16)
		for {
			n, err := server.Read(buffer)
			if err != nil || deaf.Load() && bytes.HasSuffix(buffer[:n], []byte("Z\x00\x00\x00\x05"+string(buffer[n-1:n]))) {
				return // the answer is complete, and dropped
			}
			if !deaf.Load() {
				if _, err := client.Write(buffer[:n]); err != nil {
					return
				}
			}
		}
	})
	w.forward(client, server, &deaf)
	_ = server.Close()
	back.Wait()
}

// forward passes on what the client sends, and looks for the statement.
func (w *swallower) forward(client io.Reader, server io.Writer, deaf *atomic.Bool) {
	statements := mimic.Statements{}
	for startup := true; ; startup = false {
		kind, body, err := mimic.Read(client, !startup)
		if err != nil {
			return
		}
		message := mimic.Frame(kind, body)
		if startup { // has no type
			message = message[1:]
		}
		if text := statements.Executed(kind, body); strings.Contains(strings.ToUpper(text), strings.ToUpper(w.target)) {
			w.executed.Add(1)
			if w.armed.CompareAndSwap(true, false) {
				deaf.Store(true)
			}
		}
		if _, err := server.Write(message); err != nil {
			return
		}
	}
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

package listen

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pin"
)

// A talk is pgx's connection to a server that speaks when the test says.
type talk struct {
	says     chan pgproto3.BackendMessage
	rest     chan part // what it says before it answers the next statement
	asked    atomic.Int32
	dials    atomic.Int32
	wrapping func(net.Conn) net.Conn // what pgx sees; may be nil
	watching func(*pgconn.PgConn) ctxwatch.Handler
}

// A part of a message, or all of it.
type part []byte

func (part) Backend()                            {}
func (part) Decode([]byte) error                 { return errors.ErrUnsupported }
func (p part) Encode(dst []byte) ([]byte, error) { return append(dst, p...), nil }

// pgxPool makes a pool of pgx whose connections talk.
func (k *talk) pgxPool(t *testing.T) *sql.DB {
	t.Helper()
	config, err := pgx.ParseConfig("host=server user=u database=d sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	config.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"192.0.2.1"}, nil }
	if k.watching != nil {
		config.BuildContextWatcherHandler = k.watching
	}
	config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		k.dials.Add(1)
		client, server := net.Pipe()
		go k.serve(server)
		if k.wrapping != nil {
			client = k.wrapping(client)
		}
		return client, nil
	}
	return stdlib.OpenDB(*config)
}

func (k *talk) serve(wire net.Conn) {
	defer wire.Close()
	b := pgproto3.NewBackend(wire, wire)
	send := func(all ...pgproto3.BackendMessage) {
		for _, m := range all {
			b.Send(m)
		}
		_ = b.Flush()
	}
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	ready := &pgproto3.ReadyForQuery{TxStatus: 'I'}
	send(&pgproto3.AuthenticationOk{}, &pgproto3.BackendKeyData{ProcessID: 1, SecretKey: make([]byte, 4)}, ready)
	heard, gone := make(chan pgproto3.FrontendMessage), make(chan struct{})
	defer close(gone)
	go func() {
		defer close(heard)
		for {
			m, err := b.Receive()
			if err != nil {
				return
			}
			select {
			case heard <- m:
			case <-gone:
				return
			}
		}
	}()
	for {
		select {
		case m := <-k.says:
			if m == nil {
				return
			}
			send(m)
			if _, ok := m.(*pgproto3.ErrorResponse); ok {
				return
			}
		case m, ok := <-heard:
			switch m.(type) {
			case *pgproto3.Query:
				k.asked.Add(1)
				select {
				case rest := <-k.rest:
					send(rest)
				default:
				}
				send(&pgproto3.EmptyQueryResponse{}, ready)
			case *pgproto3.Terminate:
				return
			}
			if !ok {
				return
			}
		}
	}
}

// talking runs a test in virtual time with a connection of pgx.
func talking(t *testing.T, k *talk, test func(t *testing.T, c *pin.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k.says, k.rest = make(chan pgproto3.BackendMessage), make(chan part, 1)
		pool := k.pgxPool(t)
		defer pool.Close()
		c, _, err := pin.Take(t.Context(), pool, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		test(t, c)
	})
}

func pingFor(t *testing.T, c *pin.Conn) error {
	t.Helper()
	_, err := c.Call(t.Context(), func(ctx context.Context, _ *db.Queries) error { return c.Ping(ctx) }, nil)
	return err
}

// listenFor has the connection waited on between its calls until stop is called.
func listenFor(t *testing.T, c *pin.Conn) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Listen(ctx, wait, func(err error) { t.Errorf("lost: %v", err) })
	}()
	synctest.Wait()
	return func() {
		cancel()
		<-ended
	}
}

// Package pqnotify wakes candidates and observers by PostgreSQL's notifications, over
// a connection of lib/pq: a notifier for elector.WithNotifier.
//
// It keeps one connection for any number of electors, as long as one of them
// campaigns or is observed. The connection must reach the server itself, or a pooler
// in session mode: a pooler in transaction mode loses notifications.
package pqnotify

import (
	"context"
	"fmt"
	"time"

	"github.com/lib/pq"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/notify/internal/relay"
)

// A Notifier listens on elector.NotifyChannel. Its methods may be called from any goroutine.
type Notifier struct{ relay *relay.Relay }

var _ elector.Notifier = (*Notifier)(nil)

// New makes a notifier that connects to dsn, which is as for sql.Open("postgres", dsn),
// with its first subscriber; it starts nothing before. A dsn that cannot be read is
// an error. Give it a connect_timeout: lib/pq cannot be made to give up connecting
// otherwise.
//
// The notifier calls report, which may be nil, for each connection that failed or was
// lost, on a goroutine of its own. It reconnects after 100 ms at first and 10 s at most;
// until then the electors work as without it.
func New(dsn string, report func(error)) (*Notifier, error) {
	if _, err := pq.NewConnector(dsn); err != nil {
		return nil, fmt.Errorf("pqnotify: %w", err)
	}
	return &Notifier{relay.New(func(ctx context.Context) (relay.Line, error) { return dial(ctx, dsn) }, report)}, nil
}

// Subscribe implements elector.Notifier. The connection is closed with the last
// subscription.
func (n *Notifier) Subscribe(wake func(payload string)) (unsubscribe func()) {
	return n.relay.Subscribe(wake)
}

// A line is the simple connection of lib/pq, and not its Listener, which can neither
// be closed while it connects nor while it waits to connect again.
type line struct {
	conn   *pq.ListenerConn
	heard  chan *pq.Notification // closed by conn, when it is lost; to be read while conn is used
	pinged chan error            // the answer to the last ping; nil if none is awaited
	due    *time.Timer           // for the next ping, or for its answer
}

func dial(ctx context.Context, dsn string) (relay.Line, error) {
	l := &line{heard: make(chan *pq.Notification), due: time.NewTimer(relay.Quiet)}
	connected := make(chan error, 1)
	go func() { connected <- l.connect(dsn) }()
	select {
	case err := <-connected:
		return l, err
	case <-ctx.Done():
		go func() { // when the driver returns
			if <-connected == nil {
				l.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func (l *line) connect(dsn string) (err error) {
	if l.conn, err = pq.NewListenerConn(dsn, l.heard); err != nil {
		return err
	}
	listening := make(chan error, 1)
	go func() {
		_, err := l.conn.Listen(elector.NotifyChannel)
		listening <- err
	}()
	heard := l.heard
	for {
		select {
		case err := <-listening:
			if err != nil {
				l.Close()
			}
			return err
		case _, living := <-heard: // of no use yet: who is connected wakes everybody
			if !living {
				heard = nil
			}
		}
	}
}

func (l *line) Hear(ctx context.Context) (string, error) {
	l.due.Reset(relay.Quiet)
	for {
		select {
		case heard, living := <-l.heard:
			if !living {
				return "", l.conn.Err()
			}
			return heard.Extra, nil
		case err := <-l.pinged:
			if err != nil {
				return "", err
			}
			l.pinged = nil
			l.due.Reset(relay.Quiet)
		case <-l.due.C:
			if l.pinged != nil {
				return "", fmt.Errorf("pqnotify: the server has not answered within %v", relay.Timeout)
			}
			l.ping()
			l.due.Reset(relay.Timeout)
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// ping asks the server for nothing, on a goroutine that ends with the connection.
func (l *line) ping() {
	pinged := make(chan error, 1)
	l.pinged = pinged
	go func() {
		_, err := l.conn.ExecSimpleQuery("")
		pinged <- err
	}()
}

func (l *line) Close() {
	l.due.Stop()
	_ = l.conn.Close()
	for range l.heard { // until the connection's own goroutine has ended
	}
}

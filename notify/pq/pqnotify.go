// Package pqnotify is a notifier for elector.WithNotifier: it wakes candidates and
// observers by PostgreSQL's notifications, over a connection of lib/pq.
//
//	notifier, err := pqnotify.New(dsn, func(err error) { log.Print(err) })
//	e, err := elector.New(pool, "orders", elector.WithNotifier(notifier))
//
// A notifier serves any number of electors with one connection, which is open while one of
// them campaigns or is observed. The connection must reach the server directly, or through
// a pooler in session mode: a pooler in transaction mode loses notifications.
package pqnotify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lib/pq"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/notify/internal/relay"
)

// A Notifier listens on elector.NotifyChannel. Its methods may be called from any goroutine.
type Notifier struct{ relay *relay.Relay }

var _ elector.Notifier = (*Notifier)(nil)

// New returns a notifier. It connects to dsn, as in sql.Open("postgres", dsn), with its first
// subscriber, and starts nothing before. New returns an error if dsn is invalid, or an option or
// the function of an option is nil. dsn should have a connect_timeout: lib/pq has no other way to give up
// connecting.
//
// On a separate goroutine the notifier calls report, which may be nil, for each connection
// that failed or was lost. It reconnects after 100 ms at first and 10 s at most. Until then
// the electors work as without a notifier.
func New(dsn string, report func(error), opts ...Option) (*Notifier, error) {
	if _, err := pq.NewConnector(dsn); err != nil {
		return nil, fmt.Errorf("pqnotify: %w", pgerr.Connecting(err))
	}
	d := dialer{before: func(context.Context) (string, error) { return dsn, nil }}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("pqnotify: option %d is nil", i+1)
		}
		if err := opt(&d); err != nil {
			return nil, err
		}
	}
	return &Notifier{relay.New(d.dial, report)}, nil
}

// An Option changes a default of New.
type Option func(*dialer) error

// WithBeforeConnect has before called before each connection. What before returns takes the place of the dsn of
// New: for a password that rotates, as of IAM or Vault. before is called on a goroutine of its own. Its ctx ends
// after ten seconds, which bound the connection too. If before returns an error or panics, the connection has
// failed. Default: the dsn of New is used each time.
func WithBeforeConnect(before func(ctx context.Context) (dsn string, err error)) Option {
	return func(d *dialer) error {
		d.before = before
		if before == nil {
			return errors.New("pqnotify: WithBeforeConnect: the function is nil")
		}
		return nil
	}
}

// A dialer makes the connections of a notifier.
type dialer struct {
	before func(ctx context.Context) (dsn string, err error)
}

// Subscribe implements elector.Notifier. The last unsubscribe closes the connection.
func (n *Notifier) Subscribe(wake func(payload string)) (unsubscribe func()) {
	return n.relay.Subscribe(wake)
}

// A line uses lib/pq's ListenerConn and not its Listener, which cannot be closed while it
// connects or waits to reconnect.
type line struct {
	conn   *pq.ListenerConn
	heard  chan *pq.Notification // conn closes it when it is lost; must be read while conn is in use
	pinged chan error            // the result of the last ping; nil if no ping runs
	due    *time.Timer           // for the next ping or its result
}

func (d dialer) dial(ctx context.Context) (relay.Line, error) {
	dsn, err := relay.Before(ctx, d.before)
	if err != nil {
		return nil, err
	}
	l := &line{heard: make(chan *pq.Notification), due: time.NewTimer(relay.Quiet)}
	connected := make(chan error, 1)
	go func() { connected <- l.connect(ctx, dsn) }()
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

func (l *line) connect(ctx context.Context, dsn string) (err error) {
	if l.conn, err = pq.NewListenerConn(dsn, l.heard); err != nil {
		return pgerr.Connecting(err)
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
		case _, ok := <-heard: // not needed: a new connection wakes all subscribers
			if !ok {
				heard = nil
			}
		case <-ctx.Done():
			l.Close()
			return context.Cause(ctx)
		}
	}
}

func (l *line) Hear(ctx context.Context) (string, error) {
	l.due.Reset(relay.Quiet)
	for {
		select {
		case heard, ok := <-l.heard:
			if !ok {
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
				return "", fmt.Errorf("pqnotify: the server did not answer within %v", relay.Timeout)
			}
			l.ping()
			l.due.Reset(relay.Timeout)
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// ping sends an empty query, on a goroutine that ends with the connection.
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
	for range l.heard { // until the connection's goroutine has ended
	}
}

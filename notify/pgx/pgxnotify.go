// Package pgxnotify is a notifier for elector.WithNotifier: it wakes candidates and
// observers by PostgreSQL's notifications, over a connection of pgx.
//
//	notifier, err := pgxnotify.New(config, func(err error) { log.Print(err) })
//	e, err := elector.New(pool, "orders", elector.WithNotifier(notifier))
//
// A notifier serves any number of electors with one connection, which is open while one of
// them campaigns or is observed. The connection must reach the server directly, or through
// a pooler in session mode: a pooler in transaction mode loses notifications.
package pgxnotify

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/notify/internal/relay"
)

// A Notifier listens on elector.NotifyChannel. Its methods may be called from any goroutine.
type Notifier struct{ relay *relay.Relay }

var _ elector.Notifier = (*Notifier)(nil)

// New returns a notifier. It connects with its first subscriber, and starts nothing before.
// config comes from pgx.ParseConfig, or from Config().ConnConfig of a pgxpool; New copies
// it. New returns an error if config, an option or the function of an option is nil.
//
// On a separate goroutine the notifier calls report, which may be nil, for each connection
// that failed or was lost. It reconnects after 100 ms at first and 10 s at most. Until then
// the electors work as without a notifier.
func New(config *pgx.ConnConfig, report func(error), opts ...Option) (*Notifier, error) {
	if config == nil {
		return nil, errors.New("pgxnotify: the config is nil: pass the result of pgx.ParseConfig")
	}
	d := dialer{config: config.Copy()}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("pgxnotify: option %d is nil", i+1)
		}
		if err := opt(&d); err != nil {
			return nil, err
		}
	}
	return &Notifier{relay.New(d.dial, report)}, nil
}

// An Option changes a default of New.
type Option func(*dialer) error

// WithBeforeConnect has before called before each connection, as BeforeConnect of a pgxpool is, with a copy of
// the config that before may change: for a password that rotates, as of IAM or Vault. before is called on a
// goroutine of its own. Its ctx ends after ten seconds, which bound the connection too. If before returns an error
// or panics, the connection has failed. Default: the config of New is used each time.
func WithBeforeConnect(before func(ctx context.Context, config *pgx.ConnConfig) error) Option {
	return func(d *dialer) error {
		d.before = before
		if before == nil {
			return errors.New("pgxnotify: WithBeforeConnect: the function is nil")
		}
		return nil
	}
}

// Subscribe implements elector.Notifier. The last unsubscribe closes the connection.
func (n *Notifier) Subscribe(wake func(payload string)) (unsubscribe func()) {
	return n.relay.Subscribe(wake)
}

// A dialer makes the connections of a notifier.
type dialer struct {
	config *pgx.ConnConfig
	before func(context.Context, *pgx.ConnConfig) error // may be nil
}

// configNow is the config of the next connection.
func (d dialer) configNow(ctx context.Context) (*pgx.ConnConfig, error) {
	config := d.config.Copy()
	if d.before == nil {
		return config, nil
	}
	return relay.Before(ctx, func(ctx context.Context) (*pgx.ConnConfig, error) { return config, d.before(ctx, config) })
}

type line struct{ conn *pgx.Conn }

func (d dialer) dial(ctx context.Context) (relay.Line, error) {
	config, err := d.configNow(ctx)
	if err != nil {
		return nil, err
	}
	config.OnNotification = nil // or WaitForNotification would receive nothing
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	l := line{conn}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{elector.NotifyChannel}.Sanitize()); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l line) Hear(ctx context.Context) (string, error) {
	for {
		quiet, cancel := context.WithTimeout(ctx, relay.Quiet)
		heard, err := l.conn.WaitForNotification(quiet)
		silent := quiet.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case heard != nil:
			return heard.Payload, nil
		case !silent:
			return "", err
		}
		if err := l.ping(ctx); err != nil {
			return "", err
		}
	}
}

func (l line) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, relay.Timeout)
	defer cancel()
	return l.conn.Ping(ctx)
}

func (l line) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), relay.Timeout)
	defer cancel()
	_ = l.conn.Close(ctx) // closed either way
}

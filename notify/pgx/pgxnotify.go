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

	"github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/notify/internal/relay"
)

// A Notifier listens on elector.NotifyChannel. Its methods may be called from any goroutine.
type Notifier struct{ relay *relay.Relay }

var _ elector.Notifier = (*Notifier)(nil)

// New returns a notifier. It connects with its first subscriber, and starts nothing before.
// config comes from pgx.ParseConfig, or from Config().ConnConfig of a pgxpool; New copies
// it. New returns an error if config is nil.
//
// On a separate goroutine the notifier calls report, which may be nil, for each connection
// that failed or was lost. It reconnects after 100 ms at first and 10 s at most. Until then
// the electors work as without a notifier.
func New(config *pgx.ConnConfig, report func(error)) (*Notifier, error) {
	if config == nil {
		return nil, errors.New("pgxnotify: the config is nil: pass the result of pgx.ParseConfig")
	}
	config = config.Copy()
	config.OnNotification = nil // or WaitForNotification would receive nothing
	return &Notifier{relay.New(func(ctx context.Context) (relay.Line, error) { return dial(ctx, config) }, report)}, nil
}

// Subscribe implements elector.Notifier. The last unsubscribe closes the connection.
func (n *Notifier) Subscribe(wake func(payload string)) (unsubscribe func()) {
	return n.relay.Subscribe(wake)
}

type line struct{ conn *pgx.Conn }

func dial(ctx context.Context, config *pgx.ConnConfig) (relay.Line, error) {
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

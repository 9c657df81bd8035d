package doctor

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/elector"
)

// fenced tries a transaction of the trial's term, as this role.
func (x *Examination) fenced(ctx context.Context, term *elector.Term) {
	ctx, cancel := context.WithTimeout(ctx, x.Timeout)
	defer cancel()
	x.unfenced = term.InTx(ctx, x.pool, nil, func(*sql.Tx) error { return nil })
}

// trialParts says what else the trial has shown.
func (x *Examination) trialParts() {
	switch {
	case x.unfenced != nil:
		x.say(warn, "InTx", "a transaction of the term failed: %v", x.unfenced)
	default:
		x.say(ok, "InTx", "this role may run transactions of its term; another role needs CONNECT, and the privileges on your tables")
	}
	switch {
	case x.listens:
		x.say(ok, "loss", "with driver %s a leader hears at once that the server has ended its session", x.Target.Driver)
	default:
		x.say(note, "loss", "with driver %s a leader does not hear that the server has ended its session: it looks every 250 ms", x.Target.Driver)
	}
}

// around tells what else matters: who manages failovers, the protocol, and what tokens rely on when
// the host of the server crashes.
func (x *Examination) around(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, x.Timeout)
	defer cancel()
	c, err := x.Target.Connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var fsync string
	err = c.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, `SELECT pg_catalog.current_setting('fsync'),
			EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a WHERE pg_catalog.starts_with(a.application_name, 'Patroni '))`).Scan(&fsync, &x.patroni)
	})
	if x.patroni {
		x.say(note, "Patroni", "a server does not show its version: one before 4.1.4 may switch its watchdog off while sessions of the old primary live. Ask patronictl version")
	}
	if asked := x.Target.Protocol(); asked != "" {
		x.say(note, "protocol", "version %s is asked for (max_protocol_version), which no election needs: some poolers refuse the connection", asked)
	}
	switch {
	case err != nil:
		x.say(note, "durability", "cannot tell whether fsync is on")
	case fsync == "off":
		x.say(warn, "durability", "fsync = off: a crash of the host can lower tokens, so that a store refuses each new leader: set fsync to on")
	default:
		x.say(ok, "durability", "fsync is on: tokens rise after a crash of the host, too")
	}
	return nil
}

// shortLease is the lease of the candidate with synchronous standbys, and its longest lease.
const shortLease = 3 * time.Second

func (p *prober) synchronous(ctx context.Context) error {
	pool, err := p.Target.Open(connect.Election)
	if err != nil {
		return err
	}
	defer func() { go pool.Close() }() // lib/pq may hang
	e, err := elector.New(pool, "pgelector doctor "+rand.Text(), elector.WithLease(shortLease), elector.WithTokenEpoch(p.TokenEpoch),
		elector.WithScope(elector.SessionScope), elector.WithSynchronousStandby(shortLease))
	if err != nil {
		return err
	}
	term, elected, err := e.TryCampaign(ctx)
	if elected {
		err = errors.Join(err, term.Resign(ctx))
	}
	return err
}

//go:build linux

package main

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/ha/cluster"
	"github.com/pgelector/pgelector/e2e/history"
)

// How often a server is probed, and when a probe fails. A connection to a frozen server waits
// for the thaw: one that is begun anew comes after those of the candidates, perhaps when the
// server has been demoted.
const (
	probing    = 25 * time.Millisecond
	unanswered = time.Second
	thawing    = time.Minute
	reaching   = 50 * time.Millisecond // between two new connections over a route
)

// probeSchema creates the table that probes write to.
const probeSchema = `CREATE TABLE probe (member text PRIMARY KEY, n bigint NOT NULL)`

const (
	askPrimary = `SELECT CASE WHEN pg_is_in_recovery() THEN 0 ELSE ('x' || lpad(left(pg_walfile_name(pg_current_wal_lsn()), 8), 16, '0'))::bit(64)::bigint END`
	askToWrite = `INSERT INTO probe VALUES ($1, 1) ON CONFLICT (member) DO UPDATE SET n = probe.n + 1
		RETURNING ('x' || lpad(left(pg_walfile_name(pg_current_wal_lsn()), 8), 16, '0'))::bit(64)::bigint`
)

// probes probe each member directly: whether it is a primary, and whether it takes writes.
type probes struct {
	log    *history.Log
	cancel context.CancelFunc
	all    sync.WaitGroup
}

func startProbes(ctx context.Context, c *cluster.Cluster, log *history.Log) *probes {
	ctx, cancel := context.WithCancel(ctx)
	p := &probes{log: log, cancel: cancel}
	for _, m := range c.Members {
		p.all.Go(func() { (&probe{kind: history.Primary, member: m.Name, addr: m.Addr(), log: log}).run(ctx) })
		p.all.Go(func() { (&probe{kind: history.Writable, member: m.Name, addr: m.Addr(), log: log}).run(ctx) })
	}
	return p
}

// stop ends the probes. After it, the log has all results.
func (p *probes) stop() {
	p.cancel()
	p.all.Wait()
}

// probe probes one member in one way.
type probe struct {
	kind         history.Kind
	member, addr string
	log          *history.Log

	conn *pgx.Conn
	open history.Event // the current result and since when it holds; its timeline is 0 if the probe fails
}

func (p *probe) run(ctx context.Context) {
	for ctx.Err() == nil {
		p.ask(ctx)
		select {
		case <-time.After(probing):
		case <-ctx.Done():
		}
	}
	p.become(history.Event{})
	if p.conn != nil {
		_ = p.conn.Close(context.WithoutCancel(ctx))
	}
}

// ask probes once. The result is yes from the first successful probe to the last.
func (p *probe) ask(ctx context.Context) {
	err := p.connect(ctx)
	at, timeline := history.Now(), int64(0)
	if err == nil {
		timeline, err = p.answer(ctx)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil || timeline == 0:
		p.become(history.Event{})
	case timeline != p.open.Token:
		p.become(history.Event{Kind: p.kind, Text: p.member, At: at, Token: timeline, Took: history.Now().Sub(at)})
	default:
		p.open.Took = history.Now().Sub(p.open.At)
	}
}

// become records the previous result.
func (p *probe) become(next history.Event) {
	if p.open.Token != 0 {
		p.log.Add(p.open)
	}
	p.open = next
}

// connect connects to the member, unless there is a connection.
func (p *probe) connect(ctx context.Context) (err error) {
	if p.conn == nil || p.conn.IsClosed() {
		ctx, cancel := context.WithTimeout(ctx, thawing)
		defer cancel()
		p.conn, err = pgx.Connect(ctx, "postgres://postgres@"+p.addr+"/postgres?sslmode=disable&application_name=probe")
	}
	return err
}

func (p *probe) answer(ctx context.Context) (timeline int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, unanswered)
	defer cancel()
	// A write to a standby would fill its log with errors.
	err = p.conn.QueryRow(ctx, askPrimary).Scan(&timeline)
	if err == nil && timeline != 0 && p.kind == history.Writable {
		err = p.conn.QueryRow(ctx, askToWrite, p.member).Scan(&timeline)
	}
	return timeline, err
}

// connection is the result of a new connection over a route.
type connection struct {
	began, answered history.Time
	toPrimary       bool
}

// watchRoute makes new connections over a route all the time and checks whether they reach a
// primary. A connection that hangs does not delay the next. When stop returns, the log has the
// times when the route reached a primary.
func watchRoute(ctx context.Context, log *history.Log, route fleet.Route, dsn string) (stop func()) {
	var all []*connection
	var attempts sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for fleet.Pause(ctx, reaching) == nil {
			one := &connection{began: history.Now()}
			all = append(all, one)
			attempts.Go(func() {
				one.toPrimary = leadsToPrimary(ctx, dsn)
				one.answered = history.Now()
			})
		}
		attempts.Wait()
	}()
	return func() {
		cancel()
		<-done
		for _, s := range reached(all) {
			log.Add(history.Event{Kind: history.Reached, Text: string(route), At: s.from, Took: s.to.Sub(s.from)})
		}
	}
}

func leadsToPrimary(ctx context.Context, dsn string) (primary bool) {
	ctx, cancel := context.WithTimeout(ctx, fleet.Lease)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return false
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "SELECT NOT pg_is_in_recovery()").Scan(&primary)
	return primary && err == nil
}

// reached returns when the route reached a primary: from the first success of consecutive
// successful connections until the last of them began.
func reached(all []*connection) (stretches []stretch) {
	for i := 0; i < len(all); i++ {
		if !all[i].toPrimary {
			continue
		}
		s := stretch{all[i].answered, all[i].began}
		for ; i < len(all) && all[i].toPrimary; i++ {
			s = stretch{min(s.from, all[i].answered), all[i].began}
		}
		if s.from < s.to {
			stretches = append(stretches, s)
		}
	}
	return stretches
}

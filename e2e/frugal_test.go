//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"maps"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// withoutLeader records all events but LeaderChanged, for which attempts would read the leader.
func withoutLeader(rec *hookstest.Recorder) elector.CommonOption {
	return elector.WithHooks(hooks.Funcs{Elected: rec.OnElected, Demoted: rec.OnDemoted, Error: rec.OnError,
		Heartbeat: rec.OnHeartbeat, Campaign: rec.OnCampaign})
}

// quiet returns a server that writes nothing unless a client makes it.
func quiet(t *testing.T) *server {
	t.Helper()
	return on(t, own(t, pgcluster.WithSetting("autovacuum", "off"), pgcluster.WithSetting("checkpoint_timeout", "1h"),
		pgcluster.WithSetting("bgwriter_lru_maxpages", "0"), pgcluster.WithSetting("wal_level", "minimal"),
		pgcluster.WithSetting("max_wal_senders", "0"), pgcluster.WithSetting("log_statement", "none")))
}

func TestNothingIsWrittenAtRest(t *testing.T) {
	t.Parallel()
	overTakeovers(t, func(t *testing.T, d drivers, takeover elector.Option) {
		s := quiet(t)
		election := s.election(t)
		leader := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil)
		leader.elected(t)
		follower := s.stand(t, d.open(t, 1, s.DSN()), election, takeover).run(t, nil)
		follower.follows(t)
		attempts, beats := follower.rec.Cursor(), leader.rec.Cursor()
		rest := func() {
			for range 5 {
				next[hooks.Heartbeat](t, beats, nil)
				next[hooks.Campaign](t, attempts, nil)
			}
		}
		rest() // the first read of a catalog may prune a page of it
		position := func() string { return one[string](t, s.admin, "SELECT pg_current_wal_insert_lsn()::text") }
		position()
		attempts.SkipSeen()
		beats.SkipSeen()
		before := position()
		rest()
		if after := position(); after != before {
			t.Errorf("WAL was written at rest: from %s to %s", before, after)
		}
	})
}

func TestNothingIsLogged(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := quiet(t)
		election := s.election(t)
		before, err := s.ServerLog()
		check(t, err)
		first := s.stand(t, d.open(t, 0, s.DSN()), election, s.quietly()).run(t, nil)
		first.elected(t)
		second := s.stand(t, d.open(t, 1, s.DSN()), election, s.quietly()).run(t, nil)
		second.follows(t)
		first.end(t)
		second.elected(t)
		wait[hooks.Heartbeat](t, second, nil)
		second.end(t)
		s.gone(t, first)
		s.gone(t, second)
		after, err := s.ServerLog()
		check(t, err)
		if said := withoutCuts(after[len(before):]); said != "" {
			t.Errorf("the server logged: %s", said)
		}
	})
}

// counter counts the statements sent to a driver, by the name that sqlc gave them.
type counter struct {
	mu     sync.Mutex
	counts map[string]int
	before sync.Map // the text of a statement → what the session sends before it, once

	each  func(n int) // if not nil, called before each statement that is no prepared one, with its number from 0
	asked atomic.Int32
}

var nameOfStatement = regexp.MustCompile(`^-- name: (\w+)`)

func (c *counter) count(statement string) {
	name := statement
	if match := nameOfStatement.FindStringSubmatch(statement); match != nil {
		name = match[1]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[name]++
}

// asks counts a statement, and calls each.
func (c *counter) asks(statement string) {
	c.count(statement)
	if c.each != nil {
		c.each(int(c.asked.Add(1)) - 1)
	}
}

// since returns the counts since before.
func (c *counter) since(before map[string]int) map[string]int {
	now := c.now()
	for name := range now {
		if now[name] -= before[name]; now[name] == 0 {
			delete(now, name)
		}
	}
	return now
}

func (c *counter) now() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// openCounted opens the i-th candidate's pool and counts its statements.
func (d drivers) openCounted(t *testing.T, i int, dsn string) (*sql.DB, *counter) {
	t.Helper()
	c := &counter{counts: map[string]int{}}
	pool := sql.OpenDB(countingConnector{d.open(t, i, dsn).Driver(), dsn, c})
	t.Cleanup(func() { expect(t, pool.Close()) })
	return pool, c
}

type countingConnector struct {
	driver  driver.Driver
	dsn     string
	counter *counter
}

func (c countingConnector) Driver() driver.Driver { return c.driver }

func (c countingConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	able, ok := conn.(capable)
	if !ok {
		return nil, fmt.Errorf("%T lacks methods that database/sql uses", conn)
	}
	return countingConn{able, c.counter}, nil
}

// capable has the optional methods that both drivers' connections have. A counting connection
// must have them, too.
type capable interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
}

type countingConn struct {
	capable
	counter *counter
}

// Raw returns the connection that is counted, which the library waits on.
func (c countingConn) Raw() driver.Conn { return c.capable }

func (c countingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.counter.asks(query)
	if before, ok := c.counter.before.LoadAndDelete(query); ok {
		if _, err := c.capable.ExecContext(ctx, before.(string), nil); err != nil {
			return nil, err
		}
	}
	return c.capable.QueryContext(ctx, query, args)
}

func (c countingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.counter.asks(query)
	return c.capable.ExecContext(ctx, query, args)
}

func (c countingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.counter.asks("prepare")
	stmt, err := c.capable.PrepareContext(ctx, query)
	return countingStmt{stmt, query, c.counter}, err
}

// countingStmt is a prepared statement. The library only queries with them.
type countingStmt struct {
	driver.Stmt
	query   string
	counter *counter
}

func (s countingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.counter.count("prepared " + nameOfStatement.FindStringSubmatch(s.query)[1])
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func (c countingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.counter.asks("begin")
	return c.capable.BeginTx(ctx, opts)
}

// Ping counts with pgx alone. Over lib/pq a session is asked each 250 ms whether it is lost, unless it
// has just sent something else: the number says how busy the machine was.
func (c countingConn) Ping(ctx context.Context) error {
	if _, ok := c.capable.(*stdlib.Conn); ok {
		c.counter.count("ping")
	}
	return c.capable.Ping(ctx)
}

func (c countingConn) IsValid() bool {
	valid, ok := c.capable.(driver.Validator)
	return !ok || valid.IsValid()
}

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
	"testing"
	"time"

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

// plain makes a candidate on a pool that counts its statements.
func (s *server) plain(t *testing.T, d drivers, i int, election string, opts ...elector.Option) (*candidate, *counter) {
	t.Helper()
	pool, counter := d.openCounted(t, i, s.DSN())
	c := &candidate{rec: hookstest.NewRecorder(), pool: pool}
	e, err := elector.New(pool, election, append([]elector.Option{elector.WithLease(lease), elector.WithHeartbeatInterval(heartbeat),
		elector.WithRetryInterval(retry), withoutLeader(c.rec)}, opts...)...)
	check(t, err)
	c.Elector = e
	t.Cleanup(func() { s.leavesNothing(t, c) })
	return c, counter
}

func same(t *testing.T, what string, got, want map[string]int) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// atMost checks that at most one heartbeat was sent each interval, besides one that was under
// way at first.
func atMost(t *testing.T, pings int, began time.Time) {
	t.Helper()
	if most := 1 + int(time.Since(began)/heartbeat); pings > most {
		t.Errorf("%d heartbeats, want at most %d", pings, most)
	}
}

// closes removes the heartbeats from sent, and the BEGIN that closes the connection for good,
// which is repeated if it takes long.
func closes(t *testing.T, sent map[string]int) {
	t.Helper()
	if n := sent["BEGIN"]; n != 1 && n != 2 {
		t.Errorf("BEGIN was sent %d times", n)
	}
	delete(sent, "BEGIN")
	delete(sent, "Ping")
}

// The first attempt also checks the server. The test counts later ones.
func TestStatementsAreFew(t *testing.T) {
	inSessionScope(t, "it counts the statements of that scope")
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		leader, led := s.plain(t, d, 0, election)
		follower, followed := s.plain(t, d, 1, election)

		term, err := leader.Campaign(soon(t))
		check(t, err)
		_, _, err = follower.TryCampaign(soon(t))
		check(t, err)
		expect(t, term.Resign(soon(t)))

		before := led.now()
		term, err = leader.Campaign(soon(t))
		check(t, err)
		elected := led.since(before)
		delete(elected, "Ping") // a heartbeat may have come
		delete(elected, "HeldLocks")
		same(t, "an election", elected, map[string]int{"TryLock": 1, "Confirm": 1})

		before = followed.now()
		for range 5 {
			_, _, err = follower.TryCampaign(soon(t))
			check(t, err)
		}
		same(t, "five attempts that fail", followed.since(before), map[string]int{"TryLock": 5})

		wait[hooks.Heartbeat](t, leader, nil) // the count begins at a heartbeat
		beats := leader.after()
		began := time.Now()
		before = led.now()
		for range 5 {
			next[hooks.Heartbeat](t, beats, nil)
		}
		rest := led.since(before)
		atMost(t, rest["Ping"], began)
		if most := 2 + int(time.Since(began)/time.Second); rest["HeldLocks"] > most {
			t.Errorf("the locks are validated %d times in %v", rest["HeldLocks"], time.Since(began))
		}
		delete(rest, "Ping")
		delete(rest, "HeldLocks")
		same(t, "beside heartbeats", rest, map[string]int{})

		before = led.now()
		expect(t, term.Resign(soon(t)))
		resigned := led.since(before)
		closes(t, resigned)
		same(t, "a resignation", resigned, map[string]int{"Unlock": 1})
	})
}

// A deputy prepares the statements of a hand-over beforehand.
func TestAHandOverSendsPreparedStatements(t *testing.T) {
	inSessionScope(t, "it counts the statements of that scope")
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		first, _ := s.plain(t, d, 0, election, inServer...)
		leader, led := s.plain(t, d, 0, election, inServer...)
		follower, followed := s.plain(t, d, 1, election, inServer...)
		first.run(t, nil)
		first.elected(t)
		leader.run(t, nil)
		s.waits(t, leader)
		first.end(t)
		leader.elected(t)
		eventually(t, "the first leader's seat is free", func() bool {
			return one[int](t, s.admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", first.CandidateID()) == 0
		})
		follower.run(t, nil)
		s.waits(t, follower)

		term := termOf(t, leader)
		beforeLed, beforeFollowed := led.now(), followed.now()
		expect(t, term.Resign(soon(t)))
		follower.elected(t)
		resigned, handedOver := led.since(beforeLed), followed.since(beforeFollowed)
		if resigned["prepared Unlock"] != 1 || resigned["Unlock"] != 0 {
			t.Errorf("a resignation: %v", resigned)
		}
		if handedOver["prepared Confirm"] == 0 {
			t.Errorf("the grant was not verified: %v", handedOver)
		}
		for _, repeated := range []string{"WaitLock", "prepared Confirm", "Ping", "PairIsFree", "Identify"} { // the deputy may have begun another wait
			delete(handedOver, repeated)
		}
		same(t, "beside waits", handedOver, map[string]int{})
	})
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
	c.counter.count(query)
	if before, ok := c.counter.before.LoadAndDelete(query); ok {
		if _, err := c.capable.ExecContext(ctx, before.(string), nil); err != nil {
			return nil, err
		}
	}
	return c.capable.QueryContext(ctx, query, args)
}

func (c countingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.counter.count(query)
	return c.capable.ExecContext(ctx, query, args)
}

func (c countingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.counter.count("prepare")
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
	c.counter.count("begin")
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

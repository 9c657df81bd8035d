//go:build unix

package e2e_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// candidate is a candidate in this process.
type candidate struct {
	*elector.Elector
	rec  *hookstest.Recorder
	pool *sql.DB

	poolClosed bool // the test closed the pool
	shared     bool // the pool is behind a pooler with its own settings
	moved      bool // that pooler gives each transaction another backend

	stop context.CancelFunc // ends Run
	done chan struct{}      // closed when Run has returned
	err  error              // what Run returned
}

// Default settings of the tests: no lease runs out because the machine is busy, and followers try often.
const (
	lease     = 30 * time.Second
	heartbeat = 200 * time.Millisecond
	retry     = 100 * time.Millisecond
)

// short is a lease that a test waits for to run out. No other test may have it.
const short = 4 * time.Second

var briefly = elector.WithLease(short)

// while is a time in which a candidate that is not disturbed sends many heartbeats.
const while = 3 * time.Second

// stand makes a candidate and checks at the end of the test that it leaves nothing behind.
func (s *server) stand(t *testing.T, pool *sql.DB, election string, opts ...elector.Option) *candidate {
	t.Helper()
	c := &candidate{rec: hookstest.NewRecorder(), pool: pool}
	e, err := elector.New(pool, election, append([]elector.Option{
		elector.WithCandidateID(unique("candidate")),
		elector.WithLease(lease), elector.WithHeartbeatInterval(heartbeat),
		elector.WithRetryInterval(retry), elector.WithHooks(c.rec)}, append(s.takeovers(), opts...)...)...)
	check(t, err)
	c.Elector = e
	t.Cleanup(func() {
		for _, violation := range c.rec.Violations() {
			t.Error("violated:", violation)
		}
		s.leavesNothing(t, c)
	})
	return c
}

// run starts Run and ends it at the end of the test.
func (c *candidate) run(t *testing.T, lead func(context.Context, *elector.Term) error) *candidate {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.done = stop, make(chan struct{})
	go func() {
		defer close(c.done)
		c.err = c.Run(ctx, lead)
	}()
	t.Cleanup(func() { c.end(t) })
	return c
}

// end cancels Run and waits for it.
func (c *candidate) end(t *testing.T) {
	t.Helper()
	c.stop()
	c.returned(t)
}

func (c *candidate) returned(t *testing.T) error {
	t.Helper()
	closed(t, "Run returns", c.done)
	return c.err
}

// elected waits until the candidate is elected for the first time.
func (c *candidate) elected(t *testing.T) hooks.Elected {
	t.Helper()
	return wait[hooks.Elected](t, c, nil)
}

// follows waits until the candidate has found the lock busy.
func (c *candidate) follows(t *testing.T) {
	t.Helper()
	wait(t, c, func(e hooks.Campaign) bool { return e.Outcome == hooks.Busy })
}

// after returns a cursor for events from now on.
func (c *candidate) after() *hookstest.Cursor {
	cursor := c.rec.Cursor()
	cursor.SkipSeen()
	return cursor
}

// termOf waits for a term and returns it. On a busy machine the candidate may have lost the
// last one.
func termOf(t *testing.T, e interface{ Term() (*elector.Term, bool) }) (term *elector.Term) {
	t.Helper()
	eventually(t, "it leads", func() (leads bool) { term, leads = e.Term(); return leads })
	return term
}

// survives waits until heartbeats have kept the candidate's first term for so long, and fails if the term
// was lost.
func (c *candidate) survives(t *testing.T, long time.Duration) {
	t.Helper()
	first := c.elected(t)
	wait(t, c, func(h hooks.Heartbeat) bool { return h.At.Sub(first.At) > long })
	for _, d := range c.rec.Demoted() {
		t.Errorf("demoted (%s): %v", d.Reason, d.Err)
	}
}

// wait returns the first event that matches, past or future.
func wait[E hookstest.Event](t *testing.T, c *candidate, match func(E) bool) E {
	t.Helper()
	return next(t, c.rec.Cursor(), match)
}

// next returns the next event that matches.
func next[E hookstest.Event](t *testing.T, cursor *hookstest.Cursor, match func(E) bool) E {
	t.Helper()
	e, err := hookstest.Next(soon(t), cursor, match)
	check(t, err)
	return e
}

// wraps fails the test unless err wraps the sentinel.
func wraps(t *testing.T, err, sentinel error) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Errorf("got error %v, want one that wraps %v", err, sentinel)
	}
}

// gone waits until no backend is the candidate's. One whose client has left may keep the seat
// for a moment.
func (s *server) gone(t *testing.T, c *candidate) {
	t.Helper()
	eventually(t, "the candidate's session is gone", func() bool {
		return len(list[int](t, s.admin, "SELECT pid FROM pg_stat_activity WHERE application_name = $1", c.CandidateID())) == 0
	})
}

// leavesNothing checks that a candidate that has ended left no backend and no lock, and
// that its pool is usable and has no settings of the library.
func (s *server) leavesNothing(t *testing.T, c *candidate) {
	t.Helper()
	if !s.up() {
		return // the test killed the server
	}
	s.gone(t, c)
	if c.poolClosed {
		return
	}
	if c.moved || s.pooler != nil { // its pool has no backend of its own
		return
	}
	eventually(t, "the pool is usable", func() bool { return c.pool.PingContext(context.Background()) == nil })
	for _, conn := range pooled(t, c.pool) {
		// The source of a setting that a statement set, after the connection was made, is "session".
		left := list[string](t, conn, "SELECT pg_catalog.concat(s.name, '=', s.setting) FROM pg_catalog.pg_settings AS s WHERE s.source OPERATOR(pg_catalog.=) 'session'")
		if len(left) > 0 && !c.shared {
			t.Errorf("a pooled connection has changed settings: %q", left)
		}
		if left := list[int64](t, conn, "SELECT l.objid::bigint FROM pg_catalog.pg_locks AS l WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()"); len(left) > 0 {
			t.Errorf("a pooled connection holds advisory locks: %v", left)
		}
		if id := one[string](t, conn, "SELECT pg_catalog.current_setting('application_name')"); id == c.CandidateID() {
			t.Errorf("a pooled connection has the application_name %q", id)
		}
		expect(t, conn.Close())
	}
}

// pooled takes all working idle connections of a pool.
func pooled(t *testing.T, pool *sql.DB) []*sql.Conn {
	t.Helper()
	var all []*sql.Conn
	for range pool.Stats().Idle {
		conn, err := pool.Conn(soon(t))
		check(t, err)
		if _, err := conn.ExecContext(soon(t), "SELECT 1"); err == nil { // below a wrapper a ping may ask nothing
			all = append(all, conn)
		} else {
			_ = conn.Close() // the server was restarted
		}
	}
	return all
}

func nextElected(t *testing.T, cursor *hookstest.Cursor) hooks.Elected {
	t.Helper()
	return next[hooks.Elected](t, cursor, nil)
}

// server is a cluster with an administrator's pool that faults do not affect.
type server struct {
	*pgcluster.Cluster
	admin  *sql.DB
	pooler *pgcluster.Bouncer // through which its DSN leads; usually nil
}

func onShared(t *testing.T) *server {
	t.Helper()
	return on(t, shared.Get(t))
}

// direct is onShared for a test that starts poolers itself.
func direct(t *testing.T) *server {
	t.Helper()
	return withoutPooler(t, shared.Get(t))
}

func withoutPooler(t *testing.T, c *pgcluster.Cluster) *server {
	t.Helper()
	return &server{Cluster: c, admin: pgx.open(t, 0, c.DSN(pgcluster.WithParam("application_name", "admin")))}
}

func on(t *testing.T, c *pgcluster.Cluster) *server {
	t.Helper()
	s := withoutPooler(t, c)
	if throughPooler {
		s.startPooler(t)
		strangers(t, s.pooler, 2)
	}
	return s
}

// election returns the name of a new election, whose lock must be free at the end of the test.
func (s *server) election(t *testing.T) string {
	t.Helper()
	election := unique(t.Name())
	t.Cleanup(func() {
		if s.up() {
			s.frees(t, elector.KeyFromName(election))
		}
	})
	return election
}

func (s *server) up() bool { return s.admin.PingContext(context.Background()) == nil }

// unique returns a name that no other test uses, and no repetition of this one.
func unique(name string) string { return name + "-" + strings.ToLower(rand.Text()[:6]) }

// database makes a database that is dropped at the end of the test, and returns its address.
func (s *server) database(t *testing.T) string {
	t.Helper()
	return s.databaseOf(t, unique("database"))
}

// databaseOf is database with a given name and options of the address.
func (s *server) databaseOf(t *testing.T, name string, opts ...pgcluster.DSNOption) string {
	t.Helper()
	_, err := s.admin.Exec(`CREATE DATABASE "` + name + `"`)
	check(t, err)
	t.Cleanup(func() {
		_, err := s.admin.Exec(`DROP DATABASE "` + name + `" WITH (FORCE)`)
		expect(t, err)
	})
	return s.DSN(append(opts, pgcluster.ForDatabase(name))...)
}

// role makes a role with default settings and returns its name. The role is dropped at the end
// of the test.
func (s *server) role(t *testing.T, defaults map[string]string) string {
	t.Helper()
	name := unique("role")
	check(t, s.CreateRole(t.Context(), name, defaults))
	t.Cleanup(func() {
		_, err := s.admin.Exec(`DROP OWNED BY "` + name + `"; DROP ROLE "` + name + `"`)
		expect(t, err)
	})
	return name
}

// holders returns the backends that hold or await a lock with the key, holders first.
func (s *server) holders(t *testing.T, key int64) []int {
	t.Helper()
	return s.locksOf(t, key, "true")
}

// locksOf returns the backends of the key's rows in pg_locks that satisfy the condition,
// granted locks first.
func (s *server) locksOf(t *testing.T, key int64, condition string) []int {
	t.Helper()
	return list[int](t, s.admin, `SELECT pid FROM pg_locks WHERE locktype = 'advisory'
		AND classid = (($1::bigint >> 32) & 4294967295)::oid AND objid = ($1::bigint & 4294967295)::oid AND `+condition+` ORDER BY granted DESC`, key)
}

// terminate sends SIGTERM to a backend.
func (s *server) terminate(t *testing.T, pid int) {
	t.Helper()
	if !one[bool](t, s.admin, "SELECT pg_terminate_backend($1)", pid) {
		t.Fatalf("there is no backend %d", pid)
	}
}

// one returns the single value of a query.
func one[T any](t *testing.T, q querier, query string, args ...any) T {
	t.Helper()
	all := list[T](t, q, query, args...)
	if len(all) != 1 {
		t.Fatalf("%d rows, want 1: %s", len(all), query)
	}
	return all[0]
}

// list returns the values of a query's only column.
func list[T any](t *testing.T, q querier, query string, args ...any) []T {
	t.Helper()
	rows, err := q.QueryContext(context.Background(), query, args...)
	check(t, err)
	defer rows.Close()
	var all []T
	for rows.Next() {
		var value T
		check(t, rows.Scan(&value))
		all = append(all, value)
	}
	check(t, rows.Err())
	return all
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

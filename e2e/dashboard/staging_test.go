//go:build unix

package dashboard_test

import (
	"context"
	"database/sql"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/dashboard"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/pgelector/pgelector/roster"
)

// The ids are as long as those that a candidate draws by itself: host, process and random.
const (
	web1 = "orders-7f9c6d5b8-x2k4q-1-9f3ac01be27d4410"
	web2 = "orders-7f9c6d5b8-mm7zt-1-1d8e7762ab90fe35"
	web3 = "orders-7f9c6d5b8-q9w2c-1-77ab3c1209f44e02"
)

// A staging is a database in which each election is in one state.
type staging struct {
	t    *testing.T
	dsn  string
	pool *sql.DB
	r    *roster.Roster
}

func newStaging(t *testing.T) *staging {
	t.Helper()
	name := strings.ToLower(t.Name())
	admin, err := sql.Open("pgx", shared.Get(t).DSN())
	check(t, err)
	defer admin.Close()
	_, err = admin.Exec("CREATE DATABASE " + name)
	check(t, err)
	s := &staging{t: t, dsn: shared.Get(t).DSN(pgcluster.ForDatabase(name))}
	s.pool, err = sql.Open("pgx", s.dsn)
	check(t, err)
	t.Cleanup(func() { _ = s.pool.Close() })
	s.r, err = roster.New(s.pool)
	check(t, err)
	check(t, s.r.Migrate(soon(t)))
	t.Cleanup(func() { expect(t, s.r.Close(soon(t))) })
	return s
}

// session opens a session that tells a lease, as a candidate's does, and sends no statement unless
// it beats.
func (s *staging) session(id string, lease time.Duration, beats bool) *sql.Conn {
	s.t.Helper()
	conn, err := s.pool.Conn(context.Background())
	check(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	_, err = conn.ExecContext(soon(s.t), "SELECT set_config('application_name', $1, false), pg_advisory_lock_shared(318473925, $2)", id, lease.Milliseconds())
	check(s.t, err)
	if beats {
		stop, done := make(chan struct{}), make(chan struct{})
		s.t.Cleanup(func() { close(stop); <-done })
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Millisecond):
					_, _ = conn.ExecContext(context.Background(), "SELECT 1")
				}
			}
		}()
	}
	return conn
}

// leads lets a session lead an election.
func (s *staging) leads(conn *sql.Conn, election string) {
	s.t.Helper()
	_, err := conn.ExecContext(soon(s.t), "SELECT pg_advisory_lock($1)", int64(elector.KeyFromName(election)))
	check(s.t, err)
}

// publishes writes what a candidate published some time ago. A publication is good for an hour, or
// for 15 s if it is older than that.
func (s *staging) publishes(election, id string, ago string, health float64, healthy bool) {
	s.t.Helper()
	_, err := s.pool.Exec(`INSERT INTO pgelector.roster_candidates (key, candidate_id, election, version, metadata, since, health, healthy, published_at, expires_at)
		VALUES ($1, $2, $3, '1.4.2', '{"zone": "eu-1a", "address": "10.0.4.11:8080"}', now(), $4, $5, now() - $6::interval,
			now() - $6::interval + CASE WHEN $6::interval < '15 s' THEN interval '3 h' ELSE '45 s' END)`,
		int64(elector.KeyFromName(election)), id, election, health, healthy, ago)
	check(s.t, err)
}

// led writes a term. The times are before now; ended may be "".
func (s *staging) led(election string, token int64, id, began, ended, reason, cause string) {
	s.t.Helper()
	_, err := s.pool.Exec(`INSERT INTO pgelector.roster_terms (key, token, election, candidate_id, elected_at, ended_at, reason, error)
		VALUES ($1, $2, $3, $4, now() - $5::interval, now() - nullif($6, '')::interval, nullif($7, ''), nullif($8, ''))`,
		int64(elector.KeyFromName(election)), 281474976710656+token, election, id, began, ended, reason, cause)
	check(s.t, err)
}

// troubles stages one election for each kind of trouble, and one that is well.
func (s *staging) troubles() {
	s.t.Helper()
	alive := s.session(web1, 10*time.Second, true)
	_, err := alive.ExecContext(soon(s.t), "SELECT pg_advisory_lock_shared(521961639, floor(extract(epoch FROM now() - interval '11 h'))::int)") // since when it leads
	check(s.t, err)
	for _, election := range []string{"a-well", "b-follower-gone", "d-follower-ill"} {
		if election != "a-well" {
			s.leads(alive, election)
			s.publishes(election, web1, "4 s", 0.98, true)
		}
		s.led(election, 1, web3, "23 h", "15 h", "shutdown", "")
		s.led(election, 2, web2, "15 h", "11 h 30 min", "lease_expired", "no heartbeat was answered for 7 s (a term lasts 7 s without one; the lease is 10 s)")
		s.led(election, 3, web1, "11 h", "", "", "")
	}
	first, _ := candidate(s.t, s.pool, "a-well", web1, s.r)
	_, err = hookstest.Wait[hooks.Elected](soon(s.t), first, nil)
	check(s.t, err)
	candidate(s.t, s.pool, "a-well", web2, s.r)
	eventually(s.t, "the second is the deputy", func() bool {
		all, err := s.r.Candidates(soon(s.t), elector.KeyFromName("a-well"))
		return err == nil && len(all) == 2 && all[1].Deputy
	})
	s.publishes("b-follower-gone", web2, "31 s", 0.91, true)
	s.publishes("d-follower-ill", web2, "2 s", 0.42, false)
	s.publishes("d-follower-ill", web3, "2 s", 0.87, true)

	s.leads(s.session(web2, 2*time.Second, false), "c-leader-frozen")
	s.publishes("c-leader-frozen", web2, "12 s", 0.9, true)
	s.publishes("c-leader-frozen", web3, "2 s", 0.8, true)

	s.publishes("e-nobody-healthy", web1, "3 s", 0.3, false)
	s.publishes("e-nobody-healthy", web2, "3 s", 0.1, false)
	s.led("e-nobody-healthy", 4, web1, "20 h", "8 min", "unhealthy", "elector: the candidate is unhealthy: the score is 0.3, below the minimum of 0.5")
	s.publishes("f-nobody-there", web1, "4 min", 0.9, true)
	s.led("f-nobody-there", 5, web1, "20 h", "", "", "")
}

// show opens a page on a pool of its own, which gone closes.
func (s *staging) show(opts ...dashboard.Option) (address string, gone func()) {
	s.t.Helper()
	pool, err := sql.Open("pgx", s.dsn)
	check(s.t, err)
	r, err := roster.New(pool)
	check(s.t, err)
	page, err := dashboard.New(pool, append(opts, dashboard.WithRoster(r))...)
	check(s.t, err)
	server := httptest.NewServer(page)
	s.t.Cleanup(func() { server.Close(); _ = pool.Close() })
	return server.URL, func() { _ = pool.Close() }
}

//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/dashboard"
	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/seat"
	"github.com/pgelector/pgelector/roster"
	"github.com/pgelector/pgelector/shard"
)

// A role without any privilege sees the lease, its scope and since when the leader leads: of
// one that was elected at once, of a deputy, and of a candidate to which the lock was transferred.
func TestTheLeadersLeaseAndTheStartOfItsTermAreSeenByAnyRole(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		for scope, opts := range map[elector.Scope][]elector.Option{
			elector.SessionScope:     {elector.WithScope(elector.SessionScope)},
			elector.TransactionScope: {elector.WithScope(elector.TransactionScope), elector.WithTakeover(elector.Deputy)},
		} {
			s := onShared(t)
			if scope == elector.SessionScope {
				s = direct(t)
			}
			w := invaded(t, s)
			role := d.open(t, 0, w.dsn(w.stranger))
			asker, err := elector.New(role, "town", elector.WithLease(lease))
			check(t, err)
			sees := func(c *candidate, since time.Time) {
				t.Helper()
				elected := c.elected(t)
				leader, err := asker.Leader(soon(t))
				check(t, err)
				if leader.CandidateID != c.CandidateID() || leader.Lease != lease || leader.Scope != scope || !leader.SessionAt.IsZero() {
					t.Errorf("the leader is %+v", leader)
				}
				if leader.ElectedAt.Before(since.Truncate(time.Second)) || leader.ElectedAt.After(elected.At) { // in whole seconds
					t.Errorf("it was elected between %v and %v, and says %v", since, elected.At, leader.ElectedAt)
				}
			}
			stand := func() *candidate {
				c := w.stand(t, d.open(t, 0, w.dsn(w.elections)), "town", opts...)
				c.moved = scope == elector.TransactionScope
				return c.run(t, nil)
			}
			since := time.Now()
			first := stand()
			sees(first, since)
			time.Sleep(2100 * time.Millisecond) // the start of the next session and of its term differ
			second := stand()
			second.follows(t)
			time.Sleep(2100 * time.Millisecond)
			since = time.Now()
			first.end(t)
			sees(second, since)
			third := stand()
			third.follows(t)
			since = time.Now()
			_, err = elector.RequestTransfer(soon(t), role, "town", third.CandidateID())
			check(t, err)
			sees(third, since)
			second.end(t)
			third.end(t)
		}
	})
}

// Several clients look at once, so that the pooler gives their statements to different backends.
func TestWhateverLooksWorksThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	overTransactions(t, inTransactions, 6, func(t *testing.T, s *server, open func() *sql.DB, _ *pgcluster.Bouncer) {
		pool := open()
		schema := strings.ToLower(unique("looks"))
		entries, err := roster.New(pool, roster.WithSchema(schema))
		check(t, err)
		check(t, entries.Migrate(soon(t)))
		t.Cleanup(func() { _, err := s.admin.Exec(`DROP SCHEMA "` + schema + `" CASCADE`); check(t, err) })
		leader := s.through(t, open(), s.election(t), elector.WithHooks(entries)).run(t, nil)
		check(t, entries.Add(leader.Elector))
		leader.elected(t)
		page, err := dashboard.New(pool, dashboard.WithRoster(entries), dashboard.WithElections(leader.Election()))
		check(t, err)
		monitor, err := health.New(pool, health.WithTimeout(time.Minute))
		check(t, err)
		follower, err := elector.New(pool, leader.Election(), elector.WithLease(lease))
		check(t, err)
		check(t, monitor.Add(follower))

		var clients sync.WaitGroup
		for range 4 {
			clients.Go(func() {
				for range 10 {
					if who, err := follower.Leader(soon(t)); err != nil || who.CandidateID != leader.CandidateID() {
						t.Errorf("Leader: %+v, %v", who, err)
					}
					if all, err := follower.Candidates(soon(t)); err != nil || len(all) == 0 {
						t.Errorf("Candidates: %+v, %v", all, err)
					}
					if _, err := entries.Candidates(soon(t), leader.Key()); err != nil {
						t.Errorf("the roster's candidates: %v", err)
					}
					if _, err := entries.Terms(soon(t), 5, leader.Key()); err != nil {
						t.Errorf("the roster's terms: %v", err)
					}
					if _, err := entries.CleanUp(soon(t)); err != nil {
						t.Errorf("the roster's cleaning: %v", err)
					}
					if _, _, err := shard.Spread(soon(t), pool, "group", shard.Numbers(3).Names()); err != nil {
						t.Errorf("the spread of a group: %v", err)
					}
					answer := httptest.NewRecorder()
					page.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
					if body := answer.Body.String(); answer.Code != 200 || !strings.Contains(body, leader.CandidateID()) {
						t.Errorf("the dashboard: %d, %s", answer.Code, body)
					}
					if report := monitor.Check(soon(t)); report.Status != health.Healthy {
						t.Errorf("health: %+v", report)
					}
				}
			})
		}
		clients.Wait()
		leader.end(t)
		check(t, entries.Close(soon(t)))
		if all, err := entries.Terms(soon(t), 5, leader.Key()); err != nil || len(all) != 1 {
			t.Errorf("the roster has the terms %+v, %v", all, err)
		}
	})
}

// The server reads a session's transaction separately for each of its locks. Many locks of others lie between,
// and the leader's session begins and ends transactions meanwhile.
func TestALeaderIsListedOnceWhateverItsSessionDoes(t *testing.T) {
	inSessionScope(t, "the locks are those of a session")
	t.Parallel()
	s := on(t, own(t))
	holder, err := pgx.open(t, 0, s.DSN()).Conn(t.Context())
	check(t, err)
	key, others := lockkey.Of("", 1), "SELECT count(pg_advisory_lock(1, i)) FROM generate_series(1, 3000) i"
	_, err = s.admin.Exec(others)
	check(t, err)
	high, low := lockkey.Halves(seat.Key(key))
	_, err = holder.ExecContext(t.Context(), "SELECT pg_advisory_lock($1), pg_advisory_lock($2, $3)", key, high, low)
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			_, err := holder.ExecContext(t.Context(), "SELECT")
			expect(t, err)
		}
	})
	defer all.Wait()
	defer cancel()
	for range 300 {
		rows, err := db.New(s.admin).AdvisoryLocks(t.Context(), db.Keys(key))
		check(t, err)
		if len(rows) != 1 || !rows[0].Granted || rows[0].Deputy {
			t.Fatalf("one session leads and holds a seat, and this is listed: %+v", rows)
		}
	}
}

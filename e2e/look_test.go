//go:build unix

package e2e_test

import (
	"database/sql"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/pgelector/pgelector/dashboard"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/roster"
	"github.com/pgelector/pgelector/shard"
)

// Several clients look at once, so that the pooler gives their statements to different backends.
func TestWhateverLooksWorksThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	overTransactions(t, 6, func(t *testing.T, s *server, open func() *sql.DB, _ *pgcluster.Bouncer) {
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
		monitor, err := health.New(pool)
		check(t, err)
		follower, err := elector.New(pool, leader.Election())
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

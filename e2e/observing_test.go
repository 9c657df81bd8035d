//go:build unix

package e2e_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/dashboard"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/hooks"
	sloghooks "github.com/pgelector/pgelector/hooks/slog"
	"github.com/pgelector/pgelector/roster"
	"github.com/pgelector/pgelector/shard"
)

func TestALeaderThatTakesNoRequestsGoesOnAndReportsWhoAsked(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election, role := s.election(t), s.role(t, nil)
		var lines bytes.Buffer
		g := newTarget(t, "a")
		leader := s.stand(t, d.open(t, 0, s.DSN()), election, elector.WithRequests(false),
			elector.WithHooks(g.hook, sloghooks.New(slog.New(slog.NewTextHandler(&lines, nil))))).run(t, nil)
		leader.elected(t)
		pool := d.open(t, 1, s.DSN(pgcluster.ForRole(role)))
		ctx, giveUp := context.WithCancel(soon(t))
		refused := make(chan struct{})
		go func() {
			defer close(refused)
			got, err := elector.RequestResign(ctx, pool, election)
			wraps(t, err, elector.ErrUnanswered)
			wraps(t, err, context.Canceled)
			if got.CandidateID != leader.CandidateID() {
				t.Errorf("got %+v", got)
			}
		}()
		asked := func(f hooks.Failure) bool { return f.Op == hooks.OpRequest }
		heard := wait(t, leader, asked)
		next(t, leader.after(), func(h hooks.Heartbeat) bool { return h.At.After(heard.At) })
		giveUp()
		closed(t, "the request returns", refused)
		if n := len(leader.rec.Demoted()); n > 0 || !leader.IsLeader() {
			t.Errorf("%d terms have ended", n)
		}
		leader.end(t)
		if n := number(leader.rec.Failures(), asked); n != 1 || !strings.Contains(heard.Err.Error(), role) {
			t.Errorf("%d requests were reported, the first as %v", n, heard.Err)
		}
		if n := g.scrape(t)[g.of(leader, "pgelector_failures_total", "op", "request")]; n != 1 {
			t.Errorf("%v requests were counted", n)
		}
		_, line, _ := strings.Cut(lines.String(), `level=WARN msg="request not answered" `)
		if line, _, _ = strings.Cut(line, "\n"); !strings.Contains(line, role) {
			t.Errorf("the log does not say who asked:\n%s", lines.String())
		}
	})
}

func TestObserveYieldsAnErrorWhileTheServerIsDownAndThenTheLeader(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := on(t, own(t))
		election := s.election(t)
		c := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil)
		old := c.elected(t)
		var failed error
		var resuming sync.WaitGroup
		killed, resumed, back := false, false, false
		for leader, err := range s.stand(t, d.open(t, 1, s.DSN()), election).Observe(soon(t)) {
			if errors.Is(err, elector.ErrNoLeader) {
				err = nil
			}
			if err != nil && (failed != nil || leader != elector.Leader{}) {
				t.Errorf("after the error %v it yields %+v, %v", failed, leader, err)
			}
			switch failed = err; {
			case !killed && leader.CandidateID == c.CandidateID():
				check(t, s.Kill())
				killed = true
			case killed && !resumed:
				if err == nil {
					t.Errorf("the server is down, and it yields %+v", leader)
				}
				resumed = true
				resuming.Go(func() {
					time.Sleep(5 * retry) // it asks some times more
					expect(t, s.Resume(soon(t)))
				})
			case resumed && leader.CandidateID == c.CandidateID():
				back = true
			}
			if back {
				break
			}
		}
		resuming.Wait()
		if !back {
			t.Errorf("killed: %t, resumed: %t, and the leader was not seen again", killed, resumed)
		}
		next(t, c.rec.Cursor(), func(e hooks.Elected) bool { return e.Token > old.Token })
	})
}

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
			asker, err := elector.New(role, "town")
			check(t, err)
			sees := func(c *candidate) {
				t.Helper()
				elected := c.elected(t)
				leader, err := asker.Leader(soon(t))
				check(t, err)
				if leader.CandidateID != c.CandidateID() || leader.Lease != lease || leader.Scope != scope || !leader.SessionAt.IsZero() {
					t.Errorf("the leader is %+v", leader)
				}
				if d := leader.ElectedAt.Sub(elected.At); d < -2*time.Second || d > time.Second {
					t.Errorf("it leads since %v, and says %v", elected.At, leader.ElectedAt)
				}
			}
			stand := func() *candidate {
				c := w.stand(t, d.open(t, 0, w.dsn(w.elections)), "town", opts...)
				c.moved = scope == elector.TransactionScope
				return c.run(t, nil)
			}
			first := stand()
			sees(first)
			time.Sleep(2100 * time.Millisecond) // the start of the next session and of its term differ
			second := stand()
			second.follows(t)
			time.Sleep(2100 * time.Millisecond)
			first.end(t)
			sees(second)
			third := stand()
			third.follows(t)
			_, err = elector.RequestTransfer(soon(t), role, "town", third.CandidateID())
			check(t, err)
			sees(third)
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

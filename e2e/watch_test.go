//go:build unix

package e2e_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// watching are the options of a watched leader with rare heartbeats.
var watching = []elector.Option{elector.WithWatch(), elector.WithLease(time.Minute),
	elector.WithHeartbeatInterval(patientWait), elector.WithRetryInterval(retry)}

// watcher waits until the candidate's watcher waits for its lock. It returns the backends of
// both connections.
func (s *server) watcher(t *testing.T, c *candidate) (leader, watcher int) {
	t.Helper()
	eventually(t, "the leader is watched", func() bool {
		pids := list[int](t, s.admin, `SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'`, c.CandidateID())
		if len(pids) != 1 {
			return false
		}
		watcher = pids[0]
		return true
	})
	for _, pid := range s.holders(t, c.Key()) {
		leader = pid
	}
	return leader, watcher
}

func TestAWatchedLeaderLearnsAtOnceThatItsBackendEnded(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t), watching...).run(t, nil)
		within(t, "to learn it", promptly, func() time.Duration {
			after := c.after()
			eventually(t, "it leads", c.IsLeader)
			leader, _ := s.watcher(t, c)
			began := time.Now()
			s.terminate(t, leader)
			e := next[hooks.Demoted](t, after, nil)
			wraps(t, e.Err, elector.ErrSessionLost)
			return e.At.Sub(began)
		})
	})
}

func TestAWatchedLeaderLearnsAtOnceOfARestart(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgcluster.Mode{"immediate": pgcluster.Immediate, "fast": pgcluster.Fast} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				cluster := own(t)
				s := on(t, cluster)
				c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t), watching...).run(t, nil)
				old := c.elected(t)
				s.watcher(t, c)
				after := c.after()
				began := time.Now()
				check(t, cluster.Shutdown(soon(t), mode))
				next[hooks.Demoted](t, after, nil)
				soonAfter(t, "to learn it", began)
				check(t, cluster.Resume(soon(t)))
				eventually(t, "the server is back", s.up)
				if fresh := nextElected(t, after); fresh.Token <= old.Token {
					t.Errorf("token %d does not rise above %d", fresh.Token, old.Token)
				}
				s.watcher(t, c)
			})
		})
	}
}

func TestTheEndOfTheWatcherCausesAHeartbeatAndEndsNoTerm(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t), watching...).run(t, nil)
		c.elected(t)
		beats := c.after()
		for range 3 {
			_, watcher := s.watcher(t, c)
			began := time.Now()
			s.terminate(t, watcher)
			next[hooks.Heartbeat](t, beats, nil)
			soonAfter(t, "the heartbeat", began)
			eventually(t, "another watches", func() bool {
				_, another := s.watcher(t, c)
				return another != watcher
			})
		}
		leader, _ := s.watcher(t, c) // the new watcher works as well
		began := time.Now()
		s.terminate(t, leader)
		next[hooks.Demoted](t, beats, nil)
		soonAfter(t, "to learn it", began)
		if n := len(c.rec.Demoted()); n != 1 {
			t.Errorf("%d terms have ended", n)
		}
	})
}

func TestAWatchedTermEndsAtOnceAndTheServerLogsNoError(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := quiet(t)
		c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t), append(watching, s.quietly())...)
		before, err := s.ServerLog()
		check(t, err)
		for i := range 20 {
			term, err := c.Campaign(soon(t))
			check(t, err)
			if i%2 == 0 {
				s.watcher(t, c)
			} else {
				time.Sleep(time.Duration(i) * 500 * time.Microsecond) // while the watcher starts
			}
			began := time.Now()
			expect(t, term.Resign(soon(t)))
			soonAfter(t, "a resignation", began)
			if pids := s.holders(t, c.Key()); len(pids) > 0 {
				t.Errorf("backends %v hold the lock after a resignation", pids)
			}
		}
		eventually(t, "no session and no lock is left", func() bool {
			return one[int](t, s.admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", c.CandidateID()) == 0 &&
				one[int](t, s.admin, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
		})
		if n := c.pool.Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use", n)
		}
		after, err := s.ServerLog()
		check(t, err)
		if said := errorsIn(after[len(before):]); len(said) > 0 {
			t.Errorf("the server logged: %s", strings.Join(said, ""))
		}
	})
}

func TestAWatchedLeaderNeedsThreeConnections(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		pool.SetMaxOpenConns(2)
		_, err := elector.New(pool, "any", elector.WithWatch())
		wraps(t, err, elector.ErrConfig)
		pool.SetMaxOpenConns(3)
		c := s.stand(t, pool, s.election(t), append(slices.Clone(watching), elector.WithStandby(elector.Wait))...).run(t, nil)
		c.elected(t)
		after := c.after()
		leader, _ := s.watcher(t, c)
		if n := pool.Stats().InUse; n != 2 {
			t.Errorf("%d connections are in use", n)
		}
		if _, err := c.Leader(soon(t)); err != nil {
			t.Errorf("no connection is left for Leader: %v", err)
		}
		s.terminate(t, leader)
		nextElected(t, after)
		s.watcher(t, c)
	})
}

func TestAWatchedLeaderSendsFewStatements(t *testing.T) {
	inSessionScope(t, "it counts the statements of that scope")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool, counter := d.openCounted(t, 0, s.DSN())
		c := s.stand(t, pool, s.election(t), append(optionsOf(byDefault), elector.WithWatch())...).run(t, nil)
		c.elected(t)
		s.watcher(t, c)
		before := counter.now()
		began := time.Now()
		time.Sleep(6 * time.Second) // the measured time
		if got, most := counter.since(before), 2*time.Since(began).Seconds(); float64(total(got)) > most {
			t.Errorf("%v in %v, want at most %.0f", got, time.Since(began), most)
		}
	})
}

// If there is no connection for the watcher, the term goes on, and OnError reports that the
// leader is not watched. (A pooler would retry what the server refuses.)
func TestALeaderThatCannotBeWatchedLeadsAndReportsIt(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := direct(t)
		name := s.role(t, nil)
		c := s.stand(t, d.open(t, 0, s.DSN(pgcluster.ForRole(name))), s.election(t), elector.WithWatch(), directly()).run(t, nil)
		c.elected(t)
		_, watcher := s.watcher(t, c)
		_, err := s.admin.Exec(`ALTER ROLE "` + name + `" CONNECTION LIMIT 0`)
		check(t, err)
		c.pool.SetMaxIdleConns(-1) // it keeps none for another watcher
		s.terminate(t, watcher)
		f := wait[hooks.Failure](t, c, nil)
		if f.Op != hooks.OpWatch || f.Permanent || !strings.Contains(f.Err.Error(), "too many connections") {
			t.Errorf("reported %+v", f)
		}
		began := time.Now()
		wait(t, c, func(h hooks.Heartbeat) bool { return h.At.Sub(began) > lease })
		if n := len(c.rec.Failures()); n != 1 {
			t.Errorf("reported %d times", n)
		}
		_, err = s.admin.Exec(`ALTER ROLE "` + name + `" CONNECTION LIMIT -1`)
		check(t, err)
		s.watcher(t, c)
		if n := len(c.rec.Demoted()); n > 0 {
			t.Errorf("demoted: %v", c.rec.Demoted()[0].Err)
		}
		c.pool.SetMaxIdleConns(2)
	})
}

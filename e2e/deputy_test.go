//go:build unix

package e2e_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// inServer makes a deputy that waits in the server. Its waits and its retry interval are so long
// that an election before they run out is a hand-over by the server.
var inServer = []elector.Option{elector.WithTakeover(elector.Wait), elector.WithLease(time.Minute),
	elector.WithHeartbeatInterval(patientWait), elector.WithRetryInterval(time.Minute)}

const (
	patientWait = 12 * time.Second
	handedOver  = patientWait / 4 // no wait runs out sooner
)

// waiting makes a deputy whose waits last as long as the tests' heartbeat interval.
var waiting = elector.WithTakeover(elector.Wait)

// polling makes a candidate that is never the deputy.
var polling = elector.WithTakeover(elector.Poll)

var takeovers = map[string]elector.Takeover{"the default": elector.Deputy, "waiting": elector.Wait, "polling": elector.Poll}

// overTakeovers is overDrivers for each takeover.
func overTakeovers(t *testing.T, test func(t *testing.T, d drivers, takeover elector.Option)) {
	t.Helper()
	for name, takeover := range takeovers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overDrivers(t, func(t *testing.T, d drivers) { test(t, d, elector.WithTakeover(takeover)) })
		})
	}
}

// waiters returns the application names in the queue of a lock, in order.
func (s *server) waiters(t *testing.T, key int64) []string {
	t.Helper()
	return list[string](t, s.admin, `SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND NOT l.granted AND l.objsubid = 1 AND l.classid = (($1::bigint >> 32) & 4294967295)::oid
		AND l.objid = ($1::bigint & 4294967295)::oid AND l.waitstart IS NOT NULL ORDER BY l.waitstart`, key)
}

// waits waits until the candidate is in the queue.
func (s *server) waits(t *testing.T, c *candidate) {
	t.Helper()
	eventually(t, "the candidate waits in the server", func() bool { return slices.Contains(s.waiters(t, c.Key()), c.CandidateID()) })
}

// deputy waits until the server and an attempt show one of the candidates as the deputy, and
// returns it.
func (s *server) deputy(t *testing.T, all []*candidate) (deputy *candidate) {
	t.Helper()
	eventually(t, "one of them is the deputy", func() bool {
		shown, err := all[0].Candidates(soon(t))
		check(t, err)
		i := slices.IndexFunc(shown, func(c elector.Candidate) bool { return c.Deputy })
		if i < 0 {
			return false
		}
		j := slices.IndexFunc(all, func(c *candidate) bool { return c.CandidateID() == shown[i].CandidateID })
		if j < 0 {
			return false
		}
		deputy = all[j]
		return slices.ContainsFunc(deputy.rec.Campaigns(), func(e hooks.Campaign) bool { return e.Deputy })
	})
	return deputy
}

// soonAfter checks that something happened before a wait could run out. How soon the deputy
// leads is measured in TestTheDeputyLeadsSoonAfterTheLeaderIsGone.
func soonAfter(t *testing.T, what string, began time.Time) {
	t.Helper()
	if took := time.Since(began); took > handedOver {
		t.Errorf("%s took %v", what, took)
	}
}

func TestTheDeputyAloneWaits(t *testing.T) {
	inSessionScope(t, "a deputy leaves its seat with each transaction")
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		leader := s.stand(t, d.open(t, 0, s.DSN()), election, inServer...).run(t, nil)
		leader.elected(t)
		for range 3 {
			deputy := s.stand(t, d.open(t, 0, s.DSN()), election, waiting).run(t, nil)
			deputy.follows(t)
			for i := range 2 {
				s.stand(t, d.open(t, i, s.DSN()), election, waiting, elector.WithRetryInterval(time.Hour)).run(t, nil).follows(t)
			}
			s.waits(t, deputy)
			if queue := s.waiters(t, deputy.Key()); len(queue) > 1 {
				t.Errorf("%d candidates wait: %q", len(queue), queue)
			}
			shown, err := leader.Candidates(soon(t))
			check(t, err)
			if len(shown) != 2 || !shown[0].Leading || shown[0].Deputy || shown[0].CandidateID != leader.CandidateID() ||
				shown[1].Leading || !shown[1].Deputy || shown[1].CandidateID != deputy.CandidateID() {
				t.Errorf("got %+v, want the leader %s and the deputy %s", shown, leader.CandidateID(), deputy.CandidateID())
			}
			leader.end(t)
			deputy.elected(t)
			leader = deputy
			eventually(t, "the last leader's seat is free", func() bool {
				shown, err := leader.Candidates(soon(t))
				check(t, err)
				return len(shown) == 1
			})
		}
	})
}

// When a wait runs out, the deputy waits again on the same session. Each heartbeat interval it
// reports an attempt that found the lock busy. Five may begin and end between two of a statement.
func TestADeputyWaitsAgainWhenItsWaitRunsOut(t *testing.T) {
	inSessionScope(t, "a deputy changes its backend with each transaction")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil).elected(t)
		pool, counter := d.openCounted(t, 1, s.DSN())
		c := s.stand(t, pool, election, waiting).run(t, nil)
		attempts := c.after()
		deputy := func(e hooks.Campaign) bool { return e.Deputy }
		next(t, attempts, deputy)
		next(t, attempts, deputy) // it has connected
		pid := one[int](t, s.admin, "SELECT pid FROM pg_stat_activity WHERE application_name = $1", c.CandidateID())
		before := counter.now()
		for range 5 {
			e := next[hooks.Campaign](t, attempts, nil)
			if e.Outcome != hooks.Busy || !e.Deputy || e.Next != 0 || e.Took < heartbeat || e.Took > lease {
				t.Errorf("a wait: %+v", e)
			}
		}
		got := counter.since(before)
		delete(got, "prepared TryAsDeputy")                                                  // it tries instead of waiting for too short a time
		sent := []string{"WaitLock", "prepared Confirm", "PairIsFree", "Identify", "Holder"} // Holder for the recorder's LeaderChanged hook
		if len(got) != len(sent) || slices.ContainsFunc(sent, func(name string) bool { return got[name] < 3 || got[name] > 12 }) {
			t.Errorf("five heartbeat intervals took %v", got)
		}
		if again := one[int](t, s.admin, "SELECT pid FROM pg_stat_activity WHERE application_name = $1", c.CandidateID()); again != pid {
			t.Errorf("it waits on backend %d, and waited on %d before", again, pid)
		}
	})
}

func TestAWaitingDeputyHoldsBackVacuumNoLongerThanOneWait(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := on(t, own(t, pgcluster.WithSetting("autovacuum", "off")))
		election := s.election(t)
		s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil).elected(t)
		c := s.stand(t, d.open(t, 1, s.DSN()), election, waiting).run(t, nil)
		s.waits(t, c)
		within(t, "xmin is held back", 2*heartbeat, func() time.Duration {
			now := one[int64](t, s.admin, "SELECT pg_current_xact_id()::text::bigint")
			began := time.Now()
			eventually(t, "the deputy's xmin is past a transaction", func() bool {
				held := list[int64](t, s.admin, `SELECT backend_xmin::text::bigint FROM pg_stat_activity
					WHERE application_name = $1 AND backend_xmin IS NOT NULL`, c.CandidateID())
				return len(held) == 1 && held[0] > now
			})
			return time.Since(began)
		})
	})
}

// errorsIn returns the lines of a server's log that an administrator would read.
func errorsIn(log string) (found []string) {
	for line := range strings.Lines(withoutCuts(log)) {
		for _, severity := range []string{"ERROR:", "FATAL:", "PANIC:", "WARNING:", "LOG:", "STATEMENT:"} {
			if strings.Contains(line, severity) {
				found = append(found, line)
			}
		}
	}
	return found
}

// cutShort matches what the server behind a pooler logs of a statement that the end of a candidate
// cancels. The cancel request may come when the backend has gone.
var cutShort = regexp.MustCompile(`(?m)^.* (ERROR:  canceling statement due to user request\n.* STATEMENT:  .*\n(\t.*\n)*|LOG:  PID \d+ in cancel request did not match any process\n)`)

// withoutCuts returns the log of a server behind a pooler without the statements that the end of a
// candidate cut short, but for waits. It returns that of another server as it is.
func withoutCuts(log string) string {
	if !throughPooler {
		return log
	}
	return cutShort.ReplaceAllStringFunc(log, func(entry string) string {
		if strings.Contains(entry, "-- name: WaitLock ") {
			return entry
		}
		return ""
	})
}

// isLateCancel reports whether the errors are those of waits that were cancelled. Such a wait logs
// nothing, unless the second of the server's two signals comes more than 10 ms after the first (see
// WaitLock), as it may on a busy machine.
func isLateCancel(said []string) bool {
	return !slices.ContainsFunc(said, func(line string) bool {
		return !strings.Contains(line, "canceling statement due to user request") && !strings.Contains(line, "-- name: WaitLock ")
	})
}

func TestWaitingDeputiesLeaveNothingInTheServersLog(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := quiet(t)
		var said []string
		for range 4 {
			before, err := s.ServerLog()
			check(t, err)
			s.waitAndStop(t, d)
			after, err := s.ServerLog()
			check(t, err)
			if said = errorsIn(after[len(before):]); len(said) == 0 {
				return
			}
			if !isLateCancel(said) {
				break
			}
		}
		t.Errorf("the server logged: %s", strings.Join(said, ""))
	})
}

// waitAndStop has deputies wait, lead, and stop during their waits.
func (s *server) waitAndStop(t *testing.T, d drivers) {
	t.Helper()
	election := s.election(t)
	first := s.stand(t, d.open(t, 0, s.DSN()), election, waiting, s.quietly()).run(t, nil)
	first.elected(t)
	second := s.stand(t, d.open(t, 1, s.DSN()), election, waiting, s.quietly()).run(t, nil)
	attempts := second.after()
	for range 10 {
		next(t, attempts, func(e hooks.Campaign) bool { return e.Outcome == hooks.Busy })
	}
	first.end(t)
	second.elected(t)
	s.gone(t, first)
	for i := range 10 {
		c := s.stand(t, d.open(t, i, s.DSN()), election, append(inServer, s.quietly())...).run(t, nil)
		s.waits(t, c)
		began := time.Now()
		c.end(t)
		eventually(t, "the queue is empty", func() bool { return len(s.waiters(t, c.Key())) == 0 })
		soonAfter(t, "leaving the queue", began)
		s.gone(t, c)
	}
	second.end(t)
	s.gone(t, second)
}

// The campaign is cancelled at about the moment of the grant.
func TestACampaignThatIsCancelledAsItIsGrantedKeepsNoLock(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		holder, err := s.admin.Conn(soon(t))
		check(t, err)
		defer holder.Close()
		c := s.stand(t, d.open(t, 1, s.DSN()), election, inServer...)
		for i := range 20 {
			_, err := holder.ExecContext(soon(t), "SELECT pg_advisory_lock($1)", c.Key())
			check(t, err)
			ctx, cancel := context.WithCancel(soon(t))
			type outcome struct {
				term *elector.Term
				err  error
			}
			returned := make(chan outcome, 1)
			go func() {
				term, err := c.Campaign(ctx)
				returned <- outcome{term, err}
			}()
			s.waits(t, c)
			go func() {
				time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				cancel()
			}()
			_, err = holder.ExecContext(soon(t), "SELECT pg_advisory_unlock($1)", c.Key())
			check(t, err)
			if o := <-returned; o.err == nil {
				expect(t, o.term.Resign(soon(t)))
			}
			began := time.Now()
			s.frees(t, c.Key())
			soonAfter(t, "freeing the lock", began)
			cancel()
		}
	})
}

func TestACampaignThatWaitsOnADeadLinkEndsWithItsContext(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		l := behindAProxy(t)
		election := l.election(t)
		l.server.stand(t, d.open(t, 0, l.DSN()), election).run(t, nil).elected(t)
		c := l.stand(t, d, 1, election, inServer...).run(t, nil)
		l.waits(t, c)
		l.proxy.BlackHole()
		began := time.Now()
		c.end(t)
		soonAfter(t, "the end", began)
	})
}

func TestADeputyWaitsThroughASessionPooler(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	b := bounced(t, s.Cluster, pgcluster.Session, pgcluster.WithPoolSize(40))
	overWaysToAsk(t, func(t *testing.T, d drivers, opts []pgcluster.DSNOption) {
		t.Parallel()
		election := s.election(t)
		first := s.stand(t, d.open(t, 0, b.DSN(opts...)), election, inServer...).run(t, nil)
		first.elected(t)
		second := s.stand(t, d.open(t, 0, b.DSN(opts...)), election, inServer...).run(t, nil)
		first.shared, second.shared = true, true
		s.waits(t, second)
		began := time.Now()
		first.end(t)
		second.elected(t)
		soonAfter(t, "the hand-over", began)
	})
}

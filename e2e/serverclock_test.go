//go:build unix

package e2e_test

import (
	"encoding/json"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// PostgreSQL's timeouts, and so the lease, depend on its wall clock.

// clocked starts a server whose wall clock the test can set.
func clocked(t *testing.T) *server {
	t.Helper()
	c, err := pgcluster.Start(t.Context(), pgcluster.WithClock())
	if errors.Is(err, pgcluster.ErrNoClock) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	check(t, err)
	t.Cleanup(func() { expect(t, c.Stop()) })
	return on(t, c)
}

func TestAServersClockSetBackDelaysTheNextLeaderByAsMuch(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		const back = 3 * time.Second
		s := clocked(t)
		f := s.launch(t, d, 2, shortLeases)
		old := f.leader(t, 0)
		f.wait(t, "a heartbeat", func(e entry) bool { return e.Kind == renewed && e.Token == old.Token })
		f.signal(t, old.ID, syscall.SIGSTOP)
		time.Sleep(100 * time.Millisecond) // a heartbeat under way would count from after the change
		check(t, s.SetClock(-back))
		set := time.Now()
		fresh := f.leader(t, old.Token)
		if fresh.ID == old.ID {
			t.Skip("the machine was too busy for the first leader")
		}
		for _, e := range f.entries() {
			if e.Token != old.Token || e.Kind != renewed {
				continue
			}
			if e.To < set.UnixNano() {
				t.Skip("the machine was too busy: the clock was set too late")
			}
			if wait := time.Duration(fresh.From - e.To); wait < back {
				t.Errorf("the next leader was elected %v after the old one's deadline, want %v at least", wait, back)
			}
		}
	})
}

// When the session's next timer fires after the change, the server finds that idle_session_timeout is over.
// A statement starts a timer of one heartbeat interval (client_connection_check_interval) unless one is running.
func TestAServersClockSetForwardEndsASessionEarly(t *testing.T) {
	t.Parallel()
	const lease, heartbeat = 6 * time.Second, 2 * time.Second
	for name, silent := range map[string]bool{"and the leader learns it when it hears from the server": false,
		"and a cut-off leader overlaps with the next": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				l := clocked(t).behindAProxy(t)
				election := l.election(t)
				c := l.stand(t, d, 0, election, elector.WithLease(lease), elector.WithHeartbeatInterval(heartbeat),
					elector.WithDrain(0)).run(t, nil)
				old := c.elected(t)
				beat := wait[hooks.Heartbeat](t, c, nil)
				time.Sleep(heartbeat / 4) // the timer of the previous heartbeat may still fire
				term := termOf(t, c)
				check(t, term.Verify(soon(t)))
				deadline, after := term.Deadline(), c.after()
				l.proxy.BlackHole()
				check(t, l.SetClock(time.Hour))
				if time.Since(beat.At) > heartbeat*3/4 {
					t.Skip("the machine was too busy: the clock was set too late")
				}
				if freed := l.frees(t, c.Key()); !freed.Before(deadline) {
					t.Errorf("the lock was free %v after the leader's deadline", freed.Sub(deadline))
				}
				if silent {
					next := l.server.stand(t, d.open(t, 1, l.server.DSN()), election).run(t, nil).elected(t)
					if !c.IsLeader() || next.Token <= old.Token {
						t.Errorf("the cut-off leader believes to lead: %t; the tokens are %d, then %d", c.IsLeader(), old.Token, next.Token)
					}
					return
				}
				l.proxy.Heal()
				if e := next[hooks.Demoted](t, after, nil); e.Reason != hooks.SessionLost || !e.At.Before(deadline) {
					t.Errorf("demoted %v before its deadline because %s: %v", deadline.Sub(e.At), e.Reason, e.Err)
				}
				if again := nextElected(t, after); again.Token <= old.Token {
					t.Errorf("elected again with token %d after %d", again.Token, old.Token)
				}
			})
		})
	}
}

// No stored time becomes wrong forever by a change of the clock.
func TestElectionsGoOnAfterAServersClockIsSet(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := clocked(t)
		c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t)).run(t, nil)
		token := c.elected(t).Token
		for _, offset := range []time.Duration{-24 * time.Hour, 24 * time.Hour, 0} {
			after := c.after()
			check(t, s.SetClock(offset))
			if term, leading := c.Term(); leading {
				_ = term.Resign(soon(t)) // the session may have ended by the change
			}
			again := nextElected(t, after)
			if again.Token <= token {
				t.Errorf("token %d after %d", again.Token, token)
			}
			token = again.Token
			after = c.after()
			next[hooks.Heartbeat](t, after, nil)
		}
	})
}

// An application may set a DateStyle on connections of the pool. lib/pq parses the text of
// a timestamp and supports ISO only.
func TestTimesAreReadUnderEveryDateStyle(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		schema, election := s.schema(t), s.election(t)
		r := rosterOn(t, d.open(t, 0, s.DSN()), schema)
		c := s.stand(t, d.open(t, 0, s.DSN()), election, elector.WithHooks(r)).run(t, nil)
		c.elected(t)
		s.waits(t, s.stand(t, d.open(t, 1, s.DSN()), election, elector.WithTakeover(elector.Wait)).run(t, nil))
		written(t, r)
		eventually(t, "the term is recorded", func() bool { return len(terms(t, r, c.Key())) == 1 })
		for i, style := range []string{"German, DMY", "SQL, MDY", "Postgres, YMD"} {
			recent := func(what string, at time.Time) {
				t.Helper()
				if ago := time.Since(at); ago.Abs() > time.Hour {
					t.Errorf("%s: %s is %v", style, what, at)
				}
			}
			pool := d.open(t, i, s.DSN()) // one connection, used again and again
			_, err := pool.Exec("SET datestyle = " + style + "; SET timezone = 'Asia/Kathmandu'")
			check(t, err)
			e, err := elector.New(pool, election, elector.WithLease(lease))
			check(t, err)
			leader, err := e.Leader(soon(t))
			check(t, err)
			recent("the leader's session", leader.SessionAt)
			var sessions []elector.Candidate
			eventually(t, "the follower waits in the server", func() bool { // it does not between two waits
				sessions, err = e.Candidates(soon(t))
				check(t, err)
				return len(sessions) == 2
			})
			for _, c := range sessions {
				recent("a session", c.SessionAt)
			}
			r := rosterOn(t, pool, schema)
			published, err := r.Candidates(soon(t), c.Key())
			check(t, err)
			recorded := terms(t, r, c.Key())
			if len(published) != 1 || len(recorded) != 1 {
				t.Fatalf("%s: got %+v, %+v", style, published, recorded)
			}
			recent("its candidacy", published[0].JoinedAt)
			recent("its publication", published[0].PublishedAt)
			recent("its election", recorded[0].ElectedAt)
		}
	})
}

// A row that somebody inserted by hand does not hide other rows.
func TestInfiniteTimesInARosterHideNoRow(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		schema := s.schema(t)
		r := rosterOn(t, d.open(t, 0, s.DSN()), schema)
		for _, at := range []string{"infinity", "-infinity", "294276-12-31", "4713-01-01 BC", "now"} {
			_, err := s.admin.Exec(`INSERT INTO `+quoted(schema)+`.roster_candidates VALUES (7, $1::text, 'any', '', '{}', $2::timestamptz, NULL, $2::timestamptz, $2::timestamptz, $2::timestamptz)`, at, at)
			check(t, err)
		}
		for token, at := range []string{"now", "-infinity", "infinity", "4713-01-01 BC", "294276-12-31"} {
			_, err := s.admin.Exec(`INSERT INTO `+quoted(schema)+`.roster_terms VALUES (7, $1, 'any', $2::text, $3::timestamptz, $3::timestamptz, 'shutdown', '')`, token, at, at)
			check(t, err)
		}
		candidates, err := r.Candidates(soon(t))
		check(t, err)
		history, err := r.Terms(soon(t), 10)
		check(t, err)
		if len(candidates) != 5 || len(history) != 5 {
			t.Errorf("got %d candidates and %d terms", len(candidates), len(history))
		}
		// A time that JSON cannot represent would hide the other rows on a page.
		for _, all := range []any{candidates, history} {
			if _, err := json.Marshal(all); err != nil {
				t.Error(err)
			}
		}
	})
}

//go:build unix

package e2e_test

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// A leader finishes its work and resigns when a role without any privilege asks; nothing is
// asked of a leader where that role may not lock.
func TestAnyRoleThatMayLockCanAskTheLeaderToGo(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		w := invaded(t, onShared(t))
		leader := w.candidate(t, d)
		leader.elected(t)
		other := w.stand(t, d.open(t, 1, w.dsn(w.elections)), "town").run(t, nil)
		other.follows(t)
		stranger := d.open(t, 1, w.dsn(w.stranger))
		next, err := elector.RequestResign(soon(t), stranger, "town")
		check(t, err)
		if next.CandidateID != other.CandidateID() && next.CandidateID != leader.CandidateID() { // on a busy machine the old one can be sooner
			t.Errorf("%+v leads next", next)
		}
		d1 := leader.rec.Demoted()
		if len(d1) != 1 || d1[0].Reason != hooks.Requested || !strings.Contains(d1[0].Err.Error(), w.stranger) {
			t.Errorf("demoted %+v", d1)
		}
		next, err = elector.RequestTransfer(soon(t), stranger, "town", leader.CandidateID())
		if check(t, err); next.CandidateID != leader.CandidateID() {
			t.Errorf("%+v leads next, and not the one that was asked for", next)
		}
		w.defend(t, "locks")
		if _, err := elector.RequestResign(soon(t), stranger, "town"); stateOf(err) != "42501" || !leader.IsLeader() {
			t.Errorf("got %v", err)
		}
	})
}

// A request returns though the only candidate leads again soon: on the same session if that
// is shared, and in transaction scope perhaps on the same backend.
func TestARequestReturnsThoughTheSameCandidateLeadsNext(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s, often := onShared(t), elector.WithRetryInterval(10*time.Millisecond)
		ask := func(t *testing.T, election string) {
			for range 5 {
				next, err := elector.RequestResign(soon(t), d.open(t, 1, s.DSN()), election)
				if check(t, err); next.CandidateID == "" {
					t.Error("nobody leads next")
				}
			}
		}
		t.Run("own session", func(t *testing.T) {
			election := s.election(t)
			s.stand(t, d.open(t, 0, s.DSN()), election, often).run(t, nil).elected(t)
			ask(t, election)
		})
		t.Run("shared session", func(t *testing.T) {
			elections := s.elections(t, 2)
			g := s.share(t, d.open(t, 0, s.DSN()), often).join(t, elections).run(t, nil)
			eventually(t, "it leads both", func() bool { return g.leading() == 2 })
			ask(t, elections[0])
		})
	})
}

// keepsLeading waits until the server has answered some more heartbeats of a term.
func (f *fleet) keepsLeading(t *testing.T, leader entry) {
	t.Helper()
	beats := 0
	for _, e := range f.entries() {
		if e.Kind == renewed && e.Token == leader.Token {
			beats--
		}
	}
	f.wait(t, "five heartbeats more", func(e entry) bool {
		if e.Kind == renewed && e.Token == leader.Token {
			beats++
		}
		return beats == 5
	})
	if slices.ContainsFunc(f.entries(), func(e entry) bool { return e.Kind == demoted && e.Token == leader.Token }) {
		t.Error("the leader has answered a request that was not made of it")
	}
}

// Of two requests at once the leader answers both by one resignation, and the next leader
// neither.
func TestTwoRequestsAtOnceEndOneTerm(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		f := onShared(t).launch(t, d, 2)
		leader := f.leader(t, 0)
		f.signal(t, leader.ID, syscall.SIGSTOP) // so that it hears both at once
		done := make(chan error, 2)
		for i := range 2 {
			pool := d.open(t, i, f.s.DSN())
			go func() {
				next, err := elector.RequestResign(soon(t), pool, f.election)
				if err == nil && next.CandidateID == "" {
					err = errors.New("nobody leads next")
				}
				done <- err
			}()
		}
		eventually(t, "both ask", func() bool {
			return one[int](t, f.s.admin, `SELECT count(*)::int FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock'
				AND l.classid = 983268819 AND l.objid::bigint = $1`, f.s.holders(t, elector.KeyFromName(f.election))[0]) == 2
		})
		f.signal(t, leader.ID, syscall.SIGCONT)
		for range 2 {
			expect(t, <-done)
		}
		f.demotion(t, leader.Token)
		second := f.leader(t, leader.Token)
		f.keepsLeading(t, second)
	})
}

// A request is nothing but locks of its maker's connection: when that dies, the leader, which
// stood still, finds none.
func TestARequestEndsWithTheConnectionOfItsMaker(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		f := onShared(t).launch(t, d, 2)
		leader := f.leader(t, 0)
		f.signal(t, leader.ID, syscall.SIGSTOP)
		rings := func() []int {
			return list[int](t, f.s.admin, `SELECT l.pid FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) WHERE a.application_name = $1
				AND l.locktype = 'advisory' AND l.mode = 'ShareLock' AND l.classid = 983268819`, f.election)
		}
		done := make(chan error, 1)
		pool := d.open(t, 1, f.s.DSN(pgcluster.WithParam("application_name", f.election)))
		go func() {
			_, err := elector.RequestResign(soon(t), pool, f.election)
			done <- err
		}()
		eventually(t, "it asks", func() bool { return len(rings()) == 1 })
		f.s.terminate(t, rings()[0])
		if err := <-done; err == nil {
			t.Error("a request without an answer returned nil")
		}
		f.signal(t, leader.ID, syscall.SIGCONT)
		f.keepsLeading(t, leader)
	})
}

// A leader that has answered a request answers the first one after a restart of the server, which
// numbers its transactions anew, also after the crash of a backend, which leaves its start time.
func TestARequestAfterARestartOfTheServerIsAnswered(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]func(t *testing.T, s *server, c *pgcluster.Cluster){
		"restart": func(t *testing.T, _ *server, c *pgcluster.Cluster) { check(t, c.Restart(soon(t), pgcluster.Fast)) },
		"crash of a backend": func(t *testing.T, s *server, c *pgcluster.Cluster) {
			stranger, err := s.admin.Conn(soon(t))
			check(t, err)
			check(t, c.KillBackend(one[int](t, stranger, "SELECT pg_backend_pid()")))
			_ = stranger.Close()
			check(t, c.WaitReady(soon(t)))
		},
	} {
		for in, scope := range map[string]elector.Scope{"session": elector.SessionScope, "transaction": elector.TransactionScope} {
			t.Run(name+" in "+in+" scope", func(t *testing.T) {
				t.Parallel()
				c := own(t)
				s := withoutPooler(t, c)
				election := s.election(t)
				leader := s.stand(t, pgx.open(t, 0, s.DSN()), election, elector.WithTakeover(elector.Poll), elector.WithScope(scope)).run(t, nil)
				leader.moved = scope == elector.TransactionScope
				last := leader.elected(t)
				for range 2 { // the first request has no other before it
					restart(t, s, c)
					last = firstLeader(t, []*candidate{leader}, last.Token)
					_, err := elector.RequestResign(soon(t), pgx.open(t, 0, s.DSN()), election)
					check(t, err)
					last = firstLeader(t, []*candidate{leader}, last.Token)
				}
			})
		}
	}
}

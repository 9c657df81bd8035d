//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// kinds makes candidates of each kind.
var kinds = map[string]func(t *testing.T, s *server, d drivers, i int, election string) *candidate{
	"polling": func(t *testing.T, s *server, d drivers, i int, election string) *candidate {
		return s.stand(t, d.open(t, i, s.DSN()), election, polling)
	},
	"the default": func(t *testing.T, s *server, d drivers, i int, election string) *candidate {
		return s.stand(t, d.open(t, i, s.DSN()), election)
	},
	"waiting": func(t *testing.T, s *server, d drivers, i int, election string) *candidate {
		return s.stand(t, d.open(t, i, s.DSN()), election, waiting, elector.WithHeartbeatInterval(3*heartbeat))
	},
	"of a session": func(t *testing.T, s *server, d drivers, i int, election string) *candidate {
		g := s.share(t, d.open(t, i, s.DSN()))
		rec := hookstest.NewRecorder()
		g.join(t, []string{election}, elector.WithHooks(rec))
		return &candidate{Elector: g.all[0], rec: rec}
	},
}

// overKinds runs a test for each kind of leader and of successor. A candidate that polled leads as one
// by default does.
func overKinds(t *testing.T, test func(t *testing.T, d drivers, leader, successor string)) {
	t.Helper()
	for _, leader := range []string{"the default", "waiting", "of a session"} {
		for successor := range kinds {
			t.Run(leader+" to "+successor, func(t *testing.T) {
				t.Parallel()
				overDrivers(t, func(t *testing.T, d drivers) { test(t, d, leader, successor) })
			})
		}
	}
}

// The successor is elected next, although candidates of all kinds campaign, and all are told. It is the deputy if it
// can be, and came last otherwise. In transaction scope the leader's transaction may end just
// between two waits of the successor, and another is sooner: then the leader says so.
func TestASuccessorIsElectedNext(t *testing.T) {
	t.Parallel()
	overKinds(t, func(t *testing.T, d drivers, leader, successor string) {
		s := onShared(t)
		election := s.election(t)
		old := kinds[leader](t, s, d, 0, election).run(t, nil)
		first := old.elected(t)
		var chosen *candidate
		if successor == "the default" || successor == "waiting" { // it becomes the deputy
			chosen = kinds[successor](t, s, d, 1, election).run(t, nil)
			if deputy := s.deputy(t, []*candidate{chosen}); deputy != chosen {
				t.Errorf("%s is the deputy", deputy.CandidateID())
			}
		}
		var others []*candidate
		for kind, stand := range kinds {
			if throughPooler && kind == "of a session" {
				continue
			}
			c := stand(t, s, d, len(others), election).run(t, nil)
			c.follows(t)
			others = append(others, c)
		}
		if chosen == nil {
			chosen = kinds[successor](t, s, d, 1, election).run(t, nil)
			chosen.follows(t)
		}
		late, err := transferred(t, termOf(t, old), chosen, append(others, old)...)
		check(t, err)
		next := chosen.elected(t)
		for _, c := range others {
			for _, e := range c.rec.Elected() {
				if e.Token > first.Token && e.Token < next.Token && !late {
					t.Errorf("%s was elected before the successor", e.CandidateID)
				}
			}
		}
		for _, c := range append(others, old) {
			wait(t, c, func(e hooks.LeaderChanged) bool { return e.Current == chosen.CandidateID() && e.PID != 0 })
		}
		ended := wait[hooks.Demoted](t, old, nil)
		if ended.Reason != hooks.Resigned {
			t.Errorf("demoted because %s", ended.Reason)
		}
		t.Logf("transferred in %v", next.At.Sub(ended.At))
	})
}

// transferred transfers a term. One of the others may be sooner, between two waits of the
// successor: then it is late, and that one transfers. In session scope only a deputy that waits
// in the server can be, and on a busy machine it was, once in some hundred transfers: once is granted.
func transferred(t *testing.T, term *elector.Term, successor *candidate, others ...*candidate) (late bool, err error) {
	t.Helper()
	err = term.TransferTo(soon(t), successor.CandidateID())
	for ; (throughPooler || !late) && errors.Is(err, elector.ErrNoSuccessor); late = true {
		err = nil
		if current := leading(t, append(others, successor)); !successor.IsLeader() { // it may have begun to lead meanwhile
			err = current.TransferTo(soon(t), successor.CandidateID())
		}
	}
	return late, err
}

// leading waits until one of the candidates leads, and returns its term.
func leading(t *testing.T, all []*candidate) (term *elector.Term) {
	t.Helper()
	eventually(t, "somebody leads", func() bool {
		return slices.ContainsFunc(all, func(c *candidate) (leads bool) { term, leads = c.Term(); return leads })
	})
	return term
}

// The work itself transfers its term, and then returns.
func TestTheWorkMayTransferItsTerm(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		successor := s.stand(t, d.open(t, 1, s.DSN()), election)
		old := s.stand(t, d.open(t, 0, s.DSN()), election)
		returned := false
		old.run(t, func(ctx context.Context, term *elector.Term) error {
			successor.run(t, nil)
			successor.follows(t)
			err := term.TransferTo(ctx, successor.CandidateID())
			wraps(t, err, elector.ErrNoSuccessor)
			wraps(t, err, elector.ErrResigned)
			time.Sleep(2 * heartbeat) // the successor's wait runs out, and it waits again
			returned = true
			return nil
		})
		successor.elected(t)
		if !returned {
			t.Error("the lock was released before the work had returned")
		}
	})
}

// Another candidate leads in the end. launch checks that no two led at once.
func TestASuccessorThatDiesOrFreezesIsPassedOver(t *testing.T) {
	t.Parallel()
	for name, hurt := range map[string]func(t *testing.T, f *fleet, successor string){
		"killed": func(t *testing.T, f *fleet, successor string) { f.kill(t, successor) },
		"frozen": func(t *testing.T, f *fleet, successor string) { f.signal(t, successor, syscall.SIGSTOP) },
		"killed as it takes over": func(t *testing.T, f *fleet, successor string) {
			f.wait(t, "the successor is elected", func(e entry) bool { return e.Kind == elected && e.ID == successor })
			f.kill(t, successor)
		},
	} {
		for kind, takeover := range takeovers {
			if name == "killed as it takes over" && takeover != elector.Deputy {
				continue // it leads, however it followed
			}
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				overDrivers(t, func(t *testing.T, d drivers) {
					f := onShared(t).launch(t, d, 4, shortLeases, func(_ int, s *settings) { s.Takeover = takeover })
					leader := f.leader(t, 0)
					var successor string
					for id := range f.members {
						if id != leader.ID {
							successor = id
						}
					}
					if name == "killed as it takes over" {
						f.command(t, leader.ID, fmt.Sprint(commandTransferTo, successor))
						hurt(t, f, successor)
						leader = f.wait(t, "the successor's token", func(e entry) bool { return e.Kind == elected && e.ID == successor })
					} else {
						hurt(t, f, successor)
						f.command(t, leader.ID, fmt.Sprint(commandTransferTo, successor))
					}
					for next := leader; ; {
						if next = f.leader(t, next.Token); next.ID != successor { // a successor that is frozen in the queue has the lock for a lease
							return
						}
					}
				})
			})
		}
	}
}

// A transfer past the waiting deputy causes no error, though the leader's role may not signal it.
func TestATransferIsNotLogged(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := watched(t)
		election := s.election(t)
		role := pgcluster.ForRole(s.role(t, nil))
		all := []*candidate{s.stand(t, d.open(t, 0, s.DSN(role)), election, waiting, s.quietly()).run(t, nil)}
		all[0].elected(t)
		for i := range 4 {
			c := s.stand(t, d.open(t, i+1, s.DSN()), election, waiting, s.quietly()).run(t, nil)
			c.follows(t)
			all = append(all, c)
		}
		s.waits(t, all[1])
		leader, next, said := all[0], all[4], ""
		for range 8 { // on a busy machine any statement may be slow, and is logged
			before, err := s.ServerLog()
			check(t, err)
			term := termOf(t, leader)
			_, err = transferred(t, term, next, all...)
			check(t, err)
			wait(t, next, func(e hooks.Elected) bool { return e.Token > term.Token() })
			eventually(t, "a deputy waits", func() bool { return len(s.waiters(t, next.Key())) > 0 })
			for _, c := range all[1:4] {
				if n := len(c.rec.Failures()); n > 0 {
					t.Errorf("%d failures, such as %v", n, c.rec.Failures()[0].Err)
				}
			}
			after, err := s.ServerLog()
			check(t, err)
			if said = after[len(before):]; said == "" {
				return
			}
			leader, next = next, leader
		}
		t.Errorf("with each transfer the server logged: %s", said)
	})
}

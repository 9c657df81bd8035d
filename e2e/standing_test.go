//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/handover"
	"github.com/pgelector/pgelector/internal/lockkey"
)

// offered waits until the lock of an offer to nobody is held, or is not.
func (s *server) offered(t *testing.T, election string, is bool) {
	t.Helper()
	key := handover.OfferKey("nobody", elector.KeyFromName(election))
	eventually(t, fmt.Sprint("offered: ", is), func() bool { return len(s.locksOf(t, key, "objsubid = 2")) > 0 == is })
}

// The leader learns it at its next heartbeat. The lock of its offer is no election.
func TestAWithdrawnTransferLeavesTheLeaderInOffice(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		leader, term := s.lead(t, d.open(t, 0, s.DSN()), election)
		for range 2 {
			ctx, withdraw := context.WithCancel(soon(t))
			returned := make(chan error, 1)
			go func() {
				_, err := elector.RequestTransfer(ctx, d.open(t, 1, s.DSN()), election, "nobody")
				returned <- err
			}()
			s.offered(t, election, true)
			rows, err := db.New(s.admin).AdvisoryLocks(soon(t), db.Keys())
			check(t, err)
			offer := handover.OfferKey("nobody", leader.Key())
			if slices.ContainsFunc(rows, func(r db.AdvisoryLocksRow) bool { return r.Key == offer }) {
				t.Error("the offer is shown as an election")
			}
			withdraw()
			wraps(t, <-returned, elector.ErrUnanswered)
			s.offered(t, election, false)
			check(t, term.Verify(soon(t)))
		}
		if f := leader.rec.Failures(); len(f) > 0 {
			t.Errorf("reported: %v", f[0].Err)
		}
	})
}

// An operator mistypes the id, is told so, and asks again, over the same connection.
func TestARequestToTransferToNobodyIsAnswered(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		leader := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil)
		first := leader.elected(t)
		other := s.stand(t, d.open(t, 1, s.DSN()), election).run(t, nil)
		other.follows(t)
		pool := d.open(t, 1, s.DSN())
		for range 2 {
			who, err := elector.RequestTransfer(soon(t), pool, election, "nobody")
			if wraps(t, err, elector.ErrNoSuccessor); who.CandidateID != leader.CandidateID() {
				t.Errorf("%+v leads", who)
			}
		}
		if term, leads := leader.Term(); !leads || term.Token() != first.Token {
			t.Error("the term has ended")
		}
		_, err := elector.RequestResign(soon(t), pool, election)
		check(t, err)
		if ended := wait[hooks.Demoted](t, leader, nil); ended.Reason != hooks.Requested {
			t.Errorf("demoted because %s", ended.Reason)
		}
	})
}

// Somebody ends its backend while it prepares one.
func TestALeaderThatIsLostDuringATransferSaysSo(t *testing.T) {
	t.Parallel()
	for name, transfer := range map[string]func(*elector.Term) error{
		"of its own": func(term *elector.Term) error { return term.TransferTo(context.Background(), "nobody") },
		"by request": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overDrivers(t, func(t *testing.T, d drivers) {
				s := onShared(t)
				election := s.election(t)
				leader := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil)
				leader.elected(t)
				term := termOf(t, leader)
				returned := make(chan error, 1)
				go func() {
					if transfer != nil {
						returned <- transfer(term)
						return
					}
					_, err := elector.RequestTransfer(soon(t), d.open(t, 1, s.DSN()), election, "nobody")
					returned <- err
				}()
				s.offered(t, election, true)
				s.terminate(t, s.holders(t, leader.Key())[0])
				if ended := wait[hooks.Demoted](t, leader, nil); ended.Reason != hooks.SessionLost {
					t.Errorf("demoted because %s: %v", ended.Reason, ended.Err)
				}
				if f := wait[hooks.Failure](t, leader, nil); f.Op != hooks.OpHeartbeat {
					t.Errorf("reported: %v", f.Err)
				}
				if err := <-returned; transfer != nil {
					wraps(t, err, elector.ErrNoSuccessor)
					wraps(t, err, elector.ErrSessionLost)
				}
			})
		})
	}
}

// Its caller campaigns again at once, so the lock is free for an instant, and each term has the
// same backend.
func TestAnyTermOfASharedSessionAnswersARequest(t *testing.T) {
	inSessionScope(t, "a shared session needs it")
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		g := s.share(t, d.open(t, 0, s.DSN()), elector.WithRetryInterval(10*time.Millisecond)).join(t, []string{election})
		ctx, stop := context.WithCancel(soon(t))
		var loop sync.WaitGroup
		loop.Go(func() {
			for ctx.Err() == nil {
				if term, err := g.all[0].Campaign(ctx); err == nil {
					select {
					case <-term.Context().Done():
					case <-ctx.Done():
					}
					expect(t, term.Resign(soon(t)))
				}
			}
		})
		defer loop.Wait()
		defer stop()
		pool := d.open(t, 1, s.DSN())
		eventually(t, "it leads", g.all[0].IsLeader)
		for range 3 {
			token := termOf(t, g.all[0]).Token()
			next, err := elector.RequestResign(soon(t), pool, election)
			if check(t, err); next.CandidateID == "" {
				t.Error("nobody leads next")
			}
			eventually(t, "the next term", func() bool { again, leads := g.all[0].Term(); return leads && again.Token() > token })
		}
	})
}

// A stranger holds locks that look like offers of twenty elections.
func TestOffersThatAStrangerMakesCostAFollowerNoConnection(t *testing.T) {
	inSessionScope(t, "a shared session needs it")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 20)
		leader := s.share(t, d.open(t, 0, s.DSN())).join(t, elections).run(t, nil)
		eventually(t, "all are led", func() bool { return leader.leading() == len(elections) })
		stranger, err := s.admin.Conn(soon(t))
		check(t, err)
		defer stranger.Close()
		pool, id := d.open(t, 1, s.DSN()), unique("follower")
		pool.SetMaxOpenConns(5)
		for _, election := range elections {
			high, low := lockkey.Halves(handover.OfferKey(id, elector.KeyFromName(election)))
			_, err := db.New(stranger).TryPair(soon(t), db.TryPairParams{High: high, Low: low})
			check(t, err)
		}
		defer func() { _, _ = stranger.ExecContext(soon(t), "SELECT pg_advisory_unlock_all()") }()
		follower := s.share(t, pool, elector.WithCandidateID(id), elector.WithRetryInterval(50*time.Millisecond)).join(t, elections).run(t, nil)
		for range 20 {
			ctx, cancel := context.WithTimeout(soon(t), 10*time.Second)
			if _, err := pool.ExecContext(ctx, "SELECT 1"); err != nil {
				t.Error(err)
			}
			cancel()
			time.Sleep(20 * time.Millisecond)
		}
		if n := pool.Stats().InUse; n > 4 {
			t.Errorf("%d connections are in use", n)
		}
		if follower.leading() > 0 {
			t.Error(errors.New("it leads beside the leader"))
		}
	})
}

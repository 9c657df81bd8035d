package memory_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

// failOver promotes a standby, and has the candidate's next connections lead to it.
func (b *bench) failOver(s *candidate) (promoted *electortest.Server) {
	b.Helper()
	promoted = b.NewStandby(0)
	b.Cleanup(promoted.Close)
	b.wraps(promoted.Promote())
	s.pool.SetMaxIdleConns(0)
	s.process.ConnectTo(promoted)
	return promoted
}

// A standby is promoted while its primary still answers, as when a failover manager is cut
// off. A leader on the old primary notices when its pool reaches the new one, and must not be
// elected on the old one again.
func TestATermOnAnOldPrimaryEndsWhenThePoolReachesTheNewOne(t *testing.T) {
	for name, meets := range map[string]func(b *bench, s *candidate, term *elector.Term){
		"InTx": func(b *bench, s *candidate, term *elector.Term) {
			err := term.InTx(b.Context(), s.pool, nil, func(*sql.Tx) error { return nil })
			b.wraps(err, elector.ErrRolledBack, elector.ErrNotLeader, elector.ErrOldPrimary)
		},
		"InTx on another pool": func(b *bench, s *candidate, term *elector.Term) {
			other := s.process.Open()
			defer other.Close()
			err := term.InTx(b.Context(), other, nil, func(*sql.Tx) error { return nil })
			b.wraps(err, elector.ErrRolledBack, elector.ErrNotLeader, elector.ErrOldPrimary)
		},
		"Leader": func(b *bench, s *candidate, term *elector.Term) {
			_, err := s.Leader(b.Context())
			b.wraps(err, elector.ErrNoLeader)
		},
	} {
		for _, opts := range [][]elector.Option{nil, {elector.WithTakeover(elector.Wait)}} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(b *bench) {
					var s *candidate
					back := hooks.Funcs{Demoted: func(context.Context, hooks.Demoted) {
						s.process.ConnectTo(b.Server) // the next connections lead to the old primary
					}}
					s = b.run("one", append(opts, longLease, elector.WithHooks(back))...)
					b.leads(s)
					term, _ := s.Term()
					old := term.Token()
					promoted := b.failOver(s)
					meets(b, s, term)
					time.Sleep(10 * time.Millisecond)
					b.wraps(context.Cause(term.Context()), elector.ErrSessionLost, elector.ErrOldPrimary)
					time.Sleep(time.Minute)
					if n := len(b.Locks()); s.IsLeader() || n != 0 {
						b.Errorf("it leads on the old primary: %v, with %d locks", s.IsLeader(), n)
					}
					s.process.ConnectTo(promoted)
					b.leads(s)
					if term, _ := s.Term(); term.Token()>>48 <= old>>48 {
						b.Errorf("token %x follows %x", term.Token(), old)
					}
					reported := false
					for _, f := range s.rec.Failures() {
						reported = reported || f.Op == hooks.OpCampaign && errors.Is(f.Err, elector.ErrOldPrimary)
					}
					if !reported {
						b.Error("OnError did not report the old primary")
					}
				})
			})
		}
	}
}

// A cluster may return to an older timeline on purpose, for instance from a backup. It has a
// leader again after a lease. That leader has met the newer timeline, whose tokens were larger.
func TestAnOldPrimaryThatIsAllThereIsIsLedAfterALease(t *testing.T) {
	bubble(t, func(b *bench) {
		promoted := b.NewStandby(0)
		b.wraps(promoted.Promote())
		var s *candidate
		s = b.run("one", elector.WithHooks(hooks.Funcs{Demoted: func(context.Context, hooks.Demoted) {
			promoted.Close()
			s.process.ConnectTo(b.Server)
		}}))
		b.leads(s)
		term, _ := s.Term()
		s.process.ConnectTo(promoted)
		s.pool.SetMaxIdleConns(0)
		b.wraps(term.InTx(b.Context(), s.pool, nil, func(*sql.Tx) error { return nil }), elector.ErrOldPrimary)
		<-term.Context().Done()
		b.within("it leads", lease-time.Second, b.leads(s), lease+5*time.Second)
		synctest.Wait()
		if fallen := b.fallen(s.rec); fallen != 1 {
			b.Errorf("%d reports that the token fell, want one: %+v", fallen, s.rec.Failures())
		}
	})
}

// Tokens fall where a promoted server is upgraded, until the epoch is raised.
func TestAnUpgradeLowersTheTokenAndTheEpochRaisesIt(t *testing.T) {
	bubble(t, func(b *bench) {
		promoted := b.NewStandby(0)
		defer promoted.Close()
		b.wraps(promoted.Promote())
		pool := promoted.Open()
		defer pool.Close()
		e, err := elector.New(pool, "orders")
		b.wraps(err)
		once := func() (int64, error) {
			term, err := e.Campaign(context.Background())
			if err != nil {
				return 0, err
			}
			return term.Token(), term.Resign(context.Background())
		}
		before, err := once()
		b.wraps(err)
		promoted.Upgrade()
		fallen, err := once()
		b.wraps(err)
		if fallen >= before || fallen>>48 != 1 {
			b.Errorf("the token is %x after %x", fallen, before)
		}
		promoted.SetTokenEpoch("2")
		if raised, err := once(); err != nil || raised <= before || raised>>48 != 3 {
			b.Errorf("the token is %x after %x (%v)", raised, before, err)
		}
		promoted.SetTokenEpoch("two")
		if _, _, err := e.TryCampaign(context.Background()); !errors.Is(err, elector.ErrTokenEpoch) {
			b.Errorf("elected with an epoch that is no number: %v", err)
		}
		standby := promoted.NewStandby(0)
		defer standby.Close()
		promoted.SetTokenEpoch("2")
		b.wraps(standby.Promote())
		other := standby.Open()
		defer other.Close()
		e, err = elector.New(other, "orders")
		b.wraps(err)
		if _, _, err := e.TryCampaign(context.Background()); !errors.Is(err, elector.ErrTokenEpoch) {
			b.Errorf("a standby lacks the epoch of its primary: %v", err)
		}
	})
}

// An invalid epoch of the database fails an attempt, but ends no term of the session.
func TestTheLargerEpochCountsAndAnInvalidOneKeepsTheSharedSession(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.Open()
		defer pool.Close()
		session, err := elector.NewSession(pool, elector.WithTokenEpoch(3))
		b.wraps(err)
		one, err := session.Elector("one")
		b.wraps(err)
		two, err := session.Elector("two")
		b.wraps(err)
		term := b.campaign(one)
		b.SetTokenEpoch("three")
		_, _, err = two.TryCampaign(always)
		if b.wraps(err, elector.ErrTokenEpoch); !term.Valid() || term.Token()>>48 != 1+3 || b.holds(two) {
			b.Errorf("the other term is valid: %t; its token is %x", term.Valid(), term.Token())
		}
		b.SetTokenEpoch("9")
		next := b.campaign(two)
		if next.Token()>>48 != 1+9 {
			b.Errorf("the token is %x", next.Token())
		}
		b.wraps(next.Resign(always))
		b.wraps(term.Resign(always))
		b.wraps(session.Close(always))
	})
}

// The pool's idle connections lead to the old primary. None is used, or kept.
func TestConnectionsToAnOldPrimaryAreClosedAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		one.pool.SetMaxIdleConns(10)
		term := b.campaign(one.Elector)
		var idle []*sql.Conn
		for range 4 {
			conn, err := one.pool.Conn(always)
			b.check(err)
			idle = append(idle, conn)
		}
		promoted := b.NewStandby(0)
		b.Cleanup(promoted.Close)
		b.wraps(promoted.Promote())
		one.process.ConnectTo(promoted)
		other := one.process.Open()
		defer other.Close()
		b.wraps(term.InTx(always, other, nil, func(*sql.Tx) error { return nil }), elector.ErrOldPrimary)
		b.wraps(term.Resign(always), elector.ErrOldPrimary)
		for _, conn := range idle {
			b.wraps(conn.Close())
		}
		term, elected, err := one.TryCampaign(always)
		if b.wraps(err); !elected || term.Token()>>48 != 2 {
			b.Fatalf("elected %t: %+v", elected, term)
		}
		b.wraps(term.Resign(always))
		if n := one.pool.Stats().InUse; n != 0 {
			b.Errorf("%d connections are in use", n)
		}
	})
}

// The heartbeat that finds the old primary prolongs nothing.
func TestAHeartbeatOnAnOldPrimaryIsNotReported(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one")
		b.leads(one)
		b.failOver(one)
		time.Sleep(heartbeat / 2)
		before := len(one.rec.Heartbeats())
		_, err := one.Leader(always)
		b.wraps(err, elector.ErrNoLeader)
		b.wraps(b.demoted(one).Err, elector.ErrOldPrimary)
		synctest.Wait()
		if n := len(one.rec.Heartbeats()) - before; n != 0 {
			b.Errorf("%d heartbeats were reported", n)
		}
	})
}

// A name, or a proxy, points to the old primary again, later than a lease after the promotion was met.
func TestAFollowerOfTheNewPrimaryIsNotElectedOnTheOldOne(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one", elector.WithTakeover(elector.Poll))
		b.leads(one)
		first, _ := one.Term()
		promoted := b.failOver(one)
		two := b.candidate("two")
		two.process.ConnectTo(promoted)
		b.start(two)
		b.leads(two)
		_, _ = one.Leader(always) // meets the new primary
		<-first.Context().Done()
		b.wraps(context.Cause(first.Context()), elector.ErrOldPrimary)
		time.Sleep(3 * lease) // follows two on the new primary, by an attempt per second
		before, _ := one.Leader(always)
		if before.CandidateID != "two" {
			b.Fatalf("got %+v", before)
		}
		one.process.ConnectTo(b.Server) // one second after its last answer of the new one
		time.Sleep(lease / 2)
		if one.IsLeader() && two.IsLeader() {
			term, _ := one.Term()
			b.Errorf("two leaders: %x, on the old primary, and another", term.Token())
		}
	})
}

// The same for one that was the leader on the new primary, when its session is cut and the name
// points to the old one again.
func TestALeaderOfTheNewPrimaryIsNotElectedOnTheOldOne(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one")
		b.leads(one)
		first, _ := one.Term()
		promoted := b.failOver(one)
		_, _ = one.Leader(always)
		<-first.Context().Done()
		b.wraps(context.Cause(first.Context()), elector.ErrOldPrimary)
		time.Sleep(3 * lease)
		second, leading := one.Term()
		if !leading || second.Token()>>48 != 2 {
			b.Fatal("one does not lead on the new primary")
		}
		two := b.candidate("two")
		two.process.ConnectTo(promoted)
		b.start(two)
		time.Sleep(lease)
		one.process.ConnectTo(b.Server)
		l, err := two.Leader(always)
		b.wraps(err)
		promoted.Terminate(l.PID)
		b.leads(two)
		time.Sleep(lease / 2)
		if one.IsLeader() && two.IsLeader() {
			term, _ := one.Term()
			b.Errorf("two leaders: %x, on the old primary, and another", term.Token())
		}
	})
}

// A deputy in transaction scope on the new primary: its pooler points to the old one again.
func TestADeputyInsideATransactionIsNotElectedOnTheOldPrimary(t *testing.T) {
	bubble(t, func(b *bench) {
		process := b.NewPooler(20).NewProcess()
		one := b.candidateOn(process, process.Open(), "one", inside, elector.WithTakeover(elector.Wait))
		b.start(one)
		b.leads(one)
		first, _ := one.Term()
		promoted := b.failOver(one)
		two := b.candidate("two", inside)
		two.process.ConnectTo(promoted)
		b.start(two)
		b.leads(two)
		_, _ = one.Leader(always) // meets the new primary
		<-first.Context().Done()
		b.wraps(context.Cause(first.Context()), elector.ErrOldPrimary)
		time.Sleep(lease / 2)
		one.process.ConnectTo(b.Server)
		for began := time.Now(); time.Since(began) < lease/2; time.Sleep(10 * time.Millisecond) {
			if one.IsLeader() && two.IsLeader() {
				term, _ := one.Term()
				b.Fatalf("two leaders after %v: token %x on the old primary, and another", time.Since(began), term.Token())
			}
		}
	})
}

// A shared session on the new primary is offered a lock, when the pool points to the old one again.
func TestASuccessorOfASharedSessionIsNotElectedOnTheOldPrimary(t *testing.T) {
	for _, later := range []time.Duration{time.Second, 3 * lease} {
		t.Run(later.String(), func(t *testing.T) {
			bubble(t, func(b *bench) {
				process := b.NewProcess()
				pool := process.Open()
				defer pool.Close()
				session, err := elector.NewSession(pool, elector.WithCandidateID("one"))
				b.wraps(err)
				one, err := session.Elector("orders")
				b.wraps(err)
				ctx, stop := context.WithCancel(always)
				done := make(chan error, 1)
				go func() { done <- one.Run(ctx, nil) }()
				defer func() { stop(); <-done; _ = session.Close(always) }()
				for !one.IsLeader() {
					time.Sleep(time.Millisecond)
				}
				first, _ := one.Term()
				promoted := b.NewStandby(0)
				b.Cleanup(promoted.Close)
				b.wraps(promoted.Promote())
				pool.SetMaxIdleConns(0)
				process.ConnectTo(promoted)
				two := b.candidate("two")
				two.process.ConnectTo(promoted)
				b.start(two)
				b.leads(two)
				_, _ = one.Leader(always)
				<-first.Context().Done()
				b.wraps(context.Cause(first.Context()), elector.ErrOldPrimary)
				time.Sleep(later) // follows two on the new primary
				process.ConnectTo(b.Server)
				term, _ := two.Term()
				go func() { _ = term.TransferTo(always, "one") }()
				for began := time.Now(); time.Since(began) < 3*lease; time.Sleep(10 * time.Millisecond) {
					if one.IsLeader() && two.IsLeader() {
						term, _ := one.Term()
						b.Fatalf("two leaders after %v: token %x on the old primary, and another", time.Since(began), term.Token())
					}
				}
			})
		})
	}
}

// The session on the old primary may end before it is compared with the new one.
func TestACandidateThatHasLostItsSessionOnTheOldPrimaryIsNotElectedThereAgain(t *testing.T) {
	for name, lose := range map[string]func(b *bench, pid int32){
		"its connection is cut": func(b *bench, pid int32) { b.Terminate(pid) }, // as by HAProxy
		"the server crashes": func(b *bench, _ int32) {
			b.Crash()
			b.Start()
		},
	} {
		scene(t, name, func(b *bench) {
			old := b.run("old", elector.WithTakeover(elector.Poll))
			b.leads(old)
			term, _ := old.Term()
			pid := b.pid(old)
			promoted := b.failOver(old)
			leader := b.candidate("leader")
			leader.process.ConnectTo(promoted)
			b.start(leader)
			b.leads(leader)
			lose(b, pid)
			<-term.Context().Done()
			time.Sleep(3 * lease) // it follows on the new primary
			old.process.ConnectTo(b.Server)
			for began := time.Now(); time.Since(began) < lease/2; time.Sleep(10 * time.Millisecond) {
				if old.IsLeader() {
					b.Fatalf("elected on the old primary after %v", time.Since(began))
				}
			}
		})
	}
	scene(t, "a shared session is cut", func(b *bench) {
		process := b.NewProcess()
		pool := process.Open()
		defer pool.Close()
		session, err := elector.NewSession(pool)
		b.wraps(err)
		old, err := session.Elector("orders")
		b.wraps(err)
		b.wraps(old.Start(always))
		defer session.Close(always)
		for !old.IsLeader() {
			time.Sleep(time.Millisecond)
		}
		term, _ := old.Term()
		held, err := old.Leader(always)
		b.wraps(err)
		promoted := b.NewStandby(0)
		b.Cleanup(promoted.Close)
		b.wraps(promoted.Promote())
		pool.SetMaxIdleConns(0)
		process.ConnectTo(promoted)
		leader := b.candidate("leader")
		leader.process.ConnectTo(promoted)
		b.start(leader)
		b.leads(leader)
		b.Terminate(held.PID)
		<-term.Context().Done()
		time.Sleep(3 * lease)
		process.ConnectTo(b.Server)
		for _, l := range promoted.Locks() {
			if leads, _ := leader.Leader(always); l.PID != leads.PID {
				promoted.Terminate(l.PID)
			}
		}
		for began := time.Now(); time.Since(began) < lease/2; time.Sleep(10 * time.Millisecond) {
			if old.IsLeader() {
				b.Fatalf("elected on the old primary after %v", time.Since(began))
			}
		}
	})
}

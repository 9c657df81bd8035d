package electortest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

// ask makes a request within 30 s.
func ask(b *bench, call func(ctx context.Context) (elector.Leader, error)) (elector.Leader, error) {
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
	defer cancel()
	return call(ctx)
}

func resignOf(s *candidate) func(ctx context.Context) (elector.Leader, error) {
	return func(ctx context.Context) (elector.Leader, error) {
		return elector.RequestResign(ctx, s.pool, s.Election())
	}
}

// The leader hears at its next heartbeat, its work returns, and another leads.
func TestALeaderResignsOnRequest(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		other := b.run("other")
		time.Sleep(heartbeat)
		asked := time.Now()
		next, err := ask(b, resignOf(other))
		b.wraps(err)
		if took := time.Since(asked); next.CandidateID != "other" || took > heartbeat+time.Second {
			b.Errorf("%q leads next, after %v", next.CandidateID, took)
		}
		b.ended(leader, hooks.Requested)
	})
}

// The cause of the term's end says who asked.
func TestATermThatEndsOnRequestKnowsWhoAsked(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.candidate("leader")
		term := b.campaign(leader.Elector)
		go func() {
			<-term.Context().Done()
			_ = term.Resign(context.Background())
		}()
		next, err := ask(b, resignOf(leader))
		b.wraps(err)
		cause := context.Cause(term.Context())
		b.wraps(cause, elector.ErrResigned)
		if text := cause.Error(); next != (elector.Leader{}) || !strings.Contains(text, "requested by role") {
			b.Errorf("%q leads next, and the cause is %s", next.CandidateID, text)
		}
	})
}

// A leader whose work does not return is named, and the request ends with its maker.
func TestARequestThatIsNotAnsweredNamesTheLeader(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.candidate("leader", elector.WithRequests(false))
		term := b.campaign(leader.Elector)
		other := b.candidate("other")
		got, err := ask(b, resignOf(other))
		b.wraps(err, elector.ErrUnanswered, context.DeadlineExceeded)
		if got.CandidateID != "leader" || !strings.Contains(err.Error(), `"leader"`) || !term.Valid() {
			b.Errorf("got %+v, %v", got, err)
		}
		b.failed(leader, hooks.OpRequest)
		b.wraps(term.Resign(context.Background()))
	})
}

// A request that ended unanswered is not answered by the next leader, nor by the same one.
func TestARequestIsNotAnsweredByALaterTerm(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.candidate("leader")
		term := b.campaign(leader.Elector)
		other := b.run("other")
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := elector.RequestResign(ctx, other.pool, other.Election())
			done <- err
		}()
		time.Sleep(time.Second)
		b.wraps(term.Resign(b.Context()))
		b.wraps(<-done)
		b.leads(other)
		time.Sleep(time.Minute)
		if !other.IsLeader() {
			b.Error("the next leader has answered the request")
		}
	})
}

// A server that is started again gives its transactions the same numbers.
func TestARequestAfterARestartOfTheServerIsAnother(t *testing.T) {
	for name, opts := range map[string][]elector.Option{"in session scope": nil, "in transaction scope": {inside}} {
		scene(t, name, func(b *bench) {
			leader := b.run("leader", opts...)
			for range 5 {
				b.leads(leader)
				time.Sleep(time.Second)
				_, err := ask(b, resignOf(leader))
				b.wraps(err)
				b.leads(leader)
				b.Stop()
				b.Start()
				time.Sleep(time.Second)
			}
		})
	}
}

func TestNobodyIsAskedIfNobodyLeads(t *testing.T) {
	bubble(t, func(b *bench) {
		s := b.candidate("one")
		_, err := ask(b, resignOf(s))
		b.wraps(err, elector.ErrNoLeader)
		_, err = elector.RequestTransfer(b.Context(), s.pool, s.Election(), "")
		b.wraps(err, elector.ErrConfig)
	})
}

// Of many candidates the one that is named leads next.
func TestALeaderTransfersOnRequest(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		b.run("deputy")
		wanted := b.run("wanted")
		time.Sleep(heartbeat)
		transfer := func(to string) func(ctx context.Context) (elector.Leader, error) {
			return func(ctx context.Context) (elector.Leader, error) {
				return elector.RequestTransfer(ctx, wanted.pool, wanted.Election(), to)
			}
		}
		next, err := ask(b, transfer("wanted"))
		b.wraps(err)
		again, err := ask(b, transfer("wanted"))
		b.wraps(err)
		if next.CandidateID != "wanted" || again != next {
			b.Errorf("%q leads next", next.CandidateID)
		}
		b.ended(leader, hooks.Requested)
		next, err = ask(b, transfer("nobody"))
		if b.wraps(err, elector.ErrNoSuccessor); next.CandidateID == "wanted" {
			b.Error("the leader has not let go")
		}
	})
}

// Two requests at once, for two elections of one session, end these two and no other.
func TestOneBellServesAllElectionsOfASession(t *testing.T) {
	bubble(t, func(b *bench) {
		s := b.candidate("web")
		shared, err := elector.NewSession(s.pool)
		b.wraps(err)
		defer shared.Close(context.Background())
		var terms []*elector.Term
		for _, name := range []string{"a", "b", "c"} {
			e, err := shared.Elector(name)
			b.wraps(err)
			term := b.campaign(e)
			terms = append(terms, term)
			go func() {
				<-term.Context().Done()
				_ = term.Resign(context.Background())
			}()
		}
		done := make(chan error, 3)
		asker := b.candidate("asker")
		for _, name := range []string{"a", "b", "b"} {
			go func() {
				_, err := elector.RequestResign(b.Context(), asker.pool, name)
				done <- err
			}()
		}
		for range 3 {
			if err := <-done; err != nil && !errors.Is(err, elector.ErrNoLeader) {
				b.Error(err)
			}
		}
		if terms[0].Valid() || terms[1].Valid() || !terms[2].Valid() {
			b.Errorf("valid: %t, %t, %t", terms[0].Valid(), terms[1].Valid(), terms[2].Valid())
		}
	})
}

// Statements of the term put off heartbeats, but not for ever.
func TestABusySessionHearsRequests(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.candidate("leader")
		term := b.campaign(leader.Elector)
		go func() {
			for term.Verify(b.Context()) == nil {
				time.Sleep(heartbeat / 3)
			}
			_ = term.Resign(context.Background())
		}()
		time.Sleep(time.Minute)
		asked := time.Now()
		_, err := ask(b, resignOf(b.candidate("asker")))
		b.wraps(err)
		b.within("the end of the term", 0, leader.rec.Demoted()[0].At.Sub(asked), 2*heartbeat)
	})
}

// While the lock table is full the bell cannot be tried. The session lives, and hears again when
// there is room.
func TestALeaderOutlastsAFullLockTable(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		b.LimitLocks(1)
		time.Sleep(10 * lease)
		if len(leader.rec.Demoted()) > 0 || !leader.IsLeader() {
			b.Errorf("demoted: %+v", leader.rec.Demoted())
		}
		b.LimitLocks(0)
		_, err := ask(b, resignOf(b.candidate("asker")))
		b.wraps(err)
		b.ended(leader, hooks.Requested)
	})
}

// The next term of a leader that stood still, or another one, does not answer a request that
// was made of the last, nor one whose maker has died.
func TestARequestDiesWithItsMaker(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		asker := b.candidate("asker")
		leader.process.Freeze()
		done := make(chan error, 1)
		go func() {
			_, err := elector.RequestResign(b.Context(), asker.pool, "orders")
			done <- err
		}()
		time.Sleep(time.Second)
		asker.process.Kill()
		time.Sleep(time.Second)
		leader.process.Thaw()
		if err := <-done; err == nil {
			b.Error("it has died, and got an answer")
		}
		time.Sleep(10 * lease)
		b.ended(leader)
	})
}

func TestASuccessorThatLosesItsConnectionWaitsAgain(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.candidate("leader")
		term, err := leader.Campaign(context.Background())
		b.wraps(err)
		successor := b.run("successor")
		b.run("other")
		work := make(chan bool)
		ran := make(chan error)
		go func() {
			_, err := leader.RunIfLeader(context.Background(), func(ctx context.Context) error {
				<-ctx.Done()
				for _, l := range b.Locks() {
					if l.Key == leader.Key() && !l.Granted {
						b.Terminate(l.PID)
					}
				}
				close(work)
				time.Sleep(1500 * time.Millisecond) // the successor reconnects and waits again
				return nil
			})
			ran <- err
		}()
		time.Sleep(time.Second)
		b.wraps(term.TransferTo(context.Background(), "successor"))
		<-work
		b.wraps(<-ran)
		b.leads(successor)
	})
}

// One term is transferred to two candidates.
func TestEachOfTwoTransfersReportsOnItsOwnSuccessor(t *testing.T) {
	for range 20 {
		bubble(t, func(b *bench) {
			leader := b.candidate("leader")
			term, err := leader.Campaign(context.Background())
			b.wraps(err)
			all := map[string]*candidate{"one": b.run("one", elector.WithStandby(elector.Wait)), "two": b.run("two", elector.WithStandby(elector.Wait))}
			time.Sleep(heartbeat)
			outcomes := map[string]chan error{}
			for id := range all {
				returned := make(chan error, 1)
				outcomes[id] = returned
				go func() { returned <- term.TransferTo(context.Background(), id) }()
			}
			won := 0
			for id := range all {
				err := <-outcomes[id]
				time.Sleep(3 * heartbeat)
				if leads := all[id].IsLeader(); leads != (err == nil) {
					b.Errorf("%s: leads %t, and its transfer returned %v", id, leads, err)
				}
				if err == nil {
					won++
				} else {
					b.wraps(err, elector.ErrNoSuccessor)
				}
			}
			if won != 1 {
				b.Errorf("%d transfers succeeded", won)
			}
		})
	}
}

func TestATransferAfterAnotherReportsOnItsOwnSuccessor(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.candidate("leader")
		term, err := leader.Campaign(context.Background())
		b.wraps(err)
		one := b.run("one")
		b.run("two")
		time.Sleep(heartbeat)
		b.wraps(term.TransferTo(context.Background(), "one"))
		b.leads(one)
		b.wraps(term.TransferTo(context.Background(), "two"), elector.ErrNoSuccessor)
		b.wraps(term.TransferTo(context.Background(), "one")) // as before
	})
}

func TestATransferWhoseContextEndsFirstSaysThatTheSuccessorIsAbsent(t *testing.T) {
	for name, work := range map[string]time.Duration{"no work": 0, "work that takes a while to return": time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				leader := b.candidate("leader")
				term, err := leader.Campaign(context.Background())
				b.wraps(err)
				ran := make(chan error)
				go func() {
					_, err := leader.RunIfLeader(context.Background(), func(ctx context.Context) error {
						<-ctx.Done()
						time.Sleep(work)
						return nil
					})
					ran <- err
				}()
				other := b.run("other")
				time.Sleep(heartbeat)
				ctx, stop := context.WithTimeout(context.Background(), time.Second)
				defer stop()
				began := time.Now()
				b.wraps(term.TransferTo(ctx, "absent"), elector.ErrNoSuccessor, context.DeadlineExceeded)
				b.within("it returns", time.Second, time.Since(began), time.Second)
				b.leads(other) // the term was resigned anyway
				b.wraps(<-ran)
			})
		})
	}
}

// The statement of the offer may still run when the transfer is cancelled.
func TestACancelledTransferLeavesNothingOnASharedSession(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.candidate("leader")
		session, err := elector.NewSession(leader.pool, elector.WithCandidateID("shared"))
		b.wraps(err)
		var terms []*elector.Term
		var all []*elector.Elector
		for _, election := range []string{"orders", "reports"} {
			e, err := session.Elector(election)
			b.wraps(err)
			term, err := e.Campaign(context.Background())
			b.wraps(err)
			all, terms = append(all, e), append(terms, term)
		}
		leader.process.Cut(electortest.Answers)
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		b.wraps(terms[0].TransferTo(ctx, "two"), elector.ErrNoSuccessor, context.DeadlineExceeded)
		leader.process.Mend()
		b.wraps(terms[0].Resign(context.Background()))
		terms[0], err = all[0].Campaign(context.Background())
		b.wraps(err)
		time.Sleep(time.Second)
		if n := len(b.Locks()); n != len(terms)+1 { // and the life lock
			b.Errorf("%d locks are held: %+v", n, b.Locks())
		}
		two := b.candidate("two")
		bounded, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		began := time.Now()
		_, elected, err := two.TryCampaign(bounded)
		b.wraps(err)
		b.within("the attempt", 0, time.Since(began), time.Second)
		if elected || !terms[1].Valid() {
			b.Errorf("elected %t; the other term is valid: %t", elected, terms[1].Valid())
		}
		for _, term := range terms {
			b.wraps(term.Resign(context.Background()))
		}
		b.wraps(session.Close(context.Background()))
	})
}

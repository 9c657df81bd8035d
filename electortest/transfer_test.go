package electortest_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

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

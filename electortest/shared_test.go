package electortest_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

func TestASharedSessionKeepsItsLocksUntilTheLastWorkHasReturned(t *testing.T) {
	bubble(t, func(b *bench) {
		process := b.NewProcess()
		pool := process.Open()
		session, err := elector.NewSession(pool)
		b.wraps(err)
		work := map[string]time.Duration{"quick": 0, "slow": lease / 10} // the drain is a fifth of the lease
		returned, done := make(chan string, len(work)), make(chan error, len(work))
		ctx, stop := context.WithCancel(context.Background())
		for name, windsDown := range work {
			e, err := session.Elector(name)
			b.wraps(err)
			go func() {
				done <- e.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
					<-ctx.Done()
					time.Sleep(windsDown)
					returned <- name
					return nil
				})
			}()
		}
		time.Sleep(5 * time.Second)
		process.Cut(electortest.Answers) // the server still receives messages
		<-returned
		time.Sleep(lease/10 - time.Millisecond)
		if n := len(b.Locks()); n != len(work)+1 { // and the life lock
			b.Errorf("%d locks are held while the work of one of %d winds down", n, len(work))
		}
		<-returned
		process.Mend()
		stop()
		for range work {
			b.wraps(<-done, context.Canceled)
		}
		b.wraps(session.Close(context.Background()))
		_ = pool.Close()
	})
}

func TestTheHooksOfEachElectionOfASessionReceiveLeadersAndHeartbeats(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.Open()
		ctx, stop := context.WithCancel(context.Background())
		elections := []string{"a", "b"}
		var sessions []*elector.Session
		told := map[string]*hookstest.Recorder{}
		ended := make(chan error, 4)
		for _, id := range []string{"one", "two"} {
			session, err := elector.NewSession(pool, elector.WithCandidateID(id))
			b.wraps(err)
			sessions = append(sessions, session)
			for _, name := range elections {
				rec := hookstest.NewRecorder()
				told[id+name] = rec
				e, err := session.Elector(name, elector.WithHooks(rec))
				b.wraps(err)
				go func() { ended <- e.Run(ctx, nil) }()
			}
			time.Sleep(5 * heartbeat)
		}
		for _, name := range elections {
			if n := len(told["one"+name].Heartbeats()); n < 5 {
				b.Errorf("%s: the leader received %d heartbeats", name, n)
			}
			if n := len(told["two"+name].Heartbeats()); n != 0 {
				b.Errorf("%s: a follower received %d heartbeats", name, n)
			}
			for _, id := range []string{"one", "two"} {
				changes := told[id+name].LeaderChanges()
				if len(changes) != 1 || changes[0].Current != "one" {
					b.Errorf("%s of %s saw %+v", name, id, changes)
				}
			}
		}
		stop()
		for range told {
			b.wraps(<-ended, context.Canceled)
		}
		for _, session := range sessions {
			b.wraps(session.Close(context.Background()))
		}
		_ = pool.Close()
	})
}

// A lost session is replaced when an elector needs it, and not before.
func TestALostSessionIsReplacedWhenItIsNeeded(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.Open()
		session, err := elector.NewSession(pool)
		b.wraps(err)
		e, err := session.Elector("orders")
		b.wraps(err)
		term, err := e.Campaign(context.Background())
		b.wraps(err)
		leader, err := e.Leader(context.Background())
		b.wraps(err)
		b.Terminate(leader.PID)
		<-term.Context().Done()
		b.wraps(term.Resign(context.Background()), elector.ErrNotLeader)
		b.Trace(func(event electortest.Event) { b.Errorf("%+v, and nobody campaigns", event) })
		time.Sleep(10 * lease)
		b.Trace(nil)
		term, err = e.Campaign(context.Background())
		b.wraps(err)
		b.wraps(term.Resign(context.Background()))
		b.wraps(session.Close(context.Background()))
		_ = pool.Close()
	})
}

// A lost connection holds no locks: the other elections are elected again while the work of
// one still runs.
func TestABrokenSessionIsReplacedAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.Open()
		session, err := elector.NewSession(pool)
		b.wraps(err)
		slow, err := session.Elector("slow")
		b.wraps(err)
		quick, err := session.Elector("quick")
		b.wraps(err)
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 2)
		go func() {
			ended <- slow.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
				<-ctx.Done()
				time.Sleep(lease / 6) // the drain is a fifth
				return nil
			})
		}()
		elected := make(chan time.Time, 3)
		go func() {
			ended <- quick.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
				elected <- time.Now()
				<-ctx.Done()
				return nil
			})
		}()
		<-elected
		time.Sleep(heartbeat / 2)
		leader, err := quick.Leader(ctx)
		b.wraps(err)
		term, _ := quick.Term()
		b.Terminate(leader.PID)
		<-term.Context().Done()
		lost := time.Now()
		b.within("elected again", 0, (<-elected).Sub(lost), 100*time.Millisecond)
		stop()
		for range 2 {
			b.wraps(<-ended, context.Canceled)
		}
		b.wraps(session.Close(context.Background()))
		_ = pool.Close()
	})
}

// slowContext takes a second to say that it has not ended.
type slowContext struct{ context.Context }

func (c slowContext) Err() error {
	time.Sleep(time.Second)
	return c.Context.Err()
}

// A resignation between Verify's check of the term and its statement costs the other elections
// of the session nothing.
func TestVerifyOfATermThatIsResignedMeanwhileLosesNoOtherTerm(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.Open()
		defer pool.Close()
		session, err := elector.NewSession(pool)
		b.wraps(err)
		defer session.Close(always)
		var terms []*elector.Term
		for _, name := range []string{"one", "two"} {
			e, err := session.Elector(name)
			b.wraps(err)
			terms = append(terms, b.campaign(e))
		}
		verified := make(chan error)
		go func() { verified <- terms[0].Verify(slowContext{always}) }()
		time.Sleep(time.Millisecond)
		b.wraps(terms[0].Resign(always))
		b.wraps(<-verified, elector.ErrNotLeader, elector.ErrResigned)
		b.wraps(terms[1].Verify(always))
		b.wraps(terms[1].Resign(always))
	})
}

package memory_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
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

// slowContext takes a while to be listened to.
type slowContext struct{ context.Context }

func (c slowContext) Done() <-chan struct{} {
	time.Sleep(lease / 2)
	return c.Context.Done()
}

// A resignation or a transfer between Verify's check of the term and its statement costs the
// other elections of the session nothing.
func TestVerifyOfATermThatIsResignedMeanwhileLosesNoOtherTerm(t *testing.T) {
	for name, leave := range map[string]func(*elector.Term) error{
		"resigned":    func(t *elector.Term) error { return t.Resign(always) },
		"transferred": func(t *elector.Term) error { return t.TransferTo(always, "successor") },
	} {
		scene(t, name, func(b *bench) { b.leavesDuringVerify(leave) })
	}
}

func (b *bench) leavesDuringVerify(leave func(*elector.Term) error) {
	b.Helper()
	pool := b.Open()
	defer pool.Close()
	session, err := elector.NewSession(pool)
	b.wraps(err)
	defer session.Close(always)
	var terms []*elector.Term
	for _, name := range []string{"orders", "invoices"} {
		e, err := session.Elector(name)
		b.wraps(err)
		terms = append(terms, b.campaign(e))
	}
	b.run("successor")
	time.Sleep(time.Second)
	verified := make(chan error)
	go func() { verified <- terms[0].Verify(slowContext{always}) }()
	time.Sleep(time.Millisecond)
	b.wraps(leave(terms[0]))
	b.wraps(<-verified, elector.ErrNotLeader, elector.ErrResigned)
	b.wraps(terms[1].Verify(always))
	b.wraps(terms[1].Resign(always))
}

// Each term hears of the end of its session on a goroutine of its own.
func TestATermOfALostSessionSaysAtOnceWhyItHasEnded(t *testing.T) {
	for range 10 {
		bubble(t, func(b *bench) {
			one := b.wired(fail("Unlock", 1, 1, errOops), "one")
			session, err := elector.NewSession(one.pool)
			b.wraps(err)
			defer session.Close(always)
			var terms []*elector.Term
			for i := range 5 {
				e, err := session.Elector(fmt.Sprint("town", i))
				b.wraps(err)
				terms = append(terms, b.campaign(e))
			}
			_ = terms[0].Resign(always)
			for _, term := range terms[1:] {
				b.wraps(term.Verify(always), elector.ErrNotLeader, elector.ErrSessionLost)
			}
		})
	}
}

// A shared session that waits for the transactions of the last term is asked to resign, and
// does once it leads.
func TestARequestAtTheBarrierIsAnsweredByTheTerm(t *testing.T) {
	for name, led := range map[string]bool{"that led before": true, "that never led": false} {
		scene(t, name, func(b *bench) {
			pool := b.Open()
			defer pool.Close()
			session, err := elector.NewSession(pool)
			b.wraps(err)
			defer session.Close(always)
			other, err := session.Elector("invoices")
			b.wraps(err)
			b.campaign(other) // so that the session has heartbeats
			e, err := session.Elector("orders")
			b.wraps(err)
			if led {
				b.wraps(b.campaign(e).Resign(always)) // the request is not made of this term
			}
			fenced := b.fenced("orders")
			elected := make(chan *elector.Term, 1)
			go func() { elected <- b.campaign(e) }()
			time.Sleep(time.Second)
			asked := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(always, 30*time.Second)
				defer cancel()
				_, err := elector.RequestResign(ctx, pool, "orders")
				asked <- err
			}()
			time.Sleep(2 * heartbeat)
			b.wraps(fenced.Rollback())
			term := <-elected
			b.wraps(<-asked)
			b.wraps(context.Cause(term.Context()), elector.ErrResigned)
		})
	}
}

// After Close returns, its electors report at once that they are stopped, not that they run.
func TestAfterCloseTheElectorsOfASessionAreFree(t *testing.T) {
	server := electortest.NewServer()
	defer server.Close()
	pool := server.Open()
	defer pool.Close()
	rounds := 300
	if testing.Short() {
		rounds = 30
	}
	for range rounds {
		session, err := elector.NewSession(pool, elector.WithDrain(0)) // Close must not wait for work of Campaign
		if err != nil {
			t.Fatal(err)
		}
		e, err := session.Elector("orders")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := session.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Campaign(t.Context()); !errors.Is(err, elector.ErrStopped) {
			t.Fatalf("got %v, want %v", err, elector.ErrStopped)
		}
	}
}

// closings makes the electors that can be closed: with and without a shared session.
var closings = map[string]func(b *bench, s *candidate) (e *elector.Elector, again func() (*elector.Elector, error), end func()){
	"its own session": func(_ *bench, s *candidate) (*elector.Elector, func() (*elector.Elector, error), func()) {
		return s.Elector, func() (*elector.Elector, error) { return elector.New(s.pool, "orders") }, func() {}
	},
	"a shared session": func(b *bench, s *candidate) (*elector.Elector, func() (*elector.Elector, error), func()) {
		session, err := elector.NewSession(s.pool, elector.WithHooks(s.rec))
		b.wraps(err)
		other, err := session.Elector("other")
		b.wraps(err)
		term, err := other.Campaign(context.Background())
		b.wraps(err)
		again := func() (*elector.Elector, error) { return session.Elector("orders") }
		e, err := again()
		b.wraps(err)
		return e, again, func() {
			if !term.Valid() {
				b.Errorf("the other election of the session was disturbed: %v", context.Cause(term.Context()))
			}
			b.wraps(term.Resign(context.Background()))
			b.wraps(session.Close(context.Background()))
		}
	},
}

// The calls during which an elector can be closed, each with its wanted result.
var styles = map[string]func(b *bench, e *elector.Elector, work func(context.Context)) (returned chan error){
	"Run": func(_ *bench, e *elector.Elector, work func(context.Context)) chan error {
		returned := make(chan error, 1)
		go func() {
			returned <- e.Run(context.Background(), func(ctx context.Context, _ *elector.Term) error { work(ctx); return nil })
		}()
		return returned
	},
	"Start": func(b *bench, e *elector.Elector, work func(context.Context)) chan error {
		b.wraps(e.Start(context.Background()))
		b.leads(&candidate{Elector: e})
		go func() {
			_, _ = e.RunIfLeader(context.Background(), func(ctx context.Context) error { work(ctx); return nil })
		}()
		return nil
	},
	"Campaign": func(b *bench, e *elector.Elector, work func(context.Context)) chan error {
		term, err := e.Campaign(context.Background())
		b.wraps(err)
		go func() {
			work(term.Context())
			_ = term.Resign(context.Background())
		}()
		return nil
	},
}

func TestCloseEndsATermInOrder(t *testing.T) {
	const windsDown = lease / 10 // the drain is a fifth
	for where, stand := range closings {
		for style, begin := range styles {
			t.Run(style+" on "+where, func(t *testing.T) {
				bubble(t, func(b *bench) {
					s := b.candidate("one")
					e, again, end := stand(b, s)
					defer end()
					worked, busy := false, make(chan bool)
					returned := begin(b, e, func(ctx context.Context) {
						close(busy)
						<-ctx.Done()
						b.wraps(context.Cause(ctx), elector.ErrStopped)
						time.Sleep(windsDown)
						if !b.holds(e) || len(s.rec.Demoted()) > 0 {
							b.Error("the lock was released, or OnDemoted called, before the work returned")
						}
						worked = true
					})
					<-busy
					began := time.Now()
					b.wraps(e.Close(context.Background()))
					b.within("Close", windsDown, time.Since(began), windsDown+time.Second)
					if !worked || b.holds(e) {
						b.Errorf("after Close: the work has returned %t, the lock is held %t", worked, b.holds(e))
					}
					if returned != nil {
						b.wraps(<-returned, elector.ErrStopped)
					}
					if d := s.rec.Demoted(); len(d) != 1 || d[0].Reason != hooks.Shutdown {
						b.Errorf("demoted: %+v", d)
					}
					isClosed(b, e)
					events := len(s.rec.Events())
					next, err := again()
					b.wraps(err)
					term, elected, err := next.TryCampaign(context.Background())
					b.wraps(err)
					if !elected {
						b.Fatal("the same election could not be led again")
					}
					b.wraps(term.Resign(context.Background()))
					b.wraps(next.Close(context.Background()))
					for _, event := range s.rec.Events()[events:] {
						if e, ok := event.(hooks.Demoted); ok && e.Token < term.Token() {
							b.Errorf("a hook was called after Close: %+v", e)
						}
					}
				})
			})
		}
	}
}

// holds reports whether the lock of the elector's election is held.
func (b *bench) holds(e *elector.Elector) bool {
	for _, l := range b.Locks() {
		if l.Key == e.Key() && l.Granted && !l.Guard {
			return true
		}
	}
	return false
}

// isClosed fails the test unless every call returns that the elector is closed.
func isClosed(b *bench, e *elector.Elector) {
	b.Helper()
	b.wraps(e.Run(context.Background(), nil), elector.ErrStopped)
	b.wraps(e.Start(context.Background()), elector.ErrStopped)
	_, err := e.Campaign(context.Background())
	b.wraps(err, elector.ErrStopped)
	_, _, err = e.TryCampaign(context.Background())
	b.wraps(err, elector.ErrStopped)
	_, err = e.TryRun(context.Background(), nil)
	b.wraps(err, elector.ErrStopped)
	ran, err := e.RunIfLeader(context.Background(), nil)
	b.wraps(err)
	if ran || e.IsLeader() {
		b.Error("a closed elector leads")
	}
	b.wraps(e.Stop(context.Background()))
	b.wraps(e.Close(context.Background()))
}

func TestNoHookIsCalledAfterClose(t *testing.T) {
	bubble(t, func(b *bench) {
		closed := false
		one := b.candidate("one", elector.WithHooks(hooks.Funcs{LeaderChanged: func(_ context.Context, c hooks.LeaderChanged) {
			if time.Sleep(time.Second); closed {
				b.Errorf("it was told %+v", c)
			}
		}}))
		b.wraps(b.campaign(one.Elector).Resign(always))
		b.wraps(one.Close(always))
		closed = true
		time.Sleep(lease)
	})
}

func TestOnClosedIsTheLastEvent(t *testing.T) {
	bubble(t, func(b *bench) {
		expect := func(rec *hookstest.Recorder, closed ...string) {
			b.Helper()
			var got []string
			for _, e := range rec.Closed() {
				got = append(got, e.Election)
			}
			slices.Sort(got)
			if !slices.Equal(got, closed) {
				b.Errorf("closed are %q, want %q", got, closed)
			}
			for _, v := range rec.Violations() {
				b.Error(v)
			}
		}
		one := b.candidate("one")
		ctx, stop := context.WithCancel(always)
		time.AfterFunc(time.Second, stop)
		b.wraps(one.Run(ctx, nil), context.Canceled)
		expect(one.rec) // it may run again
		b.wraps(one.Close(always))
		b.wraps(one.Close(always))
		expect(one.rec, "orders")

		pool := b.Open()
		defer pool.Close()
		rec := hookstest.NewRecorder()
		session, err := elector.NewSession(pool, elector.WithHooks(rec))
		b.wraps(err)
		for _, election := range []string{"follows", "idle", "leads", "left"} {
			e, err := session.Elector(election)
			b.wraps(err)
			switch election {
			case "follows":
				other := b.candidate("other", elector.WithKey(e.Key()))
				defer other.Close(always)
				b.campaign(other.Elector)
				fallthrough
			case "leads":
				b.wraps(e.Start(always))
			case "left":
				b.wraps(e.Start(always))
				time.Sleep(time.Second)
				b.wraps(e.Close(always))
			}
		}
		expect(rec, "left")
		b.wraps(session.Close(always))
		expect(rec, "follows", "idle", "leads", "left")
		seen := map[string]bool{}
		for _, event := range slices.Backward(rec.Events()) {
			switch e := event.(type) {
			case hooks.Closed:
				seen[e.Election] = true
			case hooks.Campaign:
				if !seen[e.Election] {
					b.Errorf("%s is closed before %+v", e.Election, e)
				}
			case hooks.Demoted:
				if !seen[e.Election] {
					b.Errorf("%s is closed before %+v", e.Election, e)
				}
			}
		}
	})
}

func TestCloseEndsACampaign(t *testing.T) {
	for where, stand := range closings {
		t.Run(where, func(t *testing.T) {
			bubble(t, func(b *bench) {
				leader := b.run("leader")
				b.leads(leader)
				e, again, end := stand(b, b.candidate("one"))
				defer end()
				returned := styles["Run"](b, e, nil)
				time.Sleep(heartbeat)
				began := time.Now()
				b.wraps(e.Close(context.Background()))
				b.within("Close", 0, time.Since(began), time.Second)
				b.wraps(<-returned, elector.ErrStopped)
				isClosed(b, e)
				next, err := again()
				b.wraps(err)
				b.wraps(next.Close(context.Background()))
			})
		})
	}
}

// The context of Close may have ended.
func TestNothingBeginsOnASessionAfterTheCallOfClose(t *testing.T) {
	ended, end := context.WithCancel(always)
	end()
	for range 20 {
		bubble(t, func(b *bench) {
			pool := b.Open()
			defer pool.Close()
			session, err := elector.NewSession(pool)
			b.wraps(err)
			e, err := session.Elector("orders")
			b.wraps(err)
			_ = session.Close(ended)
			b.wraps(e.Start(always), elector.ErrStopped)
			b.wraps(session.Close(always))
		})
	}
}

// What a session was granted just before the call of Close goes back in few statements, however
// many elections that is.
func TestCloseGivesBackAtOnceWhatItsSessionWasJustGranted(t *testing.T) {
	bubble(t, func(b *bench) {
		granted := b.done("Tokens")
		one := b.share("one", elections)
		one.process.SetLatency(func() time.Duration { return 10 * time.Millisecond })
		<-granted
		asked := b.count()
		b.wraps(one.session.Close(always))
		if n := asked(); n["Unlock"]+n["UnlockMany"] != 1 {
			b.Errorf("asked %v, want one statement that unlocks", n)
		}
		time.Sleep(time.Second) // until the server has noticed that the session is gone
		if n := len(b.Locks()); n > 0 {
			b.Errorf("%d locks are left", n)
		}
	})
}

// A hook of the session's own, which concerns no single election, may take its time, too.
func TestCloseOfASessionWaitsForNoHookPastItsContext(t *testing.T) {
	bubble(t, func(b *bench) {
		process := b.NewProcess()
		process.SetDriver(electortest.PQ)
		pool := process.Open()
		defer pool.Close()
		reported, free := make(chan bool, 1), make(chan bool)
		session, err := elector.NewSession(pool, elector.WithHooks(hooks.Funcs{Error: func(_ context.Context, f hooks.Failure) {
			if f.Op == hooks.OpCall {
				reported <- true
				<-free
			}
		}}))
		b.wraps(err)
		e, err := session.Elector("orders")
		b.wraps(err)
		term := b.campaign(e)
		process.Cut(electortest.Both)
		<-reported // that the driver does not return
		process.Mend()
		b.wraps(term.Resign(always), elector.ErrNotLeader)
		ctx, cancel := context.WithTimeout(always, time.Second)
		defer cancel()
		began := time.Now()
		b.wraps(session.Close(ctx), context.DeadlineExceeded)
		b.within("Close returns", time.Second, time.Since(began), time.Second)
		close(free)
		b.wraps(session.Close(always))
	})
}

func TestCloseWaitsNoLongerThanItsContextAndGoesOn(t *testing.T) {
	for where, stand := range closings {
		t.Run(where, func(t *testing.T) {
			bubble(t, func(b *bench) {
				e, again, end := stand(b, b.candidate("one"))
				defer end()
				returned := styles["Run"](b, e, func(ctx context.Context) {
					<-ctx.Done()
					time.Sleep(lease / 2)
				})
				b.leads(&candidate{Elector: e})
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				b.wraps(e.Close(ctx), context.DeadlineExceeded)
				b.wraps(e.Close(ctx), context.DeadlineExceeded)
				if !b.holds(e) {
					b.Error("the lock was released while the work goes on")
				}
				if _, err := again(); where == "a shared session" {
					b.wraps(err, elector.ErrConfig)
				}
				b.wraps(<-returned, elector.ErrStopped)
				b.wraps(e.Close(context.Background()))
				for range 20 {
					b.wraps(e.Close(ctx)) // nothing to wait for
				}
				_, err := again()
				b.wraps(err)
			})
		})
	}
}

// Short-lived elections leave nothing in the session, among its goroutines, or on the server.
func TestElectorsThatAreClosedLeaveNothingOnTheirSession(t *testing.T) {
	server := electortest.NewServer()
	defer server.Close()
	pool := server.Open()
	defer pool.Close()
	session, err := elector.NewSession(pool)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	round := func(i int) {
		e, err := session.Elector(fmt.Sprint("tenant ", i), elector.WithHealth(func(context.Context) elector.HealthReport { return elector.HealthReport{Score: 1} }, elector.HealthPolicy{}))
		if err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 { // an election takes a while, because campaigns are batched
			term, elected, err := e.TryCampaign(t.Context())
			if !elected {
				t.Fatalf("not elected: %v", err)
			}
			context.AfterFunc(term.Context(), func() { _ = term.Resign(context.Background()) })
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const rounds = 10_000
	for i := range rounds / 10 {
		round(i)
	}
	goroutines, heap := runtime.NumGoroutine(), inUse()
	for i := range rounds {
		round(i)
	}
	if n := runtime.NumGoroutine(); n > goroutines+10 {
		t.Errorf("%d goroutines, and %d before", n, goroutines)
	}
	if grown := inUse() - heap; grown > 100*rounds {
		t.Errorf("the heap has grown by %d bytes, %d for each elector", grown, grown/rounds)
	}
	if n := len(server.Locks()); n > 1 { // the session's life lock
		t.Errorf("%d locks are held", n)
	}
}

// inUse returns the size of the reachable heap.
func inUse() int64 {
	var m runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Close comes between two attempts of its other elections, before their contexts have ended.
func TestACloseBetweenAttemptsIsNoFailureAndWaitsForTheWork(t *testing.T) {
	for range 5 {
		bubble(t, func(b *bench) {
			other := b.share("other", elections)
			b.until(other, elections)
			s := b.candidate("one")
			var err error
			var session *elector.Session
			ended, end := context.WithCancel(always)
			end()
			session, err = elector.NewSession(s.pool, elector.WithHooks(hooks.Funcs{
				Campaign: func(_ context.Context, c hooks.Campaign) {
					if c.Outcome == hooks.Busy {
						b.wraps(session.Close(ended), context.Canceled)
					}
				},
				Error: func(_ context.Context, f hooks.Failure) { b.Errorf("reported %+v", f) },
			}))
			b.wraps(err)
			led, err := session.Elector("led")
			b.wraps(err)
			term := b.campaign(led)
			var all []*elector.Elector
			for i := range elections {
				e, err := session.Elector(fmt.Sprintf("election-%d", i))
				b.wraps(err)
				b.wraps(e.Start(always))
				all = append(all, e)
			}
			for _, e := range all {
				<-e.Done()
				b.wraps(e.Err())
			}
			<-term.Context().Done()
			time.Sleep(drain / 2)
			if !b.holds(led) {
				b.Error("the lock is free before the work has returned")
			}
			b.wraps(term.Resign(always))
			b.wraps(session.Close(always))
		})
	}
}

// Run hears of that on another goroutine. An attempt may begin before it does.
func TestAnAttemptThatFindsItsSessionClosedEndsInACleanStop(t *testing.T) {
	bubble(t, func(b *bench) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		b.leads(b.run("leader"))
		pool := b.Open()
		defer pool.Close()
		s, err := elector.NewSession(pool, elector.WithCandidateID("shared"))
		b.wraps(err)
		gone, cancel := context.WithCancel(always)
		cancel()
		e, err := s.Elector("orders", elector.WithHooks(hooks.Funcs{Campaign: func(context.Context, hooks.Campaign) { _ = s.Close(gone) }}))
		b.wraps(err)
		b.wraps(e.Run(always, nil), elector.ErrStopped, context.Canceled)
		b.wraps(s.Close(always))
	})
}

func TestAHookThatHangsDelaysTheCloseOfNoOtherElection(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.Open()
		defer pool.Close()
		s, err := elector.NewSession(pool, elector.WithCandidateID("shared"))
		b.wraps(err)
		release := make(chan struct{})
		var closed atomic.Int32
		for i := range 20 {
			_, err := s.Elector(fmt.Sprint("town", i), elector.WithHooks(hooks.Funcs{Closed: func(context.Context, hooks.Closed) {
				if i%2 == 0 {
					<-release
				}
				closed.Add(1)
			}}))
			b.wraps(err)
		}
		ctx, stop := context.WithTimeout(always, time.Minute)
		defer stop()
		b.wraps(s.Close(ctx), context.DeadlineExceeded)
		if n := closed.Load(); n != 10 {
			b.Errorf("%d of 10 were closed", n)
		}
		close(release)
		b.wraps(s.Close(always))
	})
}

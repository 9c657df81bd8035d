package memory_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
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
	for name, scope := range scopes {
		scene(t, name, func(b *bench) {
			leader := b.run("leader", scope)
			b.leads(leader)
			other := b.run("other", scope)
			for range 4 {
				time.Sleep(4*heartbeat + heartbeat/2)
				asked := time.Now()
				next, err := ask(b, resignOf(other))
				b.wraps(err)
				if took := time.Since(asked); next.CandidateID != other.CandidateID() || took > heartbeat+100*time.Millisecond {
					b.Errorf("%q leads next, after %v", next.CandidateID, took)
				}
				leader, other = other, leader
			}
			b.ended(leader, hooks.Requested, hooks.Requested)
			b.ended(other, hooks.Requested, hooks.Requested)
		})
	}
}

// lendsNext has the pooler of a process lend an idle backend next: the one that is given back last.
func (b *bench) lendsNext(process *electortest.Process, backend int32) {
	b.Helper()
	pool := process.Open()
	defer pool.Close()
	var at atomic.Int32
	b.Trace(func(e electortest.Event) {
		if e.What == "PingTransaction" {
			at.Store(e.PID)
		}
	})
	defer b.Trace(nil)
	var held []*sql.Tx
	for at.Load() != backend {
		synctest.Wait()
		tx, err := pool.BeginTx(always, nil)
		b.check(err)
		_, err = tx.ExecContext(always, db.PingTransaction)
		b.wraps(err)
		held = append(held, tx)
	}
	for _, tx := range held {
		b.wraps(tx.Rollback())
		synctest.Wait()
	}
}

// A pooler may have the next term on the backend of the one that has answered the request.
func TestARequestThatStandsIsAnsweredOnceByTheTermsOfABackend(t *testing.T) {
	bubble(t, func(b *bench) {
		process := b.NewPooler(3).NewProcess()
		leader := b.candidateOn(process, process.Open(), "leader", inside)
		first := b.campaign(leader.Elector)
		backend := b.pid(leader)
		asks := b.candidate("asker")
		ctx, stop := context.WithTimeout(always, 30*time.Second)
		defer stop()
		asked := make(chan error, 1)
		go func() {
			_, err := elector.RequestResign(ctx, asks.pool, "orders")
			asked <- err
		}()
		time.Sleep(time.Millisecond)
		asks.process.Cut(electortest.Both) // and so it does not withdraw the request
		<-first.Context().Done()
		synctest.Wait() // no call is under way, with which its backend would end
		b.wraps(first.Resign(always))
		b.lendsNext(process, backend)
		second := b.campaign(leader.Elector)
		if again := b.pid(leader); again != backend {
			b.Fatalf("the second term is on backend %d, the first was on %d", again, backend)
		}
		time.Sleep(3 * heartbeat)
		b.wraps(context.Cause(second.Context()))
		b.wraps(second.Resign(always))
		asks.process.Mend()
		b.wraps(<-asked)
	})
}

// Whoever waits for the end of the leader's transaction, as CREATE INDEX CONCURRENTLY does, has it
// step down.
func TestALeaderInATransactionStepsDownForWhoeverWaitsForItsEnd(t *testing.T) {
	bubble(t, func(b *bench) {
		var waits atomic.Bool
		var mu sync.Mutex
		asking, most := 0, 0
		ask := func(more int) int {
			mu.Lock()
			defer mu.Unlock()
			asking += more
			most = max(most, asking)
			return most
		}
		one := b.wired(func(m message, send func() error) error {
			if m.name != "Requests" {
				return send()
			}
			ask(1)
			if *m.text = "who waits"; !waits.Load() {
				m.delay(heartbeat + heartbeat/2)
			}
			ask(-1)
			return send()
		}, "one", inside)
		b.Handle(func(s electortest.Statement) (answer electortest.Answer, err error) {
			answer.Columns = make([]string, 6)
			if s.SQL == "who waits" && waits.Load() {
				answer.Rows = [][]any{{"3/7", int64(0), int64(77), "psql", "admin", ""}}
			}
			return answer, nil
		})
		term := b.campaign(one.Elector)
		time.Sleep(5 * lease)
		if b.wraps(context.Cause(term.Context())); ask(0) != 1 {
			b.Errorf("it asks on %d connections at a time", ask(0))
		}
		waits.Store(true)
		time.Sleep(4 * heartbeat)
		b.wraps(context.Cause(term.Context()), elector.ErrResigned)
		b.wraps(term.Resign(always))
		b.ended(one, hooks.Requested)
		b.failed(one)
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
		other := b.candidate("other")
		_, err := db.New(other.pool).ApplySettings(always, db.ApplySettingsParams{Settings: `[{"name":"application_name","value":"report"}]`})
		b.wraps(err)
		next, err := ask(b, resignOf(other))
		b.wraps(err)
		cause := context.Cause(term.Context())
		b.wraps(cause, elector.ErrResigned)
		if text := cause.Error(); next != (elector.Leader{}) || !strings.Contains(text, `requested by role "postgres" (report), backend `) {
			b.Errorf("%q leads next, and the cause is %s", next.CandidateID, text)
		}
		if n := other.pool.Stats().OpenConnections; n != 2 {
			b.Errorf("%d connections are open, want that of the request, and one that asked who leads", n)
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
		if refused := leader.rec.Failures()[0].Err; !strings.Contains(refused.Error(), `requested by role "postgres"`) {
			b.Errorf("it does not say who asked: %v", refused)
		}
		b.wraps(term.Resign(context.Background()))
	})
}

// Its link dies when it is withdrawn. With pgx the context of a transaction is also that of its
// rollback.
func TestARequestThatIsWithdrawnOnADeadLinkKeepsNoConnection(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		var other *candidate
		var begun time.Time // the transaction of the request
		other = b.wired(func(m message, send func() error) error {
			switch {
			case m.name == "Ring":
				begun = m.begun
			case m.name == "ROLLBACK" && m.begun.Equal(begun):
				other.process.Cut(electortest.Both)
			}
			return send()
		}, "other")
		defer other.process.Mend()
		other.process.SetLatency(func() time.Duration { return time.Millisecond }) // no two begin at once
		_, err := elector.RequestResign(always, other.pool, other.Election())
		b.wraps(err)
		b.ended(leader, hooks.Requested)
		if n := other.pool.Stats().InUse; n != 0 {
			b.Errorf("%d connections are in use", n)
		}
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

// In transaction scope the next term may be on the same backend, whose bell still rings.
func TestARequestThatStandsIsAnsweredOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.NewPooler(4).Open()
		b.Cleanup(func() { _ = pool.Close() })
		leader, asker := b.candidate("leader"), b.candidate("asker")
		var err error
		leader.Elector, err = elector.New(pool, "orders", elector.WithHooks(leader.rec))
		b.wraps(err)
		b.wraps(leader.Start(always))
		b.leads(leader)
		b.Trace(func(event electortest.Event) {
			if event.What == "Ring" {
				asker.process.Freeze() // its request stands
			}
		})
		asked := make(chan error)
		go func() { _, err := ask(b, resignOf(asker)); asked <- err }()
		time.Sleep(9 * time.Second)
		b.ended(leader, hooks.Requested)
		if n := len(leader.rec.Elected()); n != 2 {
			b.Errorf("elected %d times", n)
		}
		b.Trace(nil)
		asker.process.Thaw()
		<-asked
		b.wraps(leader.Stop(always))
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

func TestARequestThatCannotBeMadeSaysWhy(t *testing.T) {
	bubble(t, func(b *bench) {
		leader, asker := b.candidate("leader"), b.candidate("asker")
		term := b.campaign(leader.Elector)
		for _, request := range []func(pool *sql.DB, election string) error{
			func(pool *sql.DB, election string) error {
				_, err := elector.RequestResign(always, pool, election)
				return err
			},
			func(pool *sql.DB, election string) error {
				_, err := elector.RequestTransfer(always, pool, election, "two")
				return err
			},
		} {
			b.wraps(request(nil, "orders"), elector.ErrConfig)
			b.wraps(request(asker.pool, ""), elector.ErrConfig)
			asker.pool.SetMaxOpenConns(1)
			b.wraps(request(asker.pool, "orders"), elector.ErrConfig)
			asker.pool.SetMaxOpenConns(0)
		}
		if !term.Valid() {
			b.Error("the leader has resigned")
		}
		b.wraps(term.Resign(always))
	})
}

// A watchedContext counts the contexts that are derived from it and not cancelled.
type watchedContext struct {
	context.Context
	derived atomic.Int32
}

// Value hides the context inside from package context, which calls AfterFunc instead.
func (c *watchedContext) Value(any) any { return nil }

func (c *watchedContext) AfterFunc(func()) (stop func() bool) {
	c.derived.Add(1)
	return sync.OnceValue(func() bool { c.derived.Add(-1); return true })
}

// It may be made again and again, with a context that lives as long as the process.
func TestARequestThatFailsLeavesNothingOnItsContext(t *testing.T) {
	bubble(t, func(b *bench) {
		term := b.campaign(b.candidate("leader").Elector)
		asker := b.wired(fail("ApplySettings", 2, 2, serverError("53200", "out of shared memory")), "asker") // the first one bounds Holder
		ctx := &watchedContext{Context: b.Context()}
		_, err := elector.RequestResign(ctx, asker.pool, asker.Election())
		b.wraps(err, elector.ErrLockTableFull)
		if n := ctx.derived.Load(); n != 0 {
			b.Errorf("%d contexts are left", n)
		}
		b.wraps(term.Resign(always))
	})
}

// The one who asks loses its connections, or its process, at any moment.
func TestARequestSucceedsOnlyIfTheLeaderHasLetGo(t *testing.T) {
	for name, fault := range map[string]func(b *bench, asker *candidate, backends []int32){
		"terminated": func(b *bench, _ *candidate, backends []int32) {
			for _, pid := range backends {
				b.Terminate(pid)
			}
		},
		"killed": func(_ *bench, asker *candidate, _ []int32) { asker.process.Kill() },
	} {
		for most := range 30 {
			for _, successor := range []string{"", "two"} {
				scene(t, fmt.Sprint(name, " ", most, successor), func(b *bench) {
					leader := b.run("leader")
					b.leads(leader)
					b.run("two")
					time.Sleep(heartbeat / 2)
					asker := b.candidate("asker")
					var mu sync.Mutex
					var backends []int32
					b.Trace(func(event electortest.Event) {
						if event.What == "Holder" || event.What == "Ring" {
							mu.Lock()
							defer mu.Unlock()
							backends = append(backends, event.PID)
						}
					})
					var sent atomic.Int32
					asker.process.SetLatency(func() time.Duration {
						if sent.Add(1) == int32(most) {
							mu.Lock()
							defer mu.Unlock()
							go fault(b, asker, slices.Clone(backends))
						}
						return time.Millisecond
					})
					_, err := ask(b, func(ctx context.Context) (elector.Leader, error) {
						if successor != "" {
							return elector.RequestTransfer(ctx, asker.pool, "orders", successor)
						}
						return elector.RequestResign(ctx, asker.pool, "orders")
					})
					b.Trace(nil)
					if letGo := len(leader.rec.Demoted()) > 0; err == nil && !letGo || errors.Is(err, elector.ErrNoSuccessor) || errors.Is(err, elector.ErrNoLeader) {
						b.Errorf("the leader has let go: %t; got %v", letGo, err)
					}
				})
			}
		}
	}
}

// Its context may end at any moment.
func TestARequestThatIsNotAnsweredInTimeSaysSo(t *testing.T) {
	for patience := 500 * time.Millisecond; patience < 800*time.Millisecond; patience += 10 * time.Millisecond {
		for _, successor := range []string{"", "two"} {
			bubble(t, func(b *bench) {
				term := b.campaign(b.candidate("leader", elector.WithRequests(false)).Elector)
				asker := b.candidate("asker")
				asker.process.SetLatency(func() time.Duration { return 20 * time.Millisecond })
				ctx, stop := context.WithTimeout(always, patience)
				defer stop()
				var err error
				if successor == "" {
					_, err = elector.RequestResign(ctx, asker.pool, "orders")
				} else {
					_, err = elector.RequestTransfer(ctx, asker.pool, "orders", successor)
				}
				b.wraps(err, elector.ErrUnanswered, context.DeadlineExceeded)
				if waits := strings.Contains(fmt.Sprint(err), "it may wait for"); waits != (successor != "") {
					b.Errorf("got %v", err)
				}
				time.Sleep(time.Second) // what tells the leader may be on its way
				b.wraps(term.Resign(always))
			})
		}
	}
}

func TestARequestWaitsForTheNextLeaderForFiveSeconds(t *testing.T) {
	for latency := range 5 { // so that the time is over during a question, or between two
		for _, dies := range []bool{false, true} {
			{
				bubble(t, func(b *bench) {
					term := b.campaign(b.candidate("leader").Elector)
					asker := b.candidate("asker")
					asker.process.SetLatency(func() time.Duration { return time.Duration(latency) * 50 * time.Millisecond })
					var free time.Time
					context.AfterFunc(term.Context(), func() {
						_ = term.Resign(always)
						if free = time.Now(); dies {
							time.AfterFunc(2*time.Second, asker.process.Kill)
						}
					})
					next, err := ask(b, func(ctx context.Context) (elector.Leader, error) {
						defer func() {
							time.Sleep(time.Second) // the last question may be on its way
							if n := asker.pool.Stats().InUse; n != 0 {
								b.Errorf("%d connections are in use", n)
							}
						}()
						return elector.RequestResign(ctx, asker.pool, "orders")
					})
					switch {
					case dies:
						b.wraps(err, electortest.ErrKilled)
						return
					default:
						b.wraps(err)
					}
					if next != (elector.Leader{}) {
						b.Errorf("%+v leads next", next)
					}
					synctest.Wait()
					b.within("it returns", 5*time.Second, time.Since(free), 9*time.Second)
				})
			}
		}
	}
}

// Of many candidates the one that is named leads next.
func TestALeaderTransfersOnRequest(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		b.run("deputy")
		time.Sleep(heartbeat)
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
		if text := leader.rec.Demoted()[0].Err.Error(); !strings.Contains(text, `requested in favor of "wanted" by role`) {
			b.Errorf("the term has ended: %s", text)
		}
		term, _ := wanted.Term()
		next, err = ask(b, transfer("nobody"))
		if b.wraps(err, elector.ErrNoSuccessor); next.CandidateID != "wanted" || !term.Valid() {
			b.Errorf("%q leads next; the term goes on: %t", next.CandidateID, term.Valid())
		}
		b.failed(wanted, hooks.OpRequest)
		b.wraps(wanted.rec.Failures()[0].Err, elector.ErrNoSuccessor)
	})
}

// Two requests at once, for two elections of one session, end these two and no other.
// Its work takes longer to return than one wait of the successor.
func TestALeaderThatTransfersOnRequestOffersItsLockUntilItsWorkHasReturned(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.candidate("leader")
		done := make(chan error)
		go func() {
			done <- leader.Run(always, func(ctx context.Context, _ *elector.Term) error {
				<-ctx.Done()
				time.Sleep(validity)
				b.wraps(ctx.Err(), context.Canceled)
				return nil
			})
		}()
		b.leads(leader)
		b.run("deputy")
		time.Sleep(heartbeat)
		wanted := b.run("wanted")
		next, err := ask(b, func(ctx context.Context) (elector.Leader, error) {
			return elector.RequestTransfer(ctx, wanted.pool, "orders", "wanted")
		})
		if b.wraps(err); next.CandidateID != "wanted" {
			b.Errorf("%q leads next", next.CandidateID)
		}
		b.wraps(leader.Close(always))
		b.wraps(<-done, elector.ErrStopped)
	})
}

func TestARequestedTransferToNobodyLeavesNothingOnASharedSession(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.candidate("leader")
		session, err := elector.NewSession(leader.pool)
		b.wraps(err)
		var terms []*elector.Term
		for _, election := range []string{"orders", "reports"} {
			e, err := session.Elector(election)
			b.wraps(err)
			term := b.campaign(e)
			context.AfterFunc(term.Context(), func() { _ = term.Resign(always) })
			terms = append(terms, term)
		}
		_, err = ask(b, func(ctx context.Context) (elector.Leader, error) {
			return elector.RequestTransfer(ctx, b.candidate("asker").pool, "orders", "nobody")
		})
		b.wraps(err, elector.ErrNoSuccessor)
		synctest.Wait()
		time.Sleep(2 * heartbeat)
		if n := len(b.Locks()); !terms[0].Valid() || !terms[1].Valid() || n != 3 { // of the elections, and the life lock
			b.Errorf("valid: %t and %t; locks: %+v", terms[0].Valid(), terms[1].Valid(), b.Locks())
		}
		b.wraps(session.Close(always))
	})
}

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

// A herald is a notifier that delivers at once what the server is asked to notify.
type herald struct {
	mu    sync.Mutex
	wakes []func(payload string)
}

func (w *herald) Subscribe(wake func(payload string)) (unsubscribe func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakes = append(w.wakes, wake)
	return func() {}
}

func (w *herald) notify(payload string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wake := range w.wakes {
		wake(payload)
	}
}

func (b *bench) herald() *herald {
	w := &herald{}
	b.Trace(func(event electortest.Event) {
		if event.Done && event.What == "Notify" {
			var payloads []string
			b.check(json.Unmarshal([]byte(event.Args[1].(string)), &payloads))
			for _, payload := range payloads {
				w.notify(payload)
			}
		}
	})
	return w
}

// Other notifications cost a leader no heartbeat.
func TestALeaderWithANotifierHearsARequestAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		notifier := b.herald()
		leader := b.run("leader", elector.WithNotifier(notifier))
		b.leads(leader)
		beats := len(leader.rec.Heartbeats())
		for range 100 {
			time.Sleep(heartbeat / 10)
			for _, what := range []string{"free", "led", "successor"} {
				notifier.notify(fmt.Sprint(what, " ", leader.Key()))
			}
		}
		if n := len(leader.rec.Heartbeats()) - beats; n > 10 {
			b.Errorf("%d heartbeats in 10 intervals", n)
		}
		time.Sleep(heartbeat / 4)
		asked := time.Now()
		_, err := ask(b, resignOf(b.candidate("asker")))
		b.wraps(err)
		b.ended(leader, hooks.Requested)
		b.within("the end of the term", 0, leader.rec.Demoted()[0].At.Sub(asked), 50*time.Millisecond)
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
			all := map[string]*candidate{"one": b.run("one", elector.WithTakeover(elector.Wait)), "two": b.run("two", elector.WithTakeover(elector.Wait))}
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
				err = term.TransferTo(ctx, "absent")
				b.wraps(err, elector.ErrNoSuccessor, context.DeadlineExceeded)
				if strings.Contains(err.Error(), "may get the lock") {
					b.Errorf("got %v", err)
				}
				b.within("it returns", time.Second, time.Since(began), time.Second)
				b.wraps(term.Verify(always))
				b.wraps(term.Resign(always))
				b.leads(other)
				b.wraps(<-ran)
			})
		})
	}
}

func TestATransferWhoseContextEndsWhileTheWorkReturnsSaysThatTheSuccessorMayLead(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.candidate("leader")
		term := b.campaign(leader.Elector)
		ran := make(chan error)
		go func() {
			_, err := leader.RunIfLeader(always, func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(heartbeat)
				return nil
			})
			ran <- err
		}()
		successor := b.run("successor")
		time.Sleep(time.Second)
		ctx, stop := context.WithTimeout(always, heartbeat)
		defer stop()
		err := term.TransferTo(ctx, "successor")
		b.wraps(err, elector.ErrNoSuccessor, context.DeadlineExceeded)
		if !strings.Contains(fmt.Sprint(err), "it was the first in the queue, and may get the lock") {
			b.Errorf("got %v", err)
		}
		b.wraps(<-ran)
		b.within("the successor leads", 0, b.leads(successor), time.Second)
	})
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

// Other programs have connections without a name.
func TestALeaderWithoutANameIsAskedAllTheSame(t *testing.T) {
	bubble(t, func(b *bench) {
		strangers, asking := b.Open(), b.Open()
		defer strangers.Close()
		defer asking.Close()
		conn, err := strangers.Conn(always)
		b.wraps(err)
		defer conn.Close()
		row, err := db.New(conn).TryAsDeputy(always, elector.KeyFromName("orders"))
		if b.wraps(err); !row.Granted {
			b.Fatal("the lock is not free")
		}
		ctx, stop := context.WithTimeout(always, time.Minute)
		defer stop()
		_, err = elector.RequestResign(ctx, asking, "orders")
		b.wraps(err, elector.ErrUnanswered)
	})
}

// A faulty notifier fails in one of its calls.
type faulty struct {
	fail               func()
	subscribes, leaves int
	mu                 sync.Mutex
}

func (f *faulty) Subscribe(func(string)) (unsubscribe func()) {
	f.call(&f.subscribes)
	return func() { f.call(&f.leaves) }
}

func (f *faulty) call(left *int) {
	f.mu.Lock()
	*left--
	fails := *left == 0
	f.mu.Unlock()
	if fails {
		f.fail()
	}
}

func TestANotifierThatPanicsOrEndsItsGoroutineCostsNoElection(t *testing.T) {
	for how, fail := range map[string]func(){"panics": func() { panic("oops") }, "ends its goroutine": runtime.Goexit} {
		for where, n := range map[string]*faulty{
			"the campaign's Subscribe": {subscribes: 1}, "the term's Subscribe": {subscribes: 2}, "the campaign's unsubscribe": {leaves: 1},
		} {
			scene(t, where+" "+how, func(b *bench) {
				n := &faulty{fail: fail, subscribes: n.subscribes, leaves: n.leaves}
				one := b.candidate("one", elector.WithNotifier(n))
				term := b.campaign(one.Elector)
				b.wraps(term.Resign(always))
				b.wraps(one.Close(always))
				if f := one.rec.Failures(); how == "panics" && (len(f) != 1 || f[0].Op != hooks.OpHook || !strings.Contains(f[0].Err.Error(), "the notifier panicked: oops")) {
					b.Errorf("failures: %+v", f)
				}
				b.leads(b.run("two"))
			})
		}
	}
}

package memory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/seat"
)

// onEach runs a test with a leader of each kind, whose caller campaigns.
func onEach(t *testing.T, test func(b *bench, leader *candidate, term *elector.Term)) {
	for name, opts := range map[string][]elector.Option{"in a session": nil, "in a transaction": {inside}} {
		scene(t, name, func(b *bench) {
			leader := b.candidate("leader", opts...)
			term := b.campaign(leader.Elector)
			test(b, leader, term)
			b.wraps(term.Resign(always))
			b.leftNothing(leader)
		})
	}
	scene(t, "on a shared session", func(b *bench) {
		leader := b.candidate("leader")
		shared, e := b.shares(leader, "orders")
		term := b.campaign(e)
		test(b, leader, term)
		b.wraps(term.Resign(always))
		b.wraps(shared.Close(always))
		b.leftNothing(leader)
	})
}

// shares makes an elector of a session on the pool and with the hooks of the candidate.
func (b *bench) shares(c *candidate, election string, opts ...elector.SessionOption) (*elector.Session, *elector.Elector) {
	b.Helper()
	shared, err := elector.NewSession(c.pool, append(opts, elector.WithCandidateID(c.CandidateID()))...)
	b.check(err)
	e, err := shared.Elector(election, elector.WithHooks(c.rec))
	b.check(err)
	return shared, e
}

// offered reports whether the lock of an offer is held.
func (b *bench) offered(to string) bool {
	key := seat.OfferKey(to, elector.KeyFromName("orders"))
	for _, l := range b.Locks() {
		if l.Guard && l.Key == key {
			return true
		}
	}
	return false
}

func (b *bench) eventually(what string, done func() bool) {
	b.Helper()
	for began := time.Now(); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			b.Fatalf("not in time: %s", what)
		}
	}
}

// The work was not told to stop.
func TestAWithdrawnTransferEndsNothing(t *testing.T) {
	onEach(t, func(b *bench, leader *candidate, term *elector.Term) {
		asker := b.candidate("asker")
		for range 3 {
			ctx, withdraw := context.WithCancel(always)
			returned := make(chan error)
			go func() {
				_, err := elector.RequestTransfer(ctx, asker.pool, "orders", "nobody")
				returned <- err
			}()
			b.eventually("an offer", func() bool { return b.offered("nobody") })
			rows, err := db.New(asker.pool).AdvisoryLocks(always, db.Keys())
			if b.wraps(err); len(rows) != 1 {
				b.Errorf("%d elections are shown: %+v", len(rows), rows)
			}
			withdraw()
			b.wraps(<-returned, elector.ErrUnanswered, context.Canceled)
			b.eventually("no offer", func() bool { return !b.offered("nobody") })
			time.Sleep(2 * lease)
			b.wraps(term.Verify(always))
		}
		b.failed(leader)
	})
}

// The next request comes from the same backend.
func TestATransferToACandidateThatDoesNotComeLeavesTheLeaderInOffice(t *testing.T) {
	onEach(t, func(b *bench, leader *candidate, term *elector.Term) {
		asker := b.candidate("asker")
		for range 3 {
			began := time.Now()
			who, err := ask(b, func(ctx context.Context) (elector.Leader, error) {
				return elector.RequestTransfer(ctx, asker.pool, "orders", "nobody")
			})
			b.within("the answer", lease, time.Since(began), lease+3*heartbeat)
			if b.wraps(err, elector.ErrNoSuccessor); who.CandidateID != "leader" || !term.Valid() {
				b.Errorf("%+v leads; the term goes on: %t", who, term.Valid())
			}
		}
		b.failed(leader, hooks.OpRequest, hooks.OpRequest, hooks.OpRequest)
		context.AfterFunc(term.Context(), func() { _ = term.Resign(always) })
		_, err := ask(b, func(ctx context.Context) (elector.Leader, error) {
			return elector.RequestResign(ctx, asker.pool, "orders")
		})
		if b.wraps(err); term.Valid() {
			b.Error("the term goes on")
		}
		synctest.Wait()
		time.Sleep(2 * heartbeat)
	})
}

// Terms of one session look alike.
func TestARequestIsAnsweredThoughTheSharedSessionLeadsAgainAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.candidate("leader")
		shared, e := b.shares(leader, "orders", elector.WithRetryInterval(10*time.Millisecond))
		ctx, stop := context.WithCancel(always)
		var loop sync.WaitGroup
		loop.Go(func() {
			for ctx.Err() == nil {
				if term, err := e.Campaign(ctx); err == nil {
					<-term.Context().Done()
					b.wraps(term.Resign(always))
				}
			}
		})
		asker := b.candidate("asker")
		b.eventually("a leader", e.IsLeader)
		for n := 1; n <= 3; n++ {
			began := time.Now()
			next, err := ask(b, func(ctx context.Context) (elector.Leader, error) {
				return elector.RequestResign(ctx, asker.pool, "orders")
			})
			if b.wraps(err); next.CandidateID != "leader" || len(leader.rec.Demoted()) != n {
				b.Errorf("%+v leads after %d terms", next, len(leader.rec.Demoted()))
			}
			b.within("the answer", 0, time.Since(began), heartbeat+time.Second)
		}
		time.Sleep(2 * heartbeat)
		if n := len(b.Locks()); n != 2 { // of the election, and the life lock
			b.Errorf("locks: %+v", b.Locks())
		}
		stop()
		b.wraps(shared.Close(always))
		loop.Wait()
	})
}

// One transfer is prepared at a time; the others wait their turn.
func TestManyRequestsToTransferTakeFewConnections(t *testing.T) {
	onEach(t, func(b *bench, leader *candidate, term *elector.Term) {
		asker := b.candidate("asker")
		ctx, cancel := context.WithTimeout(always, lease/2)
		defer cancel()
		var asks sync.WaitGroup
		for i := range 100 {
			asks.Go(func() {
				_, err := elector.RequestTransfer(ctx, asker.pool, "orders", fmt.Sprint("nobody-", i))
				b.wraps(err, elector.ErrUnanswered)
			})
		}
		most := 0
		for ctx.Err() == nil {
			most = max(most, leader.pool.Stats().InUse)
			time.Sleep(time.Millisecond)
		}
		if asks.Wait(); most > 3 {
			b.Errorf("%d connections were in use", most)
		}
		time.Sleep(2 * heartbeat)
		b.wraps(term.Verify(always))
	})
}

// They share locks that look like offers. The leader does not make them.
func TestOffersOfAStrangerTakeNoConnections(t *testing.T) {
	bubble(t, func(b *bench) {
		leader, follower := b.candidate("leader"), b.candidate("follower")
		leading, err := elector.NewSession(leader.pool)
		b.check(err)
		following, err := elector.NewSession(follower.pool, elector.WithCandidateID("follower"))
		b.check(err)
		strangers := b.Open()
		defer strangers.Close()
		stranger, err := strangers.Conn(always)
		b.check(err)
		defer stranger.Close()
		var followers []*elector.Elector
		for i := range 100 {
			name := fmt.Sprint("orders-", i)
			e, err := leading.Elector(name)
			b.check(err)
			b.campaign(e)
			high, low := lockkey.Halves(seat.OfferKey("follower", e.Key()))
			_, err = db.New(stranger).TryPair(always, db.TryPairParams{High: high, Low: low})
			b.check(err)
			e, err = following.Elector(name)
			b.check(err)
			b.check(e.Start(always))
			followers = append(followers, e)
		}
		most := 0
		for began := time.Now(); time.Since(began) < lease; time.Sleep(time.Millisecond) {
			most = max(most, follower.pool.Stats().InUse)
		}
		if most > 4 { // for a check of the server
			b.Errorf("%d connections were in use", most)
		}
		b.wraps(leading.Close(always)) // although the offers stand
		b.eventually("all are led", func() bool {
			for _, e := range followers {
				if !e.IsLeader() {
					return false
				}
			}
			return true
		})
		b.wraps(following.Close(always))
	})
}

// A leader whose session is lost while it prepares a transfer has lost it, whoever learns of it
// first.
func TestASessionThatIsLostDuringATransferIsReportedAsLost(t *testing.T) {
	for name, transfer := range map[string]func(*bench, *candidate, *candidate) error{
		"of its own": func(b *bench, leader, _ *candidate) error {
			term, _ := leader.Term()
			return term.TransferTo(always, "nobody")
		},
		"that was asked for": func(b *bench, _, asker *candidate) error {
			_, err := elector.RequestTransfer(always, asker.pool, "orders", "nobody")
			return err
		},
	} {
		for scope, opt := range scopes {
			for after := range 20 {
				scene(t, fmt.Sprint(name, ", ", scope, " ", after), func(b *bench) {
					leader, asker := b.run("leader", opt), b.candidate("asker")
					b.leads(leader)
					pid := b.pid(leader)
					leader.process.SetLatency(func() time.Duration { return 3 * time.Millisecond })
					returned := make(chan error)
					go func() { returned <- transfer(b, leader, asker) }()
					b.eventually("an offer", func() bool { return b.offered("nobody") })
					time.Sleep(time.Duration(after) * time.Millisecond)
					b.Terminate(pid)
					ended := time.Now()
					if err := <-returned; name == "of its own" {
						b.wraps(err, elector.ErrNoSuccessor, elector.ErrSessionLost)
						b.within("it returns", 0, time.Since(ended), 100*time.Millisecond)
					}
					b.ended(leader, hooks.SessionLost)
					b.failed(leader, hooks.OpHeartbeat)
				})
			}
		}
	}
}

// It would wait for itself.
func TestARequestFromTheWorkOfItsLeaderIsAnErrorAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		leader, other := b.candidate("leader"), b.candidate("other")
		reports, err := elector.New(other.pool, "reports", elector.WithCandidateID("other"))
		b.check(err)
		another := b.campaign(reports)
		context.AfterFunc(another.Context(), func() { _ = another.Resign(always) })
		refuses := func(ctx context.Context) {
			began := time.Now()
			_, err := elector.RequestResign(ctx, leader.pool, "orders")
			b.wraps(err, elector.ErrConfig)
			_, err = elector.RequestTransfer(ctx, leader.pool, "orders", "other")
			b.wraps(err, elector.ErrConfig)
			b.within("it returns", 0, time.Since(began), 0)
		}
		b.wraps(leader.Run(always, func(ctx context.Context, term *elector.Term) error {
			refuses(ctx)
			below, cancel := context.WithCancel(ctx)
			defer cancel()
			refuses(below)
			_, err := leader.RunIfLeader(always, func(ctx context.Context) error {
				refuses(ctx)
				return nil
			})
			b.wraps(err)
			_, err = elector.RequestResign(ctx, leader.pool, "reports")
			if b.wraps(err); another.Valid() {
				b.Error("the other leader has not let go")
			}
			return nil
		}))
	})
}

// Its deadline is the drain's report, which says what may be the cause.
func TestARequestWithoutADeadlineThatWaitsForItselfIsReported(t *testing.T) {
	bubble(t, func(b *bench) {
		rec := hookstest.NewRecorder()
		leader := b.candidate("leader", elector.WithHooks(rec))
		ctx, cancel := context.WithTimeout(always, time.Minute)
		defer cancel()
		done := make(chan error)
		go func() {
			done <- leader.Run(ctx, func(context.Context, *elector.Term) error {
				_, err := elector.RequestResign(ctx, leader.pool, "orders")
				if b.wraps(err, elector.ErrUnanswered); !strings.Contains(fmt.Sprint(err), "does it wait for this very call?") {
					b.Errorf("got %v", err)
				}
				return nil
			})
		}()
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("got %v", err)
		}
		if f := rec.Failures(); len(f) != 1 || f[0].Op != hooks.OpWork || !strings.Contains(f[0].Err.Error(), "RequestResign") {
			b.Errorf("got %+v", f)
		}
	})
}

// Anybody can make an offer. One that is not the leader's costs the deputy nothing.
func TestTheDeputyKeepsItsSeatWhileAStrangerOffersTheLock(t *testing.T) {
	onEach(t, func(b *bench, _ *candidate, _ *elector.Term) {
		deputy := b.candidate("deputy")
		b.check(deputy.Start(always))
		time.Sleep(2 * time.Second)
		sits := func() (pid int32) {
			all, err := deputy.Candidates(always)
			b.check(err)
			for _, c := range all {
				if c.Deputy && c.CandidateID == "deputy" {
					pid = c.PID
				}
			}
			return pid
		}
		before := sits()
		strangers := b.Open()
		defer strangers.Close()
		stranger, err := strangers.Conn(always)
		b.check(err)
		defer stranger.Close()
		high, low := lockkey.Halves(seat.OfferKey("deputy", deputy.Key()))
		_, err = db.New(stranger).TryPair(always, db.TryPairParams{High: high, Low: low})
		b.check(err)
		time.Sleep(4 * heartbeat)
		if after := sits(); before == 0 || after != before {
			b.Errorf("the seat was held by backend %d, and then by %d", before, after)
		}
		b.check(deputy.Stop(always))
	})
}

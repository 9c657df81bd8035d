package deputy_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/deputy"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/seat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	key   = 7
	retry = time.Second
)

// A party is the acquirers of one lock, on a server in memory.
type party struct {
	*testing.T
	*electortest.Server
	pools []*sql.DB
}

func meeting(t *testing.T, test func(p *party)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &party{T: t, Server: electortest.NewServer()}
		defer p.Close()
		defer func() {
			for _, pool := range p.pools {
				_ = pool.Close()
			}
		}()
		test(p)
	})
}

var sits = deputy.Config{Sit: true, Interval: 100 * time.Millisecond}

// A follower is one candidate.
type follower struct {
	*deputy.Acquirer
	*election.Election
}

// follower makes a candidate, in session scope and without other parts.
func (p *party) follower(id string, c deputy.Config) follower {
	pool := p.Open()
	p.pools = append(p.pools, pool)
	c.CandidateID, c.Key, c.Inside = id, key, func() bool { return false }
	d := deputy.New(c)
	from := election.NewSource(pool, election.SessionConfig{CandidateID: id, Statements: d.Statements, Parts: []election.Part{d},
		Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second}})
	return follower{d, election.New(from, election.Config{Key: key, Look: func() bool { return true }, Retry: func() time.Duration { return retry },
		Backoff: backoff.Backoff{Min: retry, Max: retry}, Acquirer: d, Observer: quiet{}})}
}

// try makes one attempt, as a campaign does.
func (f follower) try() election.Attempt { return f.Acquire(context.Background(), f.Election) }

// leads fails the test unless the candidate is granted the lock.
func (p *party) leads(f follower) *election.Lock {
	p.Helper()
	got := f.try()
	if got.Outcome != election.Granted || got.Kept != nil || got.Err != nil {
		p.Fatalf("got %+v", got)
	}
	return got.Lock
}

// An ear tells a test of the attempts of a campaign.
type ear struct {
	quiet
	heard chan election.Attempt
}

func (e ear) Attempted(a election.Attempt) { e.heard <- a }

type quiet struct{}

func (quiet) Attempted(election.Attempt)    {}
func (quiet) Elected(*election.Term)        {}
func (quiet) Ended(*election.Term, error)   {}
func (quiet) Demoted(*election.Term, error) {}
func (quiet) Released(*election.Term)       {}
func (quiet) Failed(string, error)          {}

// seats counts the seats that are held.
func (p *party) seats() (n int) {
	for _, l := range p.Locks() {
		if l.Guard && (l.Key == seat.Key(key) || l.Key == seat.Key(key)^1) {
			n++
		}
	}
	return n
}

// The lease of the deputy's session runs out while its process stands still. The next attempt takes the seat again.
func TestADeputyThatStoodStillIsTheDeputyAgainAtOnce(t *testing.T) {
	meeting(t, func(p *party) {
		leader, two := p.leads(p.follower("one", sits)), p.follower("two", sits)
		for range 2 {
			if got := two.try(); got.Outcome != election.Busy || got.Kept == nil {
				t.Errorf("got %+v", got)
			}
			time.Sleep(time.Minute)
		}
		two.Close()
		if err := election.GiveUp(leader); err != nil {
			t.Error(err)
		}
	})
}

func TestOneFollowerIsTheDeputyAndTheOthersKeepToTheirInterval(t *testing.T) {
	meeting(t, func(p *party) {
		leader := p.leads(p.follower("one", sits))
		two, three, idle := p.follower("two", sits), p.follower("three", sits), p.follower("idle", deputy.Config{})
		if got := idle.try(); got.Outcome != election.Busy || got.Kept != nil {
			p.Errorf("one that is not to sit: %+v", got)
		}
		if term, err := p.follower("hasty", sits).TryCampaign(p.Context()); term != nil || err != nil || p.seats() != 1 {
			p.Errorf("one that tries once: %v, %v, with %d seats", term, err, p.seats())
		}
		if got := two.try(); got.Outcome != election.Busy || got.Kept == nil || !got.Paced || got.Holder.CandidateID != "one" {
			p.Errorf("the first follower: %+v", got)
		}
		if got := three.try(); got.Outcome != election.Busy || got.Kept != nil || got.Paced || got.Holder.CandidateID != "one" {
			p.Errorf("the second follower: %+v", got)
		}
		if n := p.seats(); n != 2 {
			p.Errorf("%d seats are held", n)
		}
		two.Close()
		synctest.Wait() // the server notices
		if got := three.try(); got.Kept == nil {
			p.Errorf("when the deputy has gone: %+v", got)
		}
		three.Close()
		leader.Session().Close()
	})
}

func TestTheDeputyHasTheLockAnIntervalAfterItIsFree(t *testing.T) {
	for name, c := range map[string]deputy.Config{"it tries": sits, "it waits": {Sit: true, Wait: true, Interval: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			meeting(t, func(p *party) {
				leader := p.leads(p.follower("one", c))
				two := p.follower("two", c)
				if got := two.try(); got.Kept == nil {
					p.Fatalf("got %+v", got)
				}
				freed := make(chan time.Time, 1)
				time.AfterFunc(900*time.Millisecond, func() {
					freed <- time.Now()
					election.GiveUp(leader)
				})
				next := p.leads(two)
				if took := time.Since(<-freed); took > 100*time.Millisecond {
					p.Errorf("it took %v", took)
				}
				next.Session().Close()
			})
		})
	}
}

func TestADeputyReportsEachHeartbeatInterval(t *testing.T) {
	meeting(t, func(p *party) {
		leader := p.leads(p.follower("one", sits))
		two := p.follower("two", sits)
		two.try()
		for range 3 {
			began := time.Now()
			got := two.try()
			if got.Outcome != election.Busy || got.Kept == nil || !got.Paced || got.Holder.CandidateID != "one" || time.Since(began) != 2*time.Second {
				p.Errorf("after %v: %+v", time.Since(began), got)
			}
			if since := time.Since(got.BusyAt); since > 200*time.Millisecond {
				p.Errorf("the lock was last found busy %v ago", since)
			}
		}
		two.Close()
		leader.Session().Close()
	})
}

// A leader that was no deputy sits down too, or there would be two deputies. One that was keeps its seat.
func TestALeaderThatHadNoSeatTakesOne(t *testing.T) {
	meeting(t, func(p *party) {
		leader := p.leads(p.follower("one", sits))
		time.Sleep(time.Second)
		if n := p.seats(); n != 1 {
			p.Errorf("%d seats are held", n)
		}
		two := p.follower("two", sits)
		two.try()
		leader.Session().Close()
		if synctest.Wait(); p.seats() != 1 {
			p.Errorf("%d seats are held after the term", p.seats())
		}
		next := p.leads(two)
		if time.Sleep(time.Second); p.seats() != 1 {
			p.Errorf("%d seats are held by a leader that was the deputy", p.seats())
		}
		next.Session().Close()
		if synctest.Wait(); p.seats() != 0 {
			p.Errorf("%d seats are held after its term", p.seats())
		}
	})
}

// The others may be hundreds.
func TestOnlyTheDeputyAndTheOneThatLedHurryWhenTheServerIsGone(t *testing.T) {
	meeting(t, func(p *party) {
		ctx, cancel := context.WithCancel(p.Context())
		attempts := map[string]chan election.Attempt{}
		var all sync.WaitGroup
		for i, id := range []string{"led", "the deputy", "another"} {
			f := p.follower(id, sits)
			attempts[id] = make(chan election.Attempt, 1000)
			f.Observer = ear{heard: attempts[id]}
			all.Go(func() {
				_ = f.Run(ctx, func(ctx context.Context, _ *election.Term) error { <-ctx.Done(); return ctx.Err() })
			})
			time.Sleep(5 * time.Second * time.Duration(2-i))
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		for _, heard := range attempts {
			for len(heard) > 0 {
				<-heard
			}
		}
		p.Stop()
		time.Sleep(30 * time.Second)
		cancel()
		all.Wait()
		for id, hurries := range map[string]bool{"led": true, "the deputy": true, "another": false} {
			failed := 0
			for len(attempts[id]) > 0 {
				if a := <-attempts[id]; a.Outcome == election.Failed && a.Err != nil {
					failed++
				}
			}
			if hurried := failed > 60; hurried != hurries || failed < 20 { // one each 0.25 to 0.33 s, or each 0.75 to 1 s
				p.Errorf("%s has tried %d times in 30 s", id, failed)
			}
		}
	})
}

func TestADeputyOfAFullServerDoesNotHurry(t *testing.T) {
	meeting(t, func(p *party) {
		leader := p.leads(p.follower("one", sits))
		two := p.follower("two", sits)
		two.try()
		p.Stop()
		if got := two.try(); got.Outcome != election.Failed || !got.Hurry {
			p.Errorf("of one that has stopped: %+v", got)
		}
		p.Start()
		p.LimitConnections(1)
		full := p.Open()
		defer full.Close()
		if err := full.PingContext(p.Context()); err != nil {
			p.Fatal(err)
		}
		if got := two.try(); got.Outcome != election.Failed || got.Hurry {
			p.Errorf("of one that is full: %+v", got)
		}
		leader.Session().Close()
	})
}

func TestTheFollowersAreListed(t *testing.T) {
	meeting(t, func(p *party) {
		leader := p.leads(p.follower("one", sits))
		two := p.follower("two", sits)
		two.try()
		pool := p.Open()
		defer pool.Close()
		got, err := deputy.FollowersOf(p.Context(), pool, key, time.Second)
		if err != nil || len(got) != 1 || got[0].CandidateID != "two" || !got[0].Deputy || !got[0].Since.IsZero() {
			p.Errorf("got %+v, %v", got, err)
		}
		two.Close()
		leader.Session().Close()
	})
}

func TestTheSeatsOfTwoElectionsDiffer(t *testing.T) {
	if a, b := seat.Key(1), seat.Key(2); a == b || a == b^1 {
		t.Error("they share a seat")
	}
}

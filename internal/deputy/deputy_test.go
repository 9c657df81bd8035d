package deputy_test

import (
	"context"
	"database/sql"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/deputy"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/session"
	"github.com/pgelector/pgelector/internal/wakeup"
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

// follower makes an acquirer of a candidate, in session scope and without other parts.
func (p *party) follower(id string, c deputy.Config) lock.Acquirer {
	pool := p.Open()
	p.pools = append(p.pools, pool)
	source := session.NewSource(pool, session.Config{Name: id, Scope: session.SessionScope, OnBeat: func(session.Beat) {},
		Lease:  lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second},
		Report: func(_ context.Context, _ session.Task, err error) { p.Errorf("%s: %v", id, err) }})
	d := &lock.Dedicated{Config: lock.Config{Key: key, ReportHolder: func() bool { return true }, Pair: deputy.SeatKey(key)}, Source: source}
	c.Retry = func() time.Duration { return retry }
	return deputy.New(d, c)
}

func try(a lock.Acquirer, last lock.Standing) lock.Attempt {
	return a.Acquire(context.Background(), lock.Try{Woken: wakeup.New(), Last: last})
}

// leads fails the test unless the acquirer is granted the lock.
func (p *party) leads(a lock.Acquirer) *lock.Lock {
	p.Helper()
	got := try(a, lock.Unknown)
	if got.Outcome != lock.Granted || got.Keeps || got.Err != nil {
		p.Fatalf("got %+v", got)
	}
	return got.Lock
}

// seats counts the seats that are held.
func (p *party) seats() (n int) {
	for _, l := range p.Locks() {
		if l.Guard && (l.Key == deputy.SeatKey(key) || l.Key == deputy.SeatKey(key)^1) {
			n++
		}
	}
	return n
}

func TestOneFollowerIsTheDeputyAndTheOthersKeepToTheirInterval(t *testing.T) {
	meeting(t, func(p *party) {
		leader := p.leads(p.follower("one", sits))
		two, three, idle := p.follower("two", sits), p.follower("three", sits), p.follower("idle", deputy.Config{})
		if got := try(idle, lock.Unknown); got.Outcome != lock.Busy || got.Keeps {
			p.Errorf("one that is not to sit: %+v", got)
		}
		if got := two.Acquire(p.Context(), lock.Try{Woken: wakeup.New(), Once: true}); got.Outcome != lock.Busy || got.Keeps {
			p.Errorf("one that tries once: %+v", got)
		}
		if got := try(two, lock.Unknown); got.Outcome != lock.Busy || !got.Keeps || got.Next != 0 || got.Holder.CandidateID != "one" {
			p.Errorf("the first follower: %+v", got)
		}
		if got := try(three, lock.Unknown); got.Outcome != lock.Busy || got.Keeps || got.Next < retry*3/4 || got.Next > retry {
			p.Errorf("the second follower: %+v", got)
		}
		if n := p.seats(); n != 2 {
			p.Errorf("%d seats are held", n)
		}
		two.Close()
		synctest.Wait() // the server notices
		if got := try(three, lock.Unknown); !got.Keeps {
			p.Errorf("when the deputy has gone: %+v", got)
		}
		three.Close()
		leader.Discard()
	})
}

func TestTheDeputyHasTheLockAnIntervalAfterItIsFree(t *testing.T) {
	for name, c := range map[string]deputy.Config{"it tries": sits, "it waits": {Sit: true, Wait: true, Interval: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			meeting(t, func(p *party) {
				leader := p.leads(p.follower("one", c))
				two := p.follower("two", c)
				if got := try(two, lock.Unknown); !got.Keeps {
					p.Fatalf("got %+v", got)
				}
				freed := make(chan time.Time, 1)
				time.AfterFunc(900*time.Millisecond, func() {
					_ = leader.Release()
					freed <- time.Now()
					leader.Discard()
				})
				next := p.leads(two)
				if took := time.Since(<-freed); took > 100*time.Millisecond {
					p.Errorf("it took %v", took)
				}
				next.Discard()
			})
		})
	}
}

func TestADeputyReportsEachHeartbeatInterval(t *testing.T) {
	meeting(t, func(p *party) {
		leader := p.leads(p.follower("one", sits))
		two := p.follower("two", sits)
		try(two, lock.Unknown)
		for range 3 {
			began := time.Now()
			if got := try(two, lock.Followed); got.Outcome != lock.Busy || !got.Keeps || got.Holder.CandidateID != "one" || time.Since(began) != 2*time.Second {
				p.Errorf("after %v: %+v", time.Since(began), got)
			}
		}
		two.Close()
		leader.Discard()
	})
}

// A leader that was no deputy sits down too, or there would be two deputies.
func TestALeaderThatHadNoSeatTakesOne(t *testing.T) {
	meeting(t, func(p *party) {
		leader := p.leads(p.follower("one", sits))
		time.Sleep(time.Second)
		if n := p.seats(); n != 1 {
			p.Errorf("%d seats are held", n)
		}
		leader.Discard()
		if synctest.Wait(); p.seats() != 0 {
			p.Errorf("%d seats are held after the term", p.seats())
		}
	})
}

func TestOnlyTheDeputyAndTheOneThatLedHurryWhenTheServerIsGone(t *testing.T) {
	meeting(t, func(p *party) {
		leader := p.leads(p.follower("one", sits))
		two, three := p.follower("two", sits), p.follower("three", sits)
		try(two, lock.Unknown)
		try(three, lock.Unknown)
		p.Stop()
		for name, c := range map[string]struct {
			a    lock.Acquirer
			last lock.Standing
			want time.Duration
		}{"the deputy": {two, lock.Followed, lock.Quick}, "another": {three, lock.Followed, retry}, "one that led": {p.follower("led", sits), lock.Led, lock.Quick}} {
			if got := try(c.a, c.last); got.Outcome != lock.Failed || got.Next != c.want || got.Err == nil {
				p.Errorf("%s: %+v", name, got)
			}
		}
		<-leader.Session.Context().Done()
		leader.Discard()
	})
}

func TestADeputyOfAFullServerDoesNotHurry(t *testing.T) {
	meeting(t, func(p *party) {
		leader := p.leads(p.follower("one", sits))
		two := p.follower("two", sits)
		try(two, lock.Unknown)
		p.Stop()
		p.Start()
		p.LimitConnections(1)
		full := p.Open()
		defer full.Close()
		if err := full.PingContext(p.Context()); err != nil {
			p.Fatal(err)
		}
		try(two, lock.Followed) // on its dead session
		if got := try(two, lock.Followed); got.Outcome != lock.Failed || got.Next != retry {
			p.Errorf("got %+v", got)
		}
		leader.Discard()
	})
}

func TestTheFollowersAreListed(t *testing.T) {
	meeting(t, func(p *party) {
		leader := p.leads(p.follower("one", sits))
		two := p.follower("two", sits)
		try(two, lock.Unknown)
		pool := p.Open()
		defer pool.Close()
		got, err := deputy.FollowersOf(p.Context(), pool, key, time.Second)
		if err != nil || len(got) != 1 || got[0].CandidateID != "two" || !got[0].Deputy || !got[0].Since.IsZero() {
			p.Errorf("got %+v, %v", got, err)
		}
		two.Close()
		leader.Discard()
	})
}

func TestTheSeatsOfTwoElectionsDiffer(t *testing.T) {
	if a, b := deputy.SeatKey(1), deputy.SeatKey(2); a == b || a == b^1 {
		t.Error("they share a seat")
	}
}

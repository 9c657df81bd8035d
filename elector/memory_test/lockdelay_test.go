package memory_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

// A next is what takes the place of a server whose host has died.
type next struct {
	name string
	up   func(b *bench, old *candidate) (process *electortest.Process) // of a new candidate
}

var nexts = []next{
	{"the same address", func(b *bench, _ *candidate) *electortest.Process {
		b.Start()
		return b.NewProcess()
	}},
	{"a promoted standby", func(b *bench, old *candidate) *electortest.Process {
		standby := b.NewStandby(0)
		b.Cleanup(standby.Close)
		b.check(standby.Promote())
		old.process.ConnectTo(standby)
		return standby.NewProcess()
	}},
}

// overlap has the host of a leader's server die, and returns for how long two candidates lead
// together once there is a server again, and after how long the new one leads.
func overlap(b *bench, of next, d electortest.Driver, opts ...elector.Option) (both, after time.Duration) {
	old := b.candidate("old", append(opts, elector.WithTakeover(elector.Poll))...)
	old.process.SetDriver(d)
	time.Sleep(time.Minute) // with the option: the server is old enough
	b.start(old)
	b.leads(old)
	time.Sleep(heartbeat / 2)
	b.LosePower()
	b.Cleanup(b.Reset)
	time.Sleep(2 * time.Second)
	process := of.up(b, old)
	process.SetDriver(d)
	b.Cleanup(func() { b.Reset() })
	fresh := b.start(b.candidateOn(process, process.Open(), "fresh", opts...))
	for ; after < 3*lease; after += 10 * time.Millisecond {
		if old.IsLeader() && fresh.IsLeader() {
			both += 10 * time.Millisecond
		}
		if fresh.IsLeader() && !old.IsLeader() {
			return both, after
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.Error("nobody leads alone")
	return both, after
}

// A server whose host dies tells nobody: this is why WithLockDelay exists.
func TestAHostThatDiesMakesTwoLeadersUnlessTheLockIsDelayed(t *testing.T) {
	for _, of := range nexts {
		for d, driver := range map[electortest.Driver]string{electortest.PGX: "pgx", electortest.PQ: "pq"} {
			for name, scope := range scopes {
				scene(t, fmt.Sprint(of.name, "/", driver, "/", name, "/without the option"), func(b *bench) {
					if both, _ := overlap(b, of, d, scope); both < time.Second {
						b.Errorf("two led for %v: the host has not died silently", both)
					}
				})
				scene(t, fmt.Sprint(of.name, "/", driver, "/", name, "/with the option"), func(b *bench) {
					both, after := overlap(b, of, d, scope, elector.WithLockDelay(lease))
					if both > 0 {
						b.Errorf("two led for %v", both)
					}
					b.within("the new leader", lease, after, lease+2*time.Second)
				})
			}
		}
	}
}

// A follower that polls meets no error if the server was replaced between two of its attempts, so it does
// not check the server again before it is granted the lock.
func TestAGrantOnAServerThatHasStartedSinceTheCheckElectsNobody(t *testing.T) {
	for name, scope := range scopes {
		scene(t, name, func(b *bench) {
			time.Sleep(time.Minute)
			delay := elector.WithLockDelay(lease)
			old := b.run("old", scope, delay)
			b.leads(old)
			next := b.candidate("next", scope, delay, elector.WithTakeover(elector.Poll))
			next.pool.SetMaxIdleConns(0)
			b.start(next)
			time.Sleep(10 * time.Second)
			b.LosePower()
			defer b.Reset()
			b.Start()
			began := time.Now()
			for !next.IsLeader() {
				time.Sleep(10 * time.Millisecond)
				if old.IsLeader() && next.IsLeader() {
					b.Fatal("two lead")
				}
			}
			b.within("the next leader", lease, time.Since(began), lease+2*time.Second)
			granted := 0
			for _, c := range next.rec.Campaigns() {
				if c.Outcome == hooks.TooEarly {
					granted++
				}
			}
			if granted != 1 {
				b.Errorf("%d attempts were too early: %+v", granted, next.rec.Campaigns())
			}
		})
	}
}

// later is how long an error says to wait.
func (b *bench) later(err error) time.Duration {
	b.Helper()
	b.wraps(err, elector.ErrTooEarly)
	var later interface{ Later() time.Duration }
	if !errors.As(err, &later) {
		b.Fatalf("%v does not say how long to wait", err)
	}
	if wait := later.Later().Round(time.Millisecond).String(); !strings.HasSuffix(err.Error(), "wait another "+wait) {
		b.Errorf("%v: want the wait of %v at its end", err, wait)
	}
	return later.Later()
}

// tooEarly returns the wait of a candidate that must not be elected now.
func (b *bench) tooEarly(s *candidate) time.Duration {
	b.Helper()
	_, elected, err := s.TryCampaign(always)
	if elected {
		b.Fatal("elected")
	}
	return b.later(err)
}

// elects fails the test unless a new process is elected at once.
func (b *bench) elects(s *candidate) {
	b.Helper()
	term, elected, err := s.TryCampaign(always)
	b.check(err)
	if !elected {
		b.Fatal("not elected")
	}
	b.check(term.Resign(always))
}

func TestNobodyIsElectedOnAServerThatHasJustStarted(t *testing.T) {
	for name, scope := range scopes {
		scene(t, name, func(b *bench) {
			delay := elector.WithLockDelay(time.Minute)
			one := b.candidate("one", scope, delay)
			b.within("the wait", time.Minute, b.tooEarly(one), time.Minute)
			if elected, err := one.TryRun(always, nil); elected || b.later(err) != time.Minute {
				b.Errorf("TryRun: %v, %v", elected, err)
			}
			time.Sleep(20 * time.Second)
			b.within("the wait", 40*time.Second, b.tooEarly(one), 40*time.Second)
			b.Crash()
			b.Start()
			b.start(one)
			b.within("the wait of Run", time.Minute, b.leads(one), time.Minute+time.Second)
			events := one.rec.Campaigns()
			if first := events[3]; first.Outcome != hooks.TooEarly || first.Next != time.Minute {
				b.Errorf("got %+v", events)
			}
			b.failed(one)
		})
	}
}

// A fresh process cannot have seen the server before. The server's last checkpoint proves that it has been
// there.
func TestTheLastCheckpointProvesForHowLongAServerHasBeenAPrimary(t *testing.T) {
	bubble(t, func(b *bench) {
		delay := elector.WithLockDelay(time.Minute)
		fresh := func() *candidate { return b.candidate("fresh", delay) }
		time.Sleep(time.Minute + time.Second)
		b.elects(fresh())
		b.Checkpoint() // anybody who may can only lengthen the wait
		time.Sleep(10 * time.Second)
		b.within("the wait after a checkpoint", 51*time.Second, b.tooEarly(fresh()), 51*time.Second) // a checkpoint's time has whole seconds
		time.Sleep(51 * time.Second)
		b.elects(fresh())
		b.Stop()
		time.Sleep(time.Hour)
		b.Start()
		time.Sleep(30 * time.Second) // the checkpoint is older, but the server has just started
		b.within("the wait after a restart", 30*time.Second, b.tooEarly(fresh()), 30*time.Second)
	})
}

// A standby has run for long, and its last checkpoint is old, when it is promoted.
func TestNobodyIsElectedOnAServerThatWasJustPromoted(t *testing.T) {
	bubble(t, func(b *bench) {
		delay := elector.WithLockDelay(time.Minute)
		standby := b.NewStandby(0)
		defer standby.Close()
		process := standby.NewProcess()
		fresh := func() *candidate { return b.candidateOn(process, process.Open(), "fresh", delay) }
		time.Sleep(time.Hour)
		b.LosePower()
		known := fresh()
		_, _, err := known.TryCampaign(always)
		b.wraps(err, elector.ErrServerReadOnly)
		b.check(standby.Promote())
		b.within("the wait", time.Minute, b.tooEarly(known), time.Minute)
		time.Sleep(time.Minute)
		b.elects(known) // it has known the primary for long enough
		b.within("the wait of a fresh process", time.Minute, b.tooEarly(fresh()), time.Minute)
		standby.Checkpoint()
		time.Sleep(time.Minute + time.Second)
		b.elects(fresh())
	})
}

// Where pg_control_checkpoint was revoked, the time counts from when the process first saw the primary,
// with any elector of the pool.
func TestWithoutTheCheckpointTheTimeCountsFromWhenTheProcessFirstSawThePrimary(t *testing.T) {
	for name, scope := range scopes {
		scene(t, name, func(b *bench) {
			revoked := fail("LastCheckpoint", 1, 1<<30, serverError("42501", "permission denied for function pg_control_checkpoint"))
			time.Sleep(time.Hour)
			one := b.wired(revoked, "one", scope, elector.WithLockDelay(time.Minute))
			b.within("the wait", time.Minute, b.tooEarly(one), time.Minute)
			time.Sleep(time.Minute)
			b.elects(one)
			b.elects(b.candidateOn(one.process, one.pool, "another", scope, elector.WithLockDelay(time.Minute)))
		})
	}
}

func TestWithoutLockDelayNoStatementIsSentForIt(t *testing.T) {
	for name, scope := range scopes {
		scene(t, name, func(b *bench) {
			var with, without atomic.Int64
			count := func(n *atomic.Int64, opts ...elector.Option) {
				c := b.wired(func(m message, send func() error) error {
					if m.name == "Tenure" || m.name == "LastCheckpoint" {
						n.Add(1)
					}
					return send()
				}, "counted", append(opts, scope)...)
				b.runFor(time.Minute, c)
			}
			time.Sleep(time.Hour)
			count(&without)
			count(&with, elector.WithLockDelay(lease))
			if without.Load() != 0 || with.Load() != 4 {
				b.Errorf("%d statements without the option, and %d with it: want 0 and 4, two for the check and two for the grant", without.Load(), with.Load())
			}
		})
	}
}

// A shared session asks once, whatever the number of its elections. While the server is too young, each
// batch asks once.
func TestASharedSessionAsksOnceForHowLongItsServerHasBeenThere(t *testing.T) {
	bubble(t, func(b *bench) {
		asked := map[string]int{}
		b.Trace(func(e electortest.Event) {
			if !e.Done {
				asked[e.What]++
			}
		})
		pool := b.Open()
		defer pool.Close()
		s, err := elector.NewSession(pool, elector.WithLockDelay(lease))
		b.check(err)
		var all []*elector.Elector
		for n := range 20 {
			e, err := s.Elector(fmt.Sprint("election ", n))
			b.check(err)
			b.check(e.Start(always))
			all = append(all, e)
		}
		leading := func() (n int) {
			for _, e := range all {
				if e.IsLeader() {
					n++
				}
			}
			return n
		}
		time.Sleep(lease - time.Second)
		if n := leading(); n > 0 {
			b.Errorf("%d lead on a server that has just started", n)
		}
		time.Sleep(3 * time.Second)
		if n := leading(); n != len(all) {
			b.Errorf("%d of %d lead", n, len(all))
		}
		synctest.Wait()
		b.Trace(nil)
		if n := asked["Tenure"]; n > 30 { // each election's first attempt may come alone
			b.Errorf("asked %d times", n)
		}
		before := asked["Tenure"]
		for _, e := range all {
			b.check(e.Stop(always))
			b.check(e.Start(always))
		}
		time.Sleep(5 * time.Second)
		if n := asked["Tenure"] - before; n > 0 || leading() != len(all) {
			b.Errorf("asked %d times more; %d lead", n, leading())
		}
		b.check(s.Close(always))
	})
}

// A connection that was moved to another server after the grant, to a backend of the same process id,
// says nothing of the server that has granted the lock.
func TestTheAnswerOfAnotherServerThanTheOneThatGrantedTheLockElectsNobody(t *testing.T) {
	bubble(t, func(b *bench) {
		other := electortest.NewServer()
		defer other.Close()
		time.Sleep(time.Hour)
		b.Crash()
		b.Start() // so it is too young, and the other is not
		moving := &moving{here: b.Open(), there: other.Open()}
		pool := sql.OpenDB(moving)
		process := b.NewProcess()
		e := b.candidateOn(process, pool, "moved", elector.WithLockDelay(time.Minute), elector.WithTakeover(elector.Poll))
		_, elected, err := e.TryCampaign(always)
		if elected || err == nil || errors.Is(err, elector.ErrTooEarly) {
			b.Errorf("got %v, %v", elected, err)
		}
		if moving.asked.Load() < 2 {
			b.Errorf("asked %d times: the grant was not asked about", moving.asked.Load())
		}
		b.check(moving.here.Close())
		b.check(moving.there.Close())
	})
}

// moving connects here, and has the question for how long the server has been there asked there.
type moving struct {
	here, there *sql.DB
	asked       atomic.Int64
}

func (m *moving) Driver() driver.Driver { return m.here.Driver() }

func (m *moving) Connect(ctx context.Context) (driver.Conn, error) {
	var both [2]fullConn
	for i, pool := range []*sql.DB{m.here, m.there} {
		lent, err := pool.Conn(ctx)
		if err != nil {
			return nil, err
		}
		_ = lent.Raw(func(conn any) error { both[i] = conn.(fullConn); return nil })
	}
	return &movingConn{both[0], both[1], m}, nil
}

type movingConn struct {
	fullConn
	there fullConn
	of    *moving
}

func (c *movingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if strings.HasPrefix(query, "-- name: Tenure ") || strings.HasPrefix(query, "-- name: LastCheckpoint ") {
		c.of.asked.Add(1)
		return c.there.QueryContext(ctx, query, args)
	}
	return c.fullConn.QueryContext(ctx, query, args)
}

//go:build unix

package e2e_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// What make soak repeats more often than other runs.
var (
	resignations = flag.Int("resignations", 300, "how often each driver's leader resigns")
	transfers    = flag.Int("transfers", 30, "how many transfers each driver makes")
	waits        = flag.Int("waits", 300, "how many waits for a loss are ended, plain and over TLS")
)

// footprint is the resources that an election uses.
type footprint struct {
	heap             uint64 // bytes in use after garbage collection
	goroutines       int
	pooled, onServer int // connections
	locks            int // advisory locks in the server
}

// Two candidates resign in turn, and the other leads with a new session.
func TestResignationsDoNotIncreaseMemoryGoroutinesOrConnections(t *testing.T) {
	n := *resignations
	over(t, map[string]drivers{"pq": pq, "pgx": pgx}, false, func(t *testing.T, d drivers) { // one after the other: goroutines are counted
		s := onShared(t)
		election, began := s.election(t), time.Now()
		leader := s.soaked(t, d, election, elector.WithRetryInterval(10*time.Millisecond))
		next := s.soaked(t, d, election, elector.WithTakeover(elector.Wait))
		term, err := leader.Campaign(soon(t))
		check(t, err)
		measure := func(i int) footprint {
			f := s.footprint(t, leader, next)
			t.Logf("after %d resignations and %v: %+v", i, time.Since(began).Round(time.Second), f)
			return f
		}
		warm := n / 5 // caches fill first
		var first footprint
		for i := 1; i <= n; i++ {
			term = resignTo(t, term, next)
			leader, next = next, leader
			if i == warm {
				first = measure(i)
			}
		}
		last := measure(n)
		expect(t, term.Resign(soon(t)))
		if last.heap > first.heap+spareHeap {
			t.Errorf("the heap has grown from %d to %d bytes", first.heap, last.heap)
		}
		if last.goroutines > first.goroutines+spare || last.pooled > first.pooled+spare || last.onServer > first.onServer+spare || last.locks > first.locks {
			t.Errorf("it uses more at the end: %+v, then %+v", first, last)
		}
	})
}

// Allowed differences between two measurements, such as a connection that is being closed.
const (
	spareHeap = 512 << 10
	spare     = 2
)

// soaked makes a candidate without a recorder, since the recorder would grow. Its lease is so long
// that the server ends no session that the candidate forgets.
func (s *server) soaked(t *testing.T, d drivers, election string, opts ...elector.Option) *candidate {
	t.Helper()
	c := &candidate{pool: d.open(t, 0, s.DSN())}
	e, err := elector.New(c.pool, election, append(opts, elector.WithCandidateID(unique("soaked")), elector.WithLease(2*patience))...)
	check(t, err)
	c.Elector = e
	t.Cleanup(func() { s.leavesNothing(t, c) })
	return c
}

// resignTo lets the next candidate campaign, and the leader resign.
func resignTo(t *testing.T, term *elector.Term, next *candidate) *elector.Term {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	elected := make(chan *elector.Term, 1)
	go func() {
		fresh, err := next.Campaign(ctx)
		expect(t, err)
		elected <- fresh
	}()
	check(t, term.Resign(ctx))
	fresh := <-elected
	if fresh == nil || fresh.Token() <= term.Token() {
		t.Fatalf("after token %d: %+v", term.Token(), fresh)
	}
	return fresh
}

// footprint measures while one candidate leads and none campaigns, once the sessions of earlier
// leaders have ended.
func (s *server) footprint(t *testing.T, all ...*candidate) (f footprint) {
	t.Helper()
	eventually(t, "one session is left", func() bool {
		return one[int](t, s.admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'soaked%'") == 1
	})
	for _, c := range all {
		f.pooled += c.pool.Stats().OpenConnections
	}
	f.onServer = one[int](t, s.admin, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
	f.locks = one[int](t, s.admin, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
	var memory runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&memory)
	f.heap, f.goroutines = memory.HeapAlloc, runtime.NumGoroutine()
	return f
}

// Candidates that poll would take a lock that is free for a moment. None of the named waits in the server before
// it is a successor: such a deputy alone may be sooner than the successor (see transferred).
func TestManyTransfersBesidePollersGoToTheSuccessor(t *testing.T) {
	inSessionScope(t, "another may be sooner between two waits of the successor, see TestASuccessorIsElectedNext")
	t.Parallel()
	const pollers = 20
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		quick := []elector.Option{elector.WithHeartbeatInterval(100 * time.Millisecond), elector.WithRetryInterval(10 * time.Millisecond)}
		var named []*candidate
		for _, takeover := range []elector.Takeover{elector.Deputy, elector.Poll, elector.Deputy} {
			c := s.stand(t, d.open(t, len(named), s.DSN()), election, append(quick, elector.WithTakeover(takeover))...).run(t, nil)
			named = append(named, c)
			if len(named) == 1 {
				c.elected(t)
			} else {
				c.follows(t)
			}
		}
		pool := d.open(t, 1, s.DSN())
		pool.SetMaxOpenConns(10)
		pool.SetMaxIdleConns(10)
		var others []*candidate
		for range pollers {
			c := s.stand(t, pool, election, polling).run(t, nil)
			c.follows(t)
			others = append(others, c)
		}
		for n := range *transfers {
			term, leader := termOf(t, named[n%len(named)]), (n+1)%len(named)
			check(t, term.TransferTo(soon(t), named[leader].CandidateID()))
		}
		for _, c := range others {
			if led := c.rec.Elected(); len(led) > 0 {
				t.Errorf("%s was elected %d times, though it was never a successor", c.CandidateID(), len(led))
			}
		}
		termOf(t, named[*transfers%len(named)])
		t.Logf("%d transfers beside %d pollers, each to the named candidate", *transfers, pollers)
	})
}

// A statement ends the wait for a loss, at any moment of it.
func TestEndedWaitsCostNoConnection(t *testing.T) {
	t.Parallel()
	s := direct(t)
	for name, dsn := range map[string]string{"plain": s.Cluster.DSN(), "TLS": s.onTLS(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := s.stand(t, pgx.open(t, 0, dsn), s.election(t), append(unbeaten, directly())...)
			term, err := c.Campaign(soon(t))
			check(t, err)
			if !c.Settings().ListensForLoss {
				t.Error("it does not listen: the test shows nothing")
			}
			began := time.Now()
			for i := range *waits {
				if err := term.Verify(soon(t)); err != nil {
					t.Fatalf("after %d waits: %v", i, err)
				}
				time.Sleep(rand.N(300 * time.Microsecond)) // the next wait begins, or goes on
			}
			t.Logf("%d waits in %v", *waits, time.Since(began))
			expect(t, term.Resign(soon(t)))
			for _, f := range c.rec.Failures() {
				t.Errorf("%s: %v", f.Op, f.Err)
			}
		})
	}
}

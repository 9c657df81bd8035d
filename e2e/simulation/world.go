// Package simulation runs elections in virtual time, on the server in memory of package
// electortest. A seed draws the candidates and the faults. Each step is checked against what
// the library promises.
//
// # What happens
//
// A [Plan] has one to four candidates for one or two elections, a lease with the durations
// that depend on it, a latency, and a server whose clock runs up to 8 % faster or slower.
// Candidates use Run, Campaign, TryCampaign, Start and RunIfLeader, or a Session. Each has a
// standby, and a driver that behaves like pgx or lib/pq. Some of them
//
//   - write in transactions of their terms;
//   - have a health check;
//   - have a notifier that loses, delays and repeats notifications;
//   - transfer their terms to another candidate, which may be dead.
//
// Up to five of the faults in plan.go occur, each for a while. In half of the plans one or two
// requests ask leaders to resign, or to transfer their lock. In a quarter of the plans
// commits wait for a standby, and the candidates have WithSynchronousStandby. There, one or two
// more faults cut the standby off, remove it from the list of standbys, or promote it while its
// primary lives on.
//
// In one of 24 plans the candidates are the members of a group of up to twelve shards instead,
// whose set may change. Half of the faults come before a quiet period, and half after it.
//
// # What is checked
//
//   - No two candidates lead or work at once. A candidate whose session the server has ended
//     believes so until it is told, which takes a message of it (pgx), or until it has looked, which
//     it does each 250 ms (lib/pq); its work may go on for less than a lease.
//     When the host of the server dies, nobody is told. Then a candidate may believe and work for its
//     validity and its drain, beside the next one. With WithLockDelay, which a quarter of the plans
//     have, or WithSynchronousStandby, there is no next one so early.
//   - No candidate believes or works when the server ends its session because it was silent, or
//     when its connection is closed while the lock is held.
//   - No lock is released before its work has returned. The work of a caller of Campaign has
//     the drain for that, and its process may be frozen meanwhile.
//   - Tokens rise. Hooks keep their contract.
//   - A request ends soon after its context. One to transfer succeeds only if that candidate leads.
//   - No write in a transaction of a term is overwritten unseen, or follows one of a later term.
//   - Once all faults are over, somebody leads within a bound.
//   - Once all faults are over, the candidate of the highest priority leads within a bound, if they have priorities, as in a
//     quarter of the plans.
//   - Once all faults are over, each member leads its share of the shards within a bound, and no
//     shard moves any more.
//   - A member that was frozen for longer than its lease holds nothing that others count.
//   - At the end no candidate, connection, lock, setting or goroutine is left.
//
// # What differs from a real system
//
// A frozen process stops where the library reads the clock or calls its driver, and where the
// simulated work does; not between any two instructions. A statement takes no time on the
// server. A clock that is set forward ends a term at the next check of the clock; work until
// then is no violation. The seed does not control the Go scheduler: events of one instant may
// change their order when a plan runs again.
package simulation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/preference"
	"github.com/pgelector/pgelector/shard"
)

// A world is one simulation: the servers, the candidates and the faults. It runs in a synctest
// bubble.
type world struct {
	plan  Plan
	judge *judge
	store *store // of the primary

	notifier *unreliableNotifier
	shards   *shard.Set
	calm     atomic.Bool // no fault lasts, and work goes on

	mu          sync.Mutex
	server      *electortest.Server // the primary
	pooler      *electortest.Pooler // in front of it
	servers     []*electortest.Server
	supervisors []*supervisor
}

// A supervisor keeps one candidate running: when an instance ends, it starts the next.
type supervisor struct {
	*world
	n int // of the candidate

	mu       sync.Mutex
	instance *instance
	stop     context.CancelFunc // of the instance
}

// Run runs a plan. log may be nil.
func Run(p Plan, log func(string, ...any)) Outcome {
	w := &world{plan: p, judge: &judge{plan: p, start: time.Now(), lastLed: map[string]time.Time{}, tokens: map[string]int64{}, log: log}}
	w.store = &store{judge: w.judge, value: map[string]int64{}, token: map[string]int64{}}
	w.notifier = newNotifier(w)
	w.shards = shard.Numbers(p.Shards)
	w.setPrimary(electortest.NewServer(), w.store)
	connections := 2*len(p.Candidates) + 3
	if p.Prefers { // each may ask the leader for its lock
		connections += 2 * len(p.Candidates)
	}
	w.pooler = w.server.NewPooler(connections)
	ctx, stop := context.WithCancel(context.Background())
	var candidates sync.WaitGroup
	for n := range p.Candidates {
		s := &supervisor{world: w, n: n}
		w.supervisors = append(w.supervisors, s)
		first := s.start(ctx, 0)
		candidates.Go(func() { s.supervise(ctx, first) })
	}
	if p.Shards > 0 { // two quiet periods
		w.injectAll(p.Faults[:len(p.Faults)/2])
		w.awaitSpread()
		w.injectAll(p.Faults[len(p.Faults)/2:])
		w.awaitSpread()
	} else {
		w.injectAll(p.Faults)
		w.awaitLeaders()
		w.awaitPreferred()
	}
	stop()
	w.awaitEnd(&candidates)
	w.pooler.Restart()
	time.Sleep(p.Lease + time.Second) // until the server has seen every connection close
	for _, s := range w.servers {
		if n := s.Connections(); n != 0 {
			w.judge.violated("%d connections are left", n)
		}
		s.Close()
	}
	return Outcome{Overlapped: w.judge.overlapped, Violations: w.judge.violations, Terms: w.judge.terms, Took: time.Since(w.judge.start)}
}

// injectAll injects faults, and waits until they are over.
func (w *world) injectAll(all []Fault) {
	var faults sync.WaitGroup
	for _, f := range all {
		faults.Go(func() { w.inject(f) })
	}
	faults.Wait()
}

// An Outcome is the result of a plan.
type Outcome struct {
	Overlapped bool // as is allowed after the death of a host
	Violations []string
	Terms      int
	Took       time.Duration // of virtual time
}

// setPrimary makes s the primary, with the given store.
func (w *world) setPrimary(s *electortest.Server, store *store) {
	s.Handle(store.handle)
	s.Trace(func(e electortest.Event) {
		w.judge.trace(e)
		w.notifier.trace(e)
	})
	s.SetClockRate(w.plan.ClockRate)
	w.synchronize(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server, w.store = s, store
	w.servers = append(w.servers, s)
}

// synchronize makes commits wait for a standby, if the plan is synchronous.
func (w *world) synchronize(s *electortest.Server) {
	if w.plan.Synchronous {
		s.SetSynchronousStandbys("FIRST 1 (s)", "s")
	}
}

func (w *world) primary() *electortest.Server {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.server
}

// start starts the next instance. Its context ends when the instance is to stop.
func (s *supervisor) start(ctx context.Context, generation int) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instance = s.newInstance(s.n, generation)
	ctx, s.stop = context.WithCancel(ctx)
	s.judge.join(s.instance)
	return ctx
}

// supervise runs one instance after the other. The first was started.
func (s *supervisor) supervise(ctx, running context.Context) {
	sleep(ctx, s.plan.Candidates[s.n].Starts)
	for generation := 1; ; generation++ {
		s.instance.run(running)
		s.cleanUp()
		if !sleep(ctx, s.instance.draw(0, s.plan.Lease)) {
			return
		}
		running = s.start(ctx, generation)
	}
}

// cleanUp closes an instance's pool, and checks that nothing of the library is left in it.
func (s *supervisor) cleanUp() {
	i := s.instance
	s.judge.mark(i, "ends", func(c *state) { c.dead = true })
	i.thaw()
	i.process.Mend()
	if n := i.pool.Stats().InUse; n != 0 && !sleep(context.Background(), 2*time.Second) && i.pool.Stats().InUse != 0 {
		s.judge.violated("%s leaves %d connections in use", i.id, n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range i.pool.Stats().Idle {
		conn, err := i.pool.Conn(ctx)
		if err != nil {
			break
		}
		defer conn.Close()
		q := db.New(conn)
		server, _ := q.DescribeServer(ctx)
		keys, _ := q.HeldLocks(ctx, server.Pid)
		ends, _ := q.SessionEnders(ctx)
		if len(keys)+len(ends) > 0 {
			s.judge.violated("%s has returned a session to the pool: locks %v, settings %v", i.id, keys, ends)
		}
	}
	_ = i.pool.Close()
}

// bound is how soon somebody must lead after the last fault. A silent session holds the lock for one
// lease. Its open fenced transaction holds up the barrier for two leases, which begin at the same time as that one.
// Meanwhile one attempt may be discarded, because it waited at the barrier for its whole validity: less
// than a lease. Then comes the longest pause between two attempts, and the time limit of stuck calls.
// With a lock delay, it is one lease more, and a second for the drift of the clocks and waits that come
// too late. If commits wait for a standby, it is two leases more: one for an attempt whose commit waits,
// and one until a new primary may have a leader. A check and an attempt take some 35 round trips,
// of which 22 look for a pooler; where a round trip takes a tenth of the lease, some attempts are
// too late, and are made again. Through a pooler a first check takes 70 more: it looks for the
// pooler three times, and then tries a transaction.
func (w *world) bound() time.Duration {
	bound := 3*w.plan.Lease + 10*w.plan.Retry + 5*time.Second
	bound += 2 * 35 * w.plan.Latency // on average half of the longest, both ways
	if slices.ContainsFunc(w.plan.Candidates, func(c Candidate) bool { return c.Pooled || c.Scope == elector.TransactionScope }) {
		bound += 70 * w.plan.Latency
	}
	if w.plan.Shards > 0 {
		bound += w.plan.Sticky + groupBound
	}
	if w.plan.Synchronous {
		bound += 2 * w.plan.Lease
	}
	if w.plan.LockDelay {
		bound += 2 * w.plan.Lease
	}
	return bound
}

// awaitLeaders waits until each election that has candidates has had a leader.
func (w *world) awaitLeaders() {
	from := time.Now()
	for n := range min(w.plan.Elections, len(w.supervisors)) {
		for !w.led(election(n), from) {
			if time.Since(from) > w.bound() {
				w.judge.violated("nobody leads %s, %v after the last fault", election(n), time.Since(from))
				return
			}
			time.Sleep(w.plan.Heartbeat / 4)
		}
	}
}

// awaitPreferred waits until no candidate of an election asks its leader for the lock: the leader has the highest priority of those
// that ask.
func (w *world) awaitPreferred() {
	if !w.plan.Prefers {
		return
	}
	w.calm.Store(true)
	defer w.calm.Store(false)
	from, bound := time.Now(), w.preferredBound()
	for n := range min(w.plan.Elections, len(w.supervisors)) {
		for !w.isPreferred(n) {
			if time.Since(from) > bound {
				w.judge.violated("the leader of %s has not the highest priority, %v after the last fault", election(n), time.Since(from))
				return
			}
			time.Sleep(w.plan.Heartbeat / 4)
		}
	}
}

// preferredBound is how soon after the last fault the highest priority leads. Each of the others may lead before it. A candidate looks
// for the leader, waits until the term is old enough, for up to a second more, to which the leader tells its age, for up to a second at random, until the leader
// hears, and for its own next attempt; a transfer takes up to a lease, as does the return of the work. It may fail once, and is then asked for again.
func (w *world) preferredBound() time.Duration {
	p := w.plan
	hop := 2*preference.Due(p.Retry) + 3*time.Second + 2*p.Heartbeat + 4*p.Retry + 4*p.Lease + 100*p.Latency
	return w.bound() + time.Duration(len(p.Candidates))*hop
}

func (w *world) isPreferred(n int) bool {
	highest, asked := int32(0), false
	for i, c := range w.plan.Candidates {
		if c.asks() && i%w.plan.Elections == n && (!asked || c.Priority > highest) {
			highest, asked = c.Priority, true
		}
	}
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	return !asked || slices.ContainsFunc(w.judge.candidacies, func(c *candidacy) bool {
		priority := c.Priority
		if c.Kind == shares { // of which others see 0
			priority = 0
		}
		return !c.dead && c.Election() == election(n) && c.IsLeader() && priority >= highest
	})
}

func (w *world) led(election string, since time.Time) bool {
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	w.judge.check()
	return !w.judge.lastLed[election].Before(since)
}

// awaitEnd waits until all candidates have ended.
func (w *world) awaitEnd(candidates *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() {
		candidates.Wait()
		close(ended)
	}()
	t := time.NewTimer(w.bound() + time.Minute)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
		w.judge.violated("a candidate does not stop: %s", w.running())
		<-ended
	}
}

func (w *world) running() string {
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	var ids []string
	for _, c := range w.judge.candidacies {
		if !c.dead {
			ids = append(ids, c.id)
		}
	}
	return fmt.Sprint(slices.Compact(ids))
}

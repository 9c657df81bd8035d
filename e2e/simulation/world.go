package simulation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/electortest"
)

// A world is one simulation: a server, its candidates, and what happens to them. It
// lives in a synctest bubble.
type world struct {
	plan  Plan
	judge *judge
	store *store
	*bellman

	mu      sync.Mutex
	server  *electortest.Server // the primary
	servers []*electortest.Server
	actors  []*actor
}

// An actor sees to it that a candidate has a life, again and again.
type actor struct {
	*world
	n int

	mu   sync.Mutex
	life *life
	stop context.CancelFunc // ends this life
}

// Play plays a plan, and returns how the promises were broken, if they were. log
// may be nil.
func Play(p Plan, log func(string, ...any)) Outcome {
	w := &world{plan: p, judge: &judge{plan: p, start: time.Now(), lastLed: map[string]time.Time{}, tokens: map[string]int64{}, log: log}}
	w.store = &store{judge: w.judge, value: map[string]int64{}, token: map[string]int64{}}
	w.bellman = newBellman(w)
	w.adopt(electortest.NewServer(), w.store)
	ctx, stop := context.WithCancel(context.Background())
	var lives, faults sync.WaitGroup
	for n := range p.Candidates {
		a := &actor{world: w, n: n}
		w.actors = append(w.actors, a)
		first := a.begin(ctx, 0)
		lives.Go(func() { a.act(ctx, first) })
	}
	for _, f := range p.Faults {
		faults.Go(func() { w.strike(f) })
	}
	faults.Wait()
	w.awaitLeaders()
	stop()
	w.awaitEnd(&lives)
	time.Sleep(p.Lease + time.Second) // until the last farewell has arrived
	for _, s := range w.servers {
		if n := s.Connections(); n != 0 {
			w.judge.violated("%d connections are left", n)
		}
		s.Close()
	}
	return Outcome{Violations: w.judge.violations, Terms: w.judge.terms, Took: time.Since(w.judge.start)}
}

// An Outcome is what came of a plan.
type Outcome struct {
	Violations []string
	Terms      int
	Took       time.Duration // of virtual time
}

// adopt makes a server the primary, and what it stores the truth.
func (w *world) adopt(s *electortest.Server, truth *store) {
	s.Handle(truth.handle)
	s.Trace(func(e electortest.Event) {
		w.judge.trace(e)
		w.bellman.hear(e)
	})
	s.SetClockRate(w.plan.ClockRate)
	w.synchronize(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server, w.store = s, truth
	w.servers = append(w.servers, s)
}

// synchronize gives a server a standby for which commits wait, if the plan has any.
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

// begin begins the next life.
func (a *actor) begin(ctx context.Context, generation int) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.life = a.newLife(a.n, generation)
	ctx, a.stop = context.WithCancel(ctx)
	a.judge.join(a.life)
	return ctx
}

// act lives one life after the other, the first of which has begun.
func (a *actor) act(ctx, life context.Context) {
	sleep(ctx, a.plan.Candidates[a.n].Starts)
	for generation := 1; ; generation++ {
		a.life.live(life)
		a.leave()
		if !sleep(ctx, a.life.draw(0, a.plan.Lease)) {
			return
		}
		life = a.begin(ctx, generation)
	}
}

// leave ends a life, which owes something: a pool that carries nothing of it.
func (a *actor) leave() {
	l := a.life
	a.judge.mark(l, "leaves", func(s *standing) { s.dead = true })
	l.thaw()
	l.process.Mend()
	if n := l.pool.Stats().InUse; n != 0 && !sleep(context.Background(), 2*time.Second) && l.pool.Stats().InUse != 0 {
		a.judge.violated("%s leaves %d connections in use", l.id, n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range l.pool.Stats().Idle {
		conn, err := l.pool.Conn(ctx)
		if err != nil {
			break
		}
		defer conn.Close()
		q := db.New(conn)
		keys, _ := q.HeldLocks(ctx)
		ends, _ := q.SessionEnders(ctx)
		if len(keys)+len(ends) > 0 {
			a.judge.violated("%s has given back a session to the pool: locks %v, settings %v", l.id, keys, ends)
		}
	}
	_ = l.pool.Close()
}

// bound is how soon somebody must lead once all is well again: two leases for a
// barrier, one for a session that is silent, the longest pause between two attempts,
// and what it takes to give up calls that are stuck. If commits wait for a standby, it
// is two more: for an attempt whose commit waits, and until a primary may be led.
func (w *world) bound() time.Duration {
	bound := 4*w.plan.Lease + 10*w.plan.Retry + 5*time.Second
	if w.plan.Synchronous {
		bound += 2 * w.plan.Lease
	}
	return bound
}

// awaitLeaders waits until each election that has candidates was led.
func (w *world) awaitLeaders() {
	from := time.Now()
	for n := range min(w.plan.Elections, len(w.actors)) {
		for !w.led(election(n), from) {
			if time.Since(from) > w.bound() {
				w.judge.violated("nobody leads %s, %v after the last fault", election(n), time.Since(from))
				return
			}
			time.Sleep(w.plan.Heartbeat / 4)
		}
	}
}

func (w *world) led(election string, since time.Time) bool {
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	w.judge.look()
	return !w.judge.lastLed[election].Before(since)
}

// awaitEnd waits until all candidates have left.
func (w *world) awaitEnd(lives *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() {
		lives.Wait()
		close(ended)
	}()
	t := time.NewTimer(w.bound() + time.Minute)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
		w.judge.violated("a candidate does not stop: %s", w.whoIsLeft())
		<-ended
	}
}

func (w *world) whoIsLeft() string {
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	var left []string
	for _, s := range w.judge.seats {
		if !s.dead {
			left = append(left, s.id)
		}
	}
	return fmt.Sprint(slices.Compact(left))
}

// report notes an error that there must not be.
func (w *world) report(what string, err error) {
	if err != nil {
		w.judge.violated("%s: %v", what, err)
	}
}

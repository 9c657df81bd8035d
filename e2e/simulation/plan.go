package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/seat"
	"github.com/pgelector/pgelector/shard"
)

// A Plan is one simulation, with all that is drawn from its seed. Running it again repeats it,
// but for the order in which the Go runtime schedules goroutines.
type Plan struct {
	Seed      uint64
	Lease     time.Duration
	Drain     time.Duration
	Heartbeat time.Duration
	Retry     time.Duration
	Latency   time.Duration // at most, one way
	ClockRate float64       // of the server, relative to its clients
	Elections int
	// Shards is how many shards the candidates share out, as the members of one group; 0 means
	// that there is none. Moves, Interval and Sticky are its options.
	Shards           int
	Moves            int
	Interval, Sticky time.Duration
	// Synchronous means that commits wait for a standby and that all candidates have
	// WithSynchronousStandby.
	Synchronous bool
	LockDelay   bool // all candidates have WithLockDelay
	Prefers     bool // all candidates but those of a Session have WithPriority
	Candidates  []Candidate
	Faults      []Fault
}

// A Candidate is one process.
type Candidate struct {
	Starts time.Duration // after the beginning
	Kind   Kind
	// Takeover and Interval are for WithTakeover and WithDeputyInterval. A Session ignores them.
	Takeover  elector.Takeover
	Interval  time.Duration
	Writes    bool // in transactions of the term
	Health    bool // WithHealth
	Notified  bool // WithNotifier
	Transfers bool // transfers its terms
	Driver    electortest.Driver
	Scope     elector.Scope // WithScope, which a Session cannot have
	Pooled    bool          // it connects through a transaction pooler
	Priority  int32         // WithPriority, if the plan prefers
}

// A Kind is how a candidate uses the library.
type Kind string

const (
	runs      Kind = "Run"
	campaigns Kind = "Campaign"
	tries     Kind = "TryCampaign"
	starts    Kind = "Start"
	shares    Kind = "Session" // all elections, on one session
	members   Kind = "shard.Run"
)

var kinds = []Kind{runs, runs, campaigns, tries, starts, shares}

// A Fault is something that goes wrong for a while.
type Fault struct {
	At    time.Duration // after the beginning
	Lasts time.Duration // before it is undone
	Kind  FaultKind
	Of    int // the candidate, if the fault is of one
}

// Bounds of what is drawn.
const (
	mostCandidates = 4
	mostElections  = 2
	mostShards     = 12
	mostFaults     = 5
	period         = 12 * time.Second // all faults begin within it
)

// NewPlan draws a plan.
func NewPlan(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0))
	p := Plan{Seed: seed, Lease: time.Second + rand.N(4*time.Second), ClockRate: 1}
	p.Lease = between(r, time.Second, 5*time.Second).Truncate(time.Millisecond)
	p.Drain = between(r, 0, p.Lease/3)
	p.Heartbeat = between(r, max(50*time.Millisecond, p.Lease/10), (p.Lease-p.Lease/10-p.Drain)/2)
	p.Retry = between(r, 50*time.Millisecond, time.Second)
	p.Latency = pick(r, 0, time.Millisecond, 20*time.Millisecond, p.Heartbeat/4)
	p.ClockRate = 0.92 + 0.16*r.Float64()
	p.Elections = 1 + r.IntN(mostElections)
	for range 1 + r.IntN(mostCandidates) {
		p.Candidates = append(p.Candidates, newCandidate(r, p.Heartbeat))
	}
	for range r.IntN(mostFaults + 1) {
		p.Faults = append(p.Faults, newFault(r, p, faultKinds))
	}
	if p.share(rand.New(rand.NewPCG(seed, 1<<35))) {
		return p
	}
	p.replicate(rand.New(rand.NewPCG(seed, 1<<33)))
	p.pool(rand.New(rand.NewPCG(seed, 1<<34)))
	p.request(rand.New(rand.NewPCG(seed, 1<<36)))
	p.lose(rand.New(rand.NewPCG(seed, 1<<37)))
	p.prefer(rand.New(rand.NewPCG(seed, 1<<38)))
	return p
}

// prefer draws whether the candidates have a priority. On a slow link a transfer, which may take a lease, fails now and then, and is
// asked for again.
func (p *Plan) prefer(r *rand.Rand) {
	if p.Prefers = r.IntN(4) == 0; !p.Prefers {
		return
	}
	p.Latency = min(p.Latency, 20*time.Millisecond)
	for i := range p.Candidates {
		p.Candidates[i].Priority = pick[int32](r, -1, 0, 0, 1, 2)
	}
}

// asks reports whether the candidate asks a leader of lower priority for its lock.
func (c Candidate) asks() bool { return c.Kind == runs || c.Kind == campaigns || c.Kind == starts }

// lose draws whether the candidates have WithLockDelay, and whether the host of the primary dies.
func (p *Plan) lose(r *rand.Rand) {
	p.LockDelay = r.IntN(4) == 0
	if r.IntN(4) == 0 {
		p.Faults = append(p.Faults, newFault(r, *p, []FaultKind{"host dies", "host dies, failover"}))
	}
}

// replicate draws whether commits wait for a standby, and if so the faults of replication.
func (p *Plan) replicate(r *rand.Rand) {
	if p.Synchronous = r.IntN(4) == 0; !p.Synchronous {
		return
	}
	for i := range p.Candidates {
		if c := &p.Candidates[i]; c.Kind == shares { // a Session cannot have WithSynchronousStandby
			c.Kind = runs
		}
	}
	for range 1 + r.IntN(2) {
		p.Faults = append(p.Faults, newFault(r, *p, replicationFaults))
	}
}

// pool draws which candidates are in transaction scope, and whether they connect through a
// pooler. Neither goes with WithSynchronousStandby.
func (p *Plan) pool(r *rand.Rand) {
	if p.Synchronous || r.IntN(2) == 0 {
		return
	}
	for i := range p.Candidates {
		c := &p.Candidates[i]
		c.Pooled, c.Scope = r.IntN(2) == 0, pick(r, elector.Auto, elector.TransactionScope)
		if c.Pooled && c.Kind == shares {
			c.Kind = runs
		}
	}
	if r.IntN(2) == 0 {
		p.Faults = append(p.Faults, newFault(r, *p, []FaultKind{"pooler restart"}))
	}
}

// request draws whether somebody asks leaders to go.
func (p *Plan) request(r *rand.Rand) {
	for range r.IntN(4) - 1 {
		p.Faults = append(p.Faults, newFault(r, *p, []FaultKind{"request to resign", "request to transfer"}))
	}
}

// share draws whether the candidates are the members of a group of shards. Its work is done on
// a Session.
func (p *Plan) share(r *rand.Rand) bool {
	if r.IntN(24) > 0 {
		return false
	}
	p.Shards, p.Moves = 1+r.IntN(mostShards), pick(r, 1, 2, 16)
	p.Interval, p.Sticky = pick(r, 100*time.Millisecond, 300*time.Millisecond, p.Retry), pick(r, 0, 0, 0, p.Lease)
	for i := range p.Candidates {
		p.Candidates[i].Kind, p.Candidates[i].Transfers = members, false // members take shards as they have room
	}
	if r.IntN(2) == 0 {
		p.Faults = append(p.Faults, newFault(r, *p, []FaultKind{"shards change"}))
	}
	return true
}

func newCandidate(r *rand.Rand, heartbeat time.Duration) Candidate {
	c := Candidate{Starts: between(r, 0, time.Second), Kind: pick(r, kinds...), Writes: r.IntN(2) == 0,
		Health: r.IntN(3) == 0, Notified: r.IntN(3) == 0, Transfers: r.IntN(3) == 0,
		Driver: pick(r, electortest.PGX, electortest.PQ)}
	c.Takeover = pick(r, elector.Deputy, elector.Deputy, elector.Wait, elector.Poll)
	c.Interval = between(r, 10*time.Millisecond, heartbeat)
	return c
}

func newFault(r *rand.Rand, p Plan, kinds []FaultKind) Fault {
	return Fault{At: between(r, 0, period), Kind: pick(r, kinds...), Of: r.IntN(len(p.Candidates)),
		Lasts: between(r, 0, pick(r, p.Heartbeat, p.Lease, 2*p.Lease))}
}

// between draws a duration of at least least and less than most.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(r.Int64N(int64(most-least)))
}

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// String formats the plan for people.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: lease %v, drain %v, heartbeat %v, retry %v, latency up to %v, server's clock × %.3f, %d elections, %d shards (%d moves, every %v, sticky %v), synchronous %v, lock delay %v, prefers %v\n",
		p.Seed, p.Lease, p.Drain, p.Heartbeat, p.Retry, p.Latency, p.ClockRate, p.Elections, p.Shards, p.Moves, p.Interval, p.Sticky, p.Synchronous, p.LockDelay, p.Prefers)
	for i, c := range p.Candidates {
		fmt.Fprintf(&b, "  candidate %d: %+v\n", i, c)
	}
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  at %v for %v: %s of %d\n", f.At, f.Lasts, f.Kind, f.Of)
	}
	return b.String()
}

// shrink simplifies a plan that fails as long as it still fails: fewer faults, fewer
// candidates, fewer options.
func shrink(p Plan, fails func(Plan) bool) Plan {
	for smaller := true; smaller; {
		smaller = false
		for _, q := range simpler(p) {
			if fails(q) {
				p, smaller = q, true
				break
			}
		}
	}
	return p
}

// simpler returns all plans that are one step simpler.
func simpler(p Plan) (all []Plan) {
	for i := range p.Faults {
		q := p
		q.Faults = slices.Delete(slices.Clone(p.Faults), i, i+1)
		all = append(all, q)
	}
	for i := range p.Candidates {
		if q, ok := p.without(i); ok {
			all = append(all, q)
		}
	}
	change := func(needed bool, to func(*Plan)) {
		if !needed {
			return
		}
		q := p
		q.Candidates = slices.Clone(p.Candidates)
		to(&q)
		all = append(all, q)
	}
	for i, c := range p.Candidates {
		change(c.Writes, func(q *Plan) { q.Candidates[i].Writes = false })
		change(c.Health, func(q *Plan) { q.Candidates[i].Health = false })
		change(c.Notified, func(q *Plan) { q.Candidates[i].Notified = false })
		change(c.Transfers, func(q *Plan) { q.Candidates[i].Transfers = false })
		change(c.Takeover != elector.Poll, func(q *Plan) { q.Candidates[i].Takeover = elector.Poll })
		change(c.Driver != 0, func(q *Plan) { q.Candidates[i].Driver = 0 })
		change(c.Kind != runs && p.Shards == 0, func(q *Plan) { q.Candidates[i].Kind = runs })
	}
	change(p.Shards > 1, func(q *Plan) { q.Shards /= 2 })
	change(p.Sticky > 0, func(q *Plan) { q.Sticky = 0 })
	change(p.Latency > 0, func(q *Plan) { q.Latency = 0 })
	change(p.Prefers, func(q *Plan) { q.Prefers = false })
	change(p.LockDelay, func(q *Plan) { q.LockDelay = false })
	change(p.ClockRate != 1, func(q *Plan) { q.ClockRate = 1 })
	return all
}

// without removes a candidate and its faults.
func (p Plan) without(i int) (Plan, bool) {
	if len(p.Candidates) == 1 {
		return p, false
	}
	p.Candidates = slices.Delete(slices.Clone(p.Candidates), i, i+1)
	var faults []Fault
	for _, f := range p.Faults {
		switch {
		case f.Of == i:
			continue
		case f.Of > i:
			f.Of--
		}
		faults = append(faults, f)
	}
	p.Faults = faults
	return p, true
}

// A FaultKind names a fault.
type FaultKind string

// faults holds a function for each kind, which injects the fault and returns what undoes it.
var faults = map[FaultKind]func(*world, Fault) (undo func()){
	"request to resign":   request(false),
	"request to transfer": request(true),
	"kill -9": func(w *world, f Fault) func() {
		s := w.supervisors[f.Of]
		s.mu.Lock()
		i, stop := s.instance, s.stop
		s.mu.Unlock()
		w.judge.mark(i, "is killed", func(c *state) { c.dead = true })
		i.process.Kill()
		i.thaw()
		stop()
		return nothing
	},
	"graceful restart": func(w *world, f Fault) func() {
		s := w.supervisors[f.Of]
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stop()
		return nothing
	},
	"freeze": func(w *world, f Fault) func() {
		i := w.instanceOf(f)
		w.judge.mark(i, "is frozen", func(s *state) { s.frozen = true })
		i.freeze()
		return func() {
			w.checkFrozen(i, f)
			i.thaw()
			w.judge.thawed(i)
		}
	},
	"link down":     cut(electortest.Both),
	"requests lost": cut(electortest.Requests),
	"answers lost":  cut(electortest.Answers),
	"slow link": func(w *world, f Fault) func() {
		i := w.instanceOf(f)
		over := w.judge.shield(i)
		i.process.SetLatency(func() time.Duration { return i.draw(0, w.plan.Lease/2) })
		return func() {
			i.process.SetLatency(func() time.Duration { return i.draw(0, w.plan.Latency) })
			over(w.plan.Lease)
		}
	},
	"flapping health": func(w *world, f Fault) func() {
		i := w.instanceOf(f)
		i.setFlapping(true)
		return func() { i.setFlapping(false) }
	},
	"clock forward": func(w *world, f Fault) func() {
		w.instanceOf(f).process.ShiftClock(f.Lasts)
		return nothing
	},
	"clock back": func(w *world, f Fault) func() {
		w.instanceOf(f).process.ShiftClock(-f.Lasts)
		return nothing
	},
	"terminate": terminate(func(l electortest.Lock) bool {
		return !l.Guard && (l.Key == elector.KeyFromName(election(0)) || l.Key == elector.KeyFromName(shard.Election(group, "0")))
	}),
	"terminate both": terminate(func(l electortest.Lock) bool { // the leader and the deputy hold the seats
		return l.Guard && l.Key|1 == seat.Key(elector.KeyFromName(election(0)))|1
	}),
	"cancel": func(w *world, _ Fault) func() {
		s := w.primary()
		for _, l := range s.Locks() {
			s.Cancel(l.PID)
		}
		return nothing
	},
	"server restart": func(w *world, _ Fault) func() {
		s := w.primary()
		s.Stop()
		return s.Start
	},
	"server crash": func(w *world, _ Fault) func() {
		s := w.primary()
		s.Crash()
		return s.Start
	},
	"server stall": func(w *world, _ Fault) func() {
		s := w.primary()
		s.Stall()
		return s.Resume
	},
	"slow disk": func(w *world, f Fault) func() {
		s := w.primary()
		s.SetFlush(f.Lasts / 4)
		return func() { s.SetFlush(0) }
	},
	"lock table full": func(w *world, _ Fault) func() {
		s := w.primary()
		s.LimitLocks(max(1, len(s.Locks())))
		return func() { s.LimitLocks(0) }
	},
	"no connections left": func(w *world, _ Fault) func() {
		s := w.primary()
		s.LimitConnections(max(1, s.Connections()))
		return func() { s.LimitConnections(0) }
	},
	"failover": failover,
	"host dies": func(w *world, f Fault) func() {
		s := w.primary()
		s.LosePower()
		time.Sleep(f.Lasts / 4)
		s.Start()
		return s.Reset
	},
	"host dies, failover": func(w *world, f Fault) func() {
		old := w.primary()
		promote := replacePrimary(w, f, old.LosePower)
		time.Sleep(f.Lasts / 4)
		promote()
		return old.Reset
	},
	"pooler restart": func(w *world, _ Fault) func() {
		w.pooler.Restart()
		return nothing
	},

	"standbys cut": func(w *world, _ Fault) func() {
		s := w.primary()
		s.CutStandbys()
		return func() {
			if s == w.primary() { // otherwise its standby was promoted, and acknowledges nothing any more
				s.ReconnectStandbys()
			}
		}
	},
	"no synchronous standby": func(w *world, _ Fault) func() {
		s := w.primary()
		s.SetSynchronousStandbys("")
		return func() { w.synchronize(s) }
	},
	"two primaries": twoPrimaries,

	"shards change": func(w *world, f Fault) func() {
		w.setShards(1 + f.Of)
		return func() { w.setShards(w.plan.Shards) }
	},
}

// replicationFaults are the faults of synchronous plans only.
var replicationFaults = []FaultKind{"standbys cut", "no synchronous standby", "two primaries", "two primaries"}

// faultKinds are the faults of all plans, in a fixed order.
var faultKinds = []FaultKind{"kill -9", "graceful restart", "freeze", "link down", "requests lost", "answers lost", "slow link", "flapping health", "clock forward", "clock back", "terminate", "terminate both",
	"cancel", "server restart", "server crash", "server stall", "slow disk", "lock table full", "no connections left", "failover"}

func nothing() {}

// request asks the leader of the candidate's election to resign, or to transfer its lock to the
// candidate, from a process of its own. Undoing cancels it.
func request(transfer bool) func(*world, Fault) func() {
	return func(w *world, f Fault) func() {
		name, id := election(f.Of%w.plan.Elections), w.instanceOf(f).id
		pool := w.primary().NewProcess().Open()
		ctx, cancel := context.WithCancel(context.Background())
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			defer pool.Close()
			ask := func() (elector.Leader, error) { return elector.RequestResign(ctx, pool, name) }
			if transfer {
				ask = func() (elector.Leader, error) { return elector.RequestTransfer(ctx, pool, name, id) }
			}
			leader, err := ask()
			w.judge.note("a request of %s, to %s: %s leads, %v", name, id, leader.CandidateID, err)
			if transfer && err == nil && leader.CandidateID != id {
				w.judge.violated("a transfer to %s succeeded, and %s leads", id, leader.CandidateID)
			}
		}()
		return func() {
			cancel()
			select {
			case <-returned:
			case <-time.After(2 * time.Second):
				w.judge.violated("a request runs on 2 s after it was cancelled")
				<-returned
			}
		}
	}
}

// inject injects a fault, waits, and undoes it.
func (w *world) inject(f Fault) {
	time.Sleep(f.At)
	w.judge.note("fault: %s of %d", f.Kind, f.Of)
	undo := faults[f.Kind](w, f)
	time.Sleep(f.Lasts)
	w.judge.note("over: %s of %d", f.Kind, f.Of)
	undo()
}

func (w *world) instanceOf(f Fault) *instance {
	s := w.supervisors[f.Of]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.instance
}

// terminate terminates the sessions that hold a matching lock.
func terminate(matches func(electortest.Lock) bool) func(*world, Fault) func() {
	return func(w *world, _ Fault) func() {
		s := w.primary()
		for _, l := range s.Locks() {
			if l.Granted && matches(l) {
				s.Terminate(l.PID)
			}
		}
		return nothing
	}
}

func cut(loss electortest.Loss) func(*world, Fault) func() {
	return func(w *world, f Fault) func() {
		i := w.instanceOf(f)
		over := w.judge.shield(i)
		i.process.Cut(loss)
		return func() {
			i.process.Mend()
			over(0)
		}
	}
}

// failover crashes the primary for good and promotes its standby. All candidates connect to
// it from then on.
func failover(w *world, f Fault) func() { return replacePrimary(w, f, w.primary().Crash) }

// replacePrimary ends the primary, and returns what promotes its standby.
func replacePrimary(w *world, f Fault, end func()) (promote func()) {
	standby := w.primary().NewStandby(f.Of) // it may lag behind
	end()
	w.setPrimary(standby, w.store)
	for n := range w.supervisors {
		w.instanceOf(Fault{Of: n}).process.ConnectTo(standby)
	}
	return func() { _ = standby.Promote() }
}

// twoPrimaries cuts off the standby and promotes it, while the old primary runs on until the
// fault is undone. Candidates learn the new address one by one.
func twoPrimaries(w *world, f Fault) func() {
	old := w.primary()
	promoted := old.NewStandby(0)
	old.CutStandbys()
	_ = promoted.Promote()
	w.setPrimary(promoted, w.store.clone())
	for n := range w.supervisors {
		i := w.instanceOf(Fault{Of: n})
		time.AfterFunc(i.draw(0, f.Lasts), func() { i.process.ConnectTo(w.primary()) })
	}
	return old.Stop
}

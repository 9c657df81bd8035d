package simulation

import (
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/session"
	"github.com/pgelector/pgelector/shard"
)

// A FaultKind names a fault.
type FaultKind string

// faults holds a function for each kind, which injects the fault and returns what undoes it.
var faults = map[FaultKind]func(*world, Fault) (undo func()){
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
		i.process.SetLatency(func() time.Duration { return i.draw(0, w.plan.Lease/2) })
		return func() { i.process.SetLatency(func() time.Duration { return i.draw(0, w.plan.Latency) }) }
	},
	"flapping health": func(w *world, f Fault) func() {
		i := w.instanceOf(f)
		i.setFlapping(true)
		return func() { i.setFlapping(false) }
	},
	"clock forward": func(w *world, f Fault) func() {
		i := w.instanceOf(f)
		i.process.ShiftClock(f.Lasts)
		w.judge.clockJumped(i)
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
		return l.Guard && l.Key|1 == session.SeatKey(elector.KeyFromName(election(0)))|1
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
		i.process.Cut(loss)
		return i.process.Mend
	}
}

// failover crashes the primary for good and promotes its standby. All candidates connect to
// it from then on.
func failover(w *world, f Fault) func() {
	old := w.primary()
	standby := old.NewStandby(f.Of) // it may lag behind
	old.Crash()
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

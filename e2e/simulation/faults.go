package simulation

import (
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/session"
)

// A FaultKind names a fault.
type FaultKind string

// A fault is done, and after a while undone by what doing it has returned.
var faults = map[FaultKind]func(*world, Fault) (undo func()){
	"kill -9": func(w *world, f Fault) func() {
		a := w.actors[f.Of]
		a.mu.Lock()
		l, stop := a.life, a.stop
		a.mu.Unlock()
		w.judge.mark(l, "is killed", func(s *standing) { s.dead = true })
		l.process.Kill()
		l.thaw()
		stop()
		return nothing
	},
	"graceful restart": func(w *world, f Fault) func() {
		a := w.actors[f.Of]
		a.mu.Lock()
		defer a.mu.Unlock()
		a.stop()
		return nothing
	},
	"freeze": func(w *world, f Fault) func() {
		l := w.lifeOf(f)
		w.judge.mark(l, "is frozen", func(s *standing) { s.still = true })
		l.freeze()
		return func() {
			l.thaw()
			w.judge.thaws(l)
		}
	},
	"link down":     cut(electortest.Both),
	"requests lost": cut(electortest.Requests),
	"answers lost":  cut(electortest.Answers),
	"slow link": func(w *world, f Fault) func() {
		l := w.lifeOf(f)
		l.process.SetLatency(func() time.Duration { return l.draw(0, w.plan.Lease/2) })
		return func() { l.process.SetLatency(func() time.Duration { return l.draw(0, w.plan.Latency) }) }
	},
	"flapping health": func(w *world, f Fault) func() {
		l := w.lifeOf(f)
		l.flap(true)
		return func() { l.flap(false) }
	},
	"clock forward": func(w *world, f Fault) func() {
		l := w.lifeOf(f)
		l.process.ShiftClock(f.Lasts)
		w.judge.timeHasPassed(l)
		return nothing
	},
	"clock back": func(w *world, f Fault) func() {
		w.lifeOf(f).process.ShiftClock(-f.Lasts)
		return nothing
	},
	"terminate": terminate(func(l electortest.Lock) bool {
		return !l.Guard && l.Key == elector.KeyFromName(election(0))
	}),
	"terminate both": terminate(func(l electortest.Lock) bool { // the leader and the deputy, which hold the seats
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

	"standbys cut": func(w *world, _ Fault) func() {
		s := w.primary()
		s.CutStandbys()
		return func() {
			if s == w.primary() { // or its standby was promoted, and acknowledges nothing any more
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
}

// replicationFaults are those of plans that are synchronous.
var replicationFaults = []FaultKind{"standbys cut", "no synchronous standby", "two primaries", "two primaries"}

// faultKinds are their names, in a fixed order.
var faultKinds = []FaultKind{"kill -9", "graceful restart", "freeze", "link down", "requests lost", "answers lost", "slow link", "flapping health", "clock forward", "clock back", "terminate", "terminate both",
	"cancel", "server restart", "server crash", "server stall", "slow disk", "lock table full", "no connections left", "failover"}

func nothing() {}

// strike makes a fault happen, and waits until it is over.
func (w *world) strike(f Fault) {
	time.Sleep(f.At)
	w.judge.note("fault: %s of %d", f.Kind, f.Of)
	undo := faults[f.Kind](w, f)
	time.Sleep(f.Lasts)
	w.judge.note("over: %s of %d", f.Kind, f.Of)
	undo()
}

func (w *world) lifeOf(f Fault) *life {
	a := w.actors[f.Of]
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.life
}

// terminate terminates the sessions that hold such locks.
func terminate(such func(electortest.Lock) bool) func(*world, Fault) func() {
	return func(w *world, _ Fault) func() {
		s := w.primary()
		for _, l := range s.Locks() {
			if l.Granted && such(l) {
				s.Terminate(l.PID)
			}
		}
		return nothing
	}
}

func cut(loss electortest.Loss) func(*world, Fault) func() {
	return func(w *world, f Fault) func() {
		l := w.lifeOf(f)
		l.process.Cut(loss)
		return l.process.Mend
	}
}

// failover loses the primary for good and promotes its standby, to which all connect
// from then on.
func failover(w *world, f Fault) func() {
	old := w.primary()
	standby := old.NewStandby(f.Of) // it may lag behind
	old.Crash()
	w.adopt(standby, w.store)
	for n := range w.actors {
		w.lifeOf(Fault{Of: n}).process.ConnectTo(standby)
	}
	return func() { _ = standby.Promote() }
}

// twoPrimaries promotes the standby of a primary that runs on, cut off from it, until it
// is stopped. Candidates learn the new address one by one.
func twoPrimaries(w *world, f Fault) func() {
	old := w.primary()
	promoted := old.NewStandby(0)
	old.CutStandbys()
	_ = promoted.Promote()
	w.adopt(promoted, w.store.clone())
	for n := range w.actors {
		l := w.lifeOf(Fault{Of: n})
		time.AfterFunc(l.draw(0, f.Lasts), func() { l.process.ConnectTo(w.primary()) })
	}
	return old.Stop
}

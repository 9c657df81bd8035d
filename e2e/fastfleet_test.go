//go:build unix

package e2e_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// inServerFleet are processes of which the deputy waits in the server, and knows nothing of a
// hand-over by itself for long.
func inServerFleet(_ int, s *settings) {
	s.Standby, s.Watch = elector.Wait, true
	s.Lease, s.Heartbeat = time.Minute, patientWait
}

// waits waits until the deputy waits in the server, and returns its name.
func (f *fleet) waits(t *testing.T) (deputy string) {
	t.Helper()
	eventually(t, "the deputy waits", func() bool {
		queue := f.s.waiters(t, elector.KeyFromName(f.election))
		if len(queue) > 0 {
			deputy = queue[0]
		}
		return len(queue) == 1
	})
	return deputy
}

func TestAKilledLeaderIsReplacedByAWaitingDeputyAtOnce(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		f := onShared(t).launch(t, d, 4, inServerFleet)
		leader := f.leader(t, 0)
		for range 3 {
			deputy := f.waits(t)
			began := time.Now()
			f.kill(t, leader.ID)
			leader = f.leader(t, leader.Token)
			if leader.ID != deputy {
				t.Errorf("%s was elected, and %s waited", leader.ID, deputy)
			}
			soonAfter(t, "the hand-over", began)
		}
	})
}

func TestAKilledDeputyLeavesTheQueue(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		f := onShared(t).launch(t, d, 3, func(i int, s *settings) {
			inServerFleet(i, s)
			// The wait itself is no bound here, only that the server looks after its client.
			s.Heartbeat = 2 * time.Second
		})
		leader := f.leader(t, 0)
		key := elector.KeyFromName(f.election)
		dead := f.waits(t)
		// By process id: other tests have candidates of the same name.
		backends := list[int](t, f.s.admin, `SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid)
			WHERE locktype = 'advisory' AND ((classid::bigint << 32) | objid::bigint) = $1 AND application_name = $2`, key, dead)
		f.kill(t, dead)
		eventually(t, "the dead one has left the queue", func() bool {
			return !slices.Contains(f.s.waiters(t, key), dead) &&
				len(list[int](t, f.s.admin, "SELECT pid FROM pg_stat_activity WHERE pid = $1", backends[0])) == 0
		})
		f.command(t, leader.ID, commandResign)
		if fresh := f.leader(t, leader.Token); fresh.ID == dead {
			t.Error("a dead process was elected")
		}
	})
}

// The deputy is frozen while it waits, and the lock is granted to it then.
func TestALockThatIsGrantedToAFrozenDeputyIsFreedWithinTheLease(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		f := s.launch(t, d, 1, func(_ int, s *settings) { s.Standby, s.ID = elector.Wait, "leader" })
		leader := f.leader(t, 0)
		frozen, next := settings{}, settings{}
		for i, made := range []*settings{&frozen, &next} {
			*made = settings{Driver: d.name(i + 1), DSN: s.DSN(), Election: f.election, Standby: elector.Wait,
				Lease: 4 * time.Second, Heartbeat: 1400 * time.Millisecond, Retry: fleetRetry}
			made.ID = []string{"frozen", "next"}[i]
			f.start(t, *made)
			if deputy := f.waits(t); deputy != "frozen" {
				t.Fatalf("%s is the deputy", deputy)
			}
		}
		f.signal(t, "frozen", syscall.SIGSTOP)
		began := time.Now()
		f.command(t, leader.ID, commandResign)
		// The lock is the frozen one's now, unless its wait ran out in that instant.
		f.leader(t, leader.Token)
		if took := time.Since(began); took > 2*frozen.Lease {
			t.Errorf("the lock was free after %v, and the lease of the frozen one was %v", took, frozen.Lease)
		}
	})
}

// Three processes of a service that elects a thousand leaders.
func TestThreeProcessesLeadAThousandElections(t *testing.T) {
	t.Parallel()
	const n = 1000
	s := onShared(t)
	f := s.launch(t, mixed, 3, func(_ int, s *settings) {
		s.Elections, s.Watch = n, true
		s.Lease, s.Heartbeat, s.Retry = 10*time.Second, 2*time.Second, time.Second
	})
	// leaders are the processes that lead, by election, as they tell it.
	leaders := func() map[string]string {
		found := map[string]string{}
		for _, e := range f.entries() {
			switch e.Kind {
			case elected:
				found[e.Election] = e.ID
			case demoted:
				delete(found, e.Election)
			}
		}
		return found
	}
	eventually(t, "all are led", func() bool { return len(leaders()) == n })
	led := map[string]int{}
	for _, id := range leaders() {
		led[id]++
	}
	most := ""
	for id := range led {
		if most == "" || led[id] > led[most] {
			most = id
		}
	}
	before := len(f.entries())
	f.kill(t, most)
	eventually(t, "those of the killed one are led by others", func() bool {
		again := 0
		for _, e := range f.entries()[before:] {
			if e.Kind == elected {
				again++
			}
		}
		return again >= led[most]
	})
	for _, e := range f.entries()[before:] {
		if e.Kind == demoted && e.ID != most {
			t.Errorf("%s was demoted from election %s because %s", e.ID, e.Election, e.Text)
		}
	}
}

//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// However a leader ends, no two candidates believe to lead at the same time. launch judges
// the history.
func TestTwentyProcessesHaveOneLeaderAtATime(t *testing.T) {
	oneByOne(t, func(t *testing.T, d drivers) {
		f := onShared(t).launch(t, d, 20, shortLeases)
		leader := f.leader(t, 0)
		for _, end := range []func(id string){
			func(id string) { f.command(t, id, commandResign) },
			func(id string) { f.kill(t, id) },
			func(id string) { f.quit(t, id) },
			func(string) { f.terminateLeader(t) },
			func(id string) { f.signal(t, id, syscall.SIGSTOP) }, // until the end of the test
			func(id string) { f.command(t, id, commandResign) },
		} {
			end(leader.ID)
			leader = f.leader(t, leader.Token)
		}
	})
}

// A frozen leader cannot step down. The server ends its session, and after the thaw the
// clock shows the leader that its term is over.
func TestAFrozenLeaderIsReplacedAndKnowsItWhenThawed(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		f := onShared(t).launch(t, d, 1, func(i int, s *settings) { s.Spin, s.Lease = i == 0, short })
		old := f.leader(t, 0)
		f.join(t)
		f.join(t)
		f.signal(t, old.ID, syscall.SIGSTOP)
		frozen := monotonic()
		fresh := f.leader(t, old.Token)
		if fresh.ID == old.ID {
			t.Skip("the machine was too busy for the first leader")
		}
		thawed := monotonic()
		f.signal(t, old.ID, syscall.SIGCONT)
		blink := f.wait(t, "the thawed process calls IsLeader again", func(e entry) bool {
			return e.ID == old.ID && e.Kind == blinked && e.To >= thawed && e.From <= frozen+int64(short)
		})
		if blink.Believes {
			t.Error("the first IsLeader after the thaw is true")
		}
		for _, e := range f.entries() {
			if e.ID == old.ID && e.Kind == renewed && e.To > fresh.From {
				t.Errorf("the next leader was elected %d ns before the old one's deadline", e.To-fresh.From)
			}
		}
		if e := f.demotion(t, old.Token); e.Text != string(hooks.LeaseExpired) && e.Text != string(hooks.SessionLost) {
			t.Errorf("demoted because %s", e.Text)
		}
	})
}

// pg_locks shows a key in two unsigned halves.
func TestElectionsWorkWithEveryKey(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		db := s.database(t) // advisory locks are per database
		for _, key := range []int64{0, 1, -1, math.MaxInt32, math.MinInt32, 1<<32 - 1, 1 << 32, -1 << 32, math.MaxInt64, math.MinInt64} {
			t.Run(fmt.Sprint(key), func(t *testing.T) {
				first := s.stand(t, d.open(t, 0, db), "first", elector.WithKey(key)).run(t, nil)
				first.elected(t)
				second := s.stand(t, d.open(t, 1, db), "second", elector.WithKey(key)).run(t, nil)
				second.follows(t)
				if leader, err := second.Leader(soon(t)); err != nil || leader.CandidateID != first.CandidateID() {
					t.Errorf("the leader is %+v, %v; want %s", leader, err, first.CandidateID())
				}
				if term := termOf(t, first); term.Verify(soon(t)) != nil {
					t.Error("the server does not show the lock")
				}
				first.end(t)
				second.elected(t)
				second.end(t)
				if leader, err := first.Leader(soon(t)); !errors.Is(err, elector.ErrNoLeader) {
					t.Errorf("after all have ended, the leader is %+v, %v", leader, err)
				}
			})
		}
	})
}

// Keys with one equal half are different keys.
func TestKeysWithAnEqualHalfDoNotCollide(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	db := s.database(t)
	for _, key := range []int64{7, 7 | 7<<32, 7 << 32, 7 | -1<<32} {
		s.stand(t, pgx.open(t, 0, db), "any", elector.WithKey(key)).run(t, nil).elected(t)
	}
}

// waits waits until the deputy waits in the server, and returns its name. (A pooler may have lent
// the backend to a stranger between the look at its locks and the look at its name.)
func (f *fleet) waits(t *testing.T) (deputy string) {
	t.Helper()
	eventually(t, "the deputy waits", func() bool {
		queue := f.s.waiters(t, elector.KeyFromName(f.election))
		if len(queue) > 0 {
			deputy = queue[0]
		}
		return len(queue) == 1 && f.members[deputy] != nil
	})
	return deputy
}

func TestALockThatIsGrantedToAFrozenDeputyIsFreedWithinTheLease(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		const lease = 10 * time.Second
		f := onShared(t).launch(t, d, 1, func(i int, s *settings) {
			s.ID, s.Takeover = []string{"leader", "frozen", "next"}[i], elector.Wait
			if i > 0 {
				s.Lease, s.Heartbeat = lease, 3500*time.Millisecond
			}
		})
		leader := f.leader(t, 0)
		for range 2 {
			f.join(t)
			if deputy := f.waits(t); deputy != "frozen" {
				t.Fatalf("%s is the deputy", deputy)
			}
		}
		f.signal(t, "frozen", syscall.SIGSTOP)
		began := time.Now()
		f.command(t, leader.ID, commandResign)
		// The frozen deputy has the lock now, unless its wait ran out at that instant.
		f.leader(t, leader.Token)
		if took := time.Since(began); took > 2*lease {
			t.Errorf("the lock was free after %v, with a lease of %v", took, lease)
		}
	})
}

func TestTheLockIsHeldUntilLeadReturns(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		begun, cancelled, mayReturn := make(chan struct{}), make(chan struct{}), make(chan struct{})
		first := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, func(ctx context.Context, _ *elector.Term) error {
			close(begun)
			<-ctx.Done()
			close(cancelled)
			<-mayReturn
			return nil
		})
		first.elected(t)
		closed(t, "lead begins", begun)
		second := s.stand(t, d.open(t, 1, s.DSN()), election).run(t, nil)
		second.follows(t)
		first.stop()
		closed(t, "the term's context is done", cancelled)
		after := second.after()
		for range 5 {
			if attempt := next[hooks.Campaign](t, after, nil); attempt.Outcome != hooks.Busy {
				t.Errorf("attempt %s while lead had not returned", attempt.Outcome)
			}
		}
		close(mayReturn)
		closed(t, "Run returns", first.done)
		second.elected(t)
	})
}

//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// link is a server behind a network that can fail.
type link struct {
	*server
	proxy *pgcluster.Proxy
}

// behindAProxy has the proxy before the pooler, if there is one.
func behindAProxy(t *testing.T) link {
	t.Helper()
	return onShared(t).behindAProxy(t)
}

// behindARoute has no pooler: the proxy may lead to another server.
func behindARoute(t *testing.T) link {
	t.Helper()
	return withoutPooler(t, own(t)).behindAProxy(t)
}

func (s *server) behindAProxy(t *testing.T) link {
	t.Helper()
	addr := s.Addr()
	if s.pooler != nil {
		addr = s.pooler.Addr()
	}
	proxy, err := pgcluster.NewProxy(t.Context(), addr)
	check(t, err)
	t.Cleanup(func() { expect(t, proxy.Close()) })
	return link{s, proxy}
}

// cut is the address of the proxy.
func (l link) cut(opts ...pgcluster.DSNOption) string {
	return l.proxy.DSN(append(l.options(), opts...)...)
}

// stand makes a candidate whose pool uses the proxy.
func (l link) stand(t *testing.T, d drivers, i int, election string, opts ...elector.Option) *candidate {
	t.Helper()
	pool := d.open(t, i, l.cut(pgcluster.WithParam("connect_timeout", "2")))
	c := l.server.stand(t, pool, election, opts...)
	t.Cleanup(l.proxy.Heal) // after Run has returned
	return c
}

// frees waits until nobody holds the lock or the guard lock, and returns the time.
func (s *server) frees(t *testing.T, key int64) time.Time {
	t.Helper()
	eventually(t, "the server frees the lock", func() bool { return len(s.holders(t, key)) == 0 })
	return time.Now()
}

func TestACutOffLeaderStepsDownBeforeTheServerFreesTheLock(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		l := behindAProxy(t)
		ended := make(chan time.Time, 100) // of the term that is cut off, and of those that follow
		c := l.stand(t, d, 0, l.election(t), briefly).run(t, func(ctx context.Context, _ *elector.Term) error {
			<-ctx.Done()
			ended <- time.Now()
			return nil
		})
		old := c.elected(t)
		wait[hooks.Heartbeat](t, c, nil)
		after := c.after()
		l.proxy.BlackHole()
		freed := l.frees(t, c.Key())
		select {
		case at := <-ended:
			if at.After(freed) {
				t.Errorf("the leader's context was done %v after the lock was free", at.Sub(freed))
			}
		default:
			t.Error("the lock is free, and the leader's context is not done")
		}
		if c.IsLeader() {
			t.Error("IsLeader once the lock is free")
		}
		if e := wait[hooks.Demoted](t, c, nil); e.Reason != hooks.LeaseExpired {
			t.Errorf("demoted because %s: %v", e.Reason, e.Err)
		}
		l.proxy.Heal()
		if again := nextElected(t, after); again.Token <= old.Token {
			t.Errorf("token %d does not rise above %d", again.Token, old.Token)
		}
	})
}

func TestRunReturnsFromADeadLink(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*testing.T, *candidate){
		"leading":        func(*testing.T, *candidate) {},
		"in a heartbeat": func(*testing.T, *candidate) { time.Sleep(2 * heartbeat) }, // no event shows that one is under way
		"with a stuck Verify": func(t *testing.T, c *candidate) {
			term := termOf(t, c)
			short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			wraps(t, term.Verify(short), context.DeadlineExceeded)
			closed(t, "the term's context is done", term.Context().Done()) // what is stuck in the driver does not extend it
			wraps(t, context.Cause(term.Context()), elector.ErrLeaseExpired)
		},
		"after its term": func(t *testing.T, c *candidate) { wait[hooks.Demoted](t, c, nil) },
		"campaigning": func(t *testing.T, c *candidate) {
			wait(t, c, func(e hooks.Campaign) bool { return e.Outcome == hooks.Failed })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				l := behindAProxy(t)
				c := l.stand(t, d, 0, l.election(t), briefly).run(t, nil)
				c.elected(t)
				l.proxy.BlackHole()
				prepare(t, c)
				c.end(t) // while the link is dead
			})
		})
	}
}

// The lease limits the time of one statement, not of all statements of an election.
func TestACandidateOnASlowLinkIsElected(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		const length = 6 * time.Second // which the machine does not use up in a statement
		l := behindAProxy(t)
		roundTrip := length / 8
		if throughPooler {
			roundTrip /= 2 // one message inside a transaction is several statements
		}
		l.proxy.Slow(roundTrip/2, 0)
		l.stand(t, d, 0, l.election(t), elector.WithLease(length), elector.WithHeartbeatInterval(length/5)).run(t, nil).elected(t)
	})
}

// The kernel of a frozen server accepts connections, but nothing answers. A driver with
// several hosts tries the next one after connect_timeout, which is longer than the validity
// of a short lease.
func TestAFrozenFirstHostDoesNotPreventAnElection(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		frozen, living := own(t), own(t)
		check(t, frozen.Freeze())
		t.Cleanup(func() { check(t, frozen.Thaw()) })
		s := on(t, living)
		address := func(hosts, ports string) string {
			return fmt.Sprintf("host=%s port=%s user=postgres dbname=postgres sslmode=disable connect_timeout=5", hosts, ports)
		}

		c := s.stand(t, d.open(t, 0, address("127.0.0.1,127.0.0.1", fmt.Sprintf("%d,%d", frozen.Port(), living.Port()))), s.election(t), briefly).run(t, nil)
		c.elected(t)

		alone := s.stand(t, d.open(t, 0, address("127.0.0.1", fmt.Sprint(frozen.Port()))), s.election(t))
		alone.poolClosed = true // its pool is never usable
		alone.run(t, nil)
		f := wait[hooks.Failure](t, alone, nil)
		if !strings.Contains(f.Err.Error(), fmt.Sprintf("127.0.0.1:%d", frozen.Port())) {
			t.Errorf("the error does not name the host: %v", f.Err)
		}
	})
}

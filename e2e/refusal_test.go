//go:build unix

package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// refused runs a candidate and checks that it is refused permanently without ever holding the
// lock.
func (s *server) refused(t *testing.T, c *candidate, sentinel error) {
	t.Helper()
	err := c.Run(soon(t), nil)
	wraps(t, err, sentinel)
	if strings.Count(fmt.Sprint(err), sentinel.Error()) > 1 {
		t.Errorf("the error repeats itself: %v", err)
	}
	wait(t, c, func(f hooks.Failure) bool {
		return f.Op == hooks.OpCampaign && f.Permanent && errors.Is(f.Err, sentinel)
	})
	if n := len(c.rec.Elected()); n > 0 {
		t.Errorf("%d terms", n)
	}
	if pids := s.holders(t, c.Key()); len(pids) > 0 {
		t.Errorf("the lock was left on backends %v", pids)
	}
}

func TestAHotStandbyIsRefusedAfterTheReadOnlyTimeout(t *testing.T) {
	t.Parallel()
	primary := own(t)
	standby, err := primary.AddStandby(t.Context())
	check(t, err)
	overEach(t, func(t *testing.T, d drivers) {
		s := on(t, standby)
		for _, timeout := range []time.Duration{0, time.Second} {
			c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t), elector.WithReadOnlyTimeout(timeout))
			s.refused(t, c, elector.ErrServerReadOnly)
			if n := len(c.rec.Failures()); n > 1 != (timeout > 0) {
				t.Errorf("with a timeout of %v OnError reported %d attempts", timeout, n)
			}
		}
	})
}

// waysToAsk are settings that change how the drivers use the protocol, and so what a
// pooler sees.
var waysToAsk = map[string][]pgcluster.DSNOption{
	"pq":                 nil,
	"pq binary":          {pgcluster.WithParam("binary_parameters", "yes")},
	"pgx":                nil,
	"pgx simple":         {pgcluster.WithParam("default_query_exec_mode", "simple_protocol")},
	"pgx exec":           {pgcluster.WithParam("default_query_exec_mode", "exec")},
	"pgx describe":       {pgcluster.WithParam("default_query_exec_mode", "describe_exec")},
	"pgx cache describe": {pgcluster.WithParam("default_query_exec_mode", "cache_describe")},
}

func overWaysToAsk(t *testing.T, test func(t *testing.T, d drivers, opts []pgcluster.DSNOption)) {
	t.Helper()
	for name, opts := range waysToAsk {
		d := pgx
		if name[:2] == "pq" {
			d = pq
		}
		t.Run(name, func(t *testing.T) { test(t, d, opts) })
	}
}

func bounced(t *testing.T, c *pgcluster.Cluster, mode pgcluster.PoolMode, opts ...pgcluster.BouncerOption) *pgcluster.Bouncer {
	t.Helper()
	b, err := c.Bouncer(t.Context(), mode, opts...)
	if errors.Is(err, pgcluster.ErrNoBouncer) {
		t.Skip(err)
	}
	check(t, err)
	t.Cleanup(func() { expect(t, b.Stop()) })
	return b
}

// TestEachCheckFindsATransactionPoolerAndNoneASessionPooler has other numbers of backends.
func TestSessionScopeIsRefusedThroughAPooler(t *testing.T) {
	t.Parallel()
	for mode, scope := range map[pgcluster.PoolMode]elector.Scope{pgcluster.Transaction: elector.SessionScope, pgcluster.Statement: elector.Auto} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			s := onShared(t)
			b := bounced(t, s.Cluster, mode, pgcluster.WithPoolSize(2))
			overWaysToAsk(t, func(t *testing.T, d drivers, opts []pgcluster.DSNOption) {
				if mode == pgcluster.Statement { // to refuse it takes ten seconds
					t.Parallel()
				}
				c := s.stand(t, d.open(t, 0, b.DSN(opts...)), s.election(t), elector.WithScope(scope))
				c.moved = true
				s.refused(t, c, elector.ErrSessionPooled)
			})
		})
	}
}

// In session mode each client of a pooler has its own backend while it is connected.
func TestElectionsWorkThroughASessionPooler(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	b := bounced(t, s.Cluster, pgcluster.Session, pgcluster.WithPoolSize(20))
	overWaysToAsk(t, func(t *testing.T, d drivers, opts []pgcluster.DSNOption) {
		election := s.election(t)
		first := s.stand(t, d.open(t, 0, b.DSN(opts...)), election).run(t, nil)
		second := s.stand(t, d.open(t, 0, b.DSN(opts...)), election).run(t, nil)
		first.shared, second.shared = true, true
		old := firstLeader(t, []*candidate{first, second}, 0)
		leader, follower := first, second
		if old.CandidateID == second.CandidateID() {
			leader, follower = second, first
		}
		follower.follows(t)
		wait[hooks.Heartbeat](t, leader, nil)
		leader.end(t)
		if fresh := follower.elected(t); fresh.Token <= old.Token {
			t.Errorf("token %d does not rise above %d", fresh.Token, old.Token)
		}
	})
}

func TestElectionsWorkInEveryQueryMode(t *testing.T) {
	t.Parallel()
	overWaysToAsk(t, func(t *testing.T, d drivers, opts []pgcluster.DSNOption) {
		s := onShared(t)
		c := s.stand(t, d.open(t, 0, s.DSN(opts...)), s.election(t)).run(t, nil)
		c.leads(t, d.listens())
		term := termOf(t, c)
		wait[hooks.Heartbeat](t, c, nil)
		expect(t, term.Verify(soon(t)))
		if leader, err := c.Leader(soon(t)); err != nil || leader.CandidateID != c.CandidateID() {
			t.Errorf("the leader is %+v, %v", leader, err)
		}
	})
}

//go:build unix

package e2e_test

import (
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// watched is a server whose administrator looks for waits and for slow statements.
func watched(t *testing.T) *server {
	t.Helper()
	return on(t, own(t, pgcluster.WithSetting("autovacuum", "off"), pgcluster.WithSetting("log_checkpoints", "off"),
		pgcluster.WithSetting("log_lock_waits", "on"), pgcluster.WithSetting("log_min_duration_statement", "250ms"),
		pgcluster.WithSetting("log_statement", "none")))
}

// logsNothing checks that the server logs no line for longer than a heartbeat interval. On a
// busy machine any statement may be slow, so it looks again. If the server logged waits, it
// would log each.
func (s *server) logsNothing(t *testing.T, when string, interval time.Duration) {
	t.Helper()
	said := ""
	for range 8 {
		before, err := s.ServerLog()
		check(t, err)
		time.Sleep(interval + time.Second)
		after, err := s.ServerLog()
		check(t, err)
		if said = after[len(before):]; said == "" {
			return
		}
	}
	t.Errorf("%s the server logged: %s", when, said)
}

func TestFollowingIsNotLoggedByAServerThatIsWatched(t *testing.T) {
	t.Parallel()
	overTakeovers(t, func(t *testing.T, d drivers, takeover elector.Option) {
		s := watched(t)
		// With the default lease, so that nothing but the server's settings makes waits short.
		const interval = 5 * time.Second
		opts := []elector.Option{takeover, elector.WithLease(15 * time.Second), elector.WithHeartbeatInterval(interval)}
		election := s.election(t)
		var all []*candidate
		for i := range 3 {
			all = append(all, s.stand(t, d.open(t, i, s.DSN()), election, opts...).run(t, nil))
			wait[hooks.Campaign](t, all[i], nil)
		}
		leader := all[0]
		leader.elected(t)
		silent := func(when string, waits bool) {
			t.Helper()
			eventually(t, when+" the deputy waits, or does not", func() bool {
				queue := len(s.waiters(t, leader.Key()))
				return (queue > 0) == (waits && all[1].Settings().Takeover == elector.Wait)
			})
			s.logsNothing(t, when, interval)
		}
		silent("at first", true)
		s.set(t, "deadlock_timeout", "60ms")
		s.set(t, "log_min_duration_statement", "-1")
		silent("with a short deadlock_timeout", false)
		s.set(t, "log_min_duration_statement", "80ms")
		s.set(t, "deadlock_timeout", "1s")
		silent("with a short log_min_duration_statement", false)
		s.set(t, "log_min_duration_statement", "-1")
		leader.end(t)
		firstLeader(t, all, leader.elected(t).Token)
		silent("after a hand-over, with the default deadlock_timeout", true)
	})
}

// By default no backend of a leader or a follower is active and waits, or holds back vacuum
// between two statements. (An active backend may read a page, or its client's next message.)
func TestByDefaultNobodyIsSeenToWait(t *testing.T) {
	inSessionScope(t, "a leader is idle in its transaction")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := on(t, own(t, pgcluster.WithSetting("autovacuum", "off")))
		election := s.election(t)
		var all []*candidate
		for i := range 3 {
			all = append(all, s.stand(t, d.open(t, i, s.DSN()), election).run(t, nil))
		}
		leader := firstLeader(t, all, 0)
		s.deputy(t, all)
		for _, c := range all {
			if c.CandidateID() != leader.CandidateID {
				c.follows(t) // its first check is over, which tries settings in a transaction
			}
		}
		for range 200 {
			seen := list[string](t, s.admin, `SELECT concat_ws(' ', application_name, state, wait_event_type, wait_event, backend_xmin, query) FROM pg_stat_activity
				WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
					AND (state = 'active' AND wait_event_type NOT IN ('LWLock', 'IO', 'Client') OR state <> 'active' AND (backend_xmin IS NOT NULL OR state <> 'idle'))`)
			if len(seen) > 0 {
				t.Fatalf("seen: %q", seen)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

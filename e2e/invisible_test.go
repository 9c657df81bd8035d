//go:build unix

package e2e_test

import (
	"strings"
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

// logsNothing checks that the server logs nothing while leaders lead and followers follow. It
// allows a few lines, since on a busy machine a statement may be slow. If the server logged
// waits, there would be more than ten lines.
func (s *server) logsNothing(t *testing.T, when string) {
	t.Helper()
	var said []string
	for range 5 {
		before, err := s.ServerLog()
		check(t, err)
		time.Sleep(3 * time.Second)
		after, err := s.ServerLog()
		check(t, err)
		if said = errorsIn(after[len(before):]); len(said) <= 3 {
			return
		}
	}
	t.Errorf("%s the server logged: %s", when, strings.Join(said, ""))
}

func TestFollowingIsNotLoggedByAServerThatIsWatched(t *testing.T) {
	t.Parallel()
	overStandbys(t, func(t *testing.T, d drivers, standby elector.Option) {
		s := watched(t)
		// With the default lease, so that nothing but the server's settings makes waits short.
		opts := []elector.Option{standby, elector.WithLease(15 * time.Second), elector.WithHeartbeatInterval(5 * time.Second), elector.WithWatch()}
		election := s.election(t)
		var all []*candidate
		for i := range 3 {
			all = append(all, s.stand(t, d.open(t, i, s.DSN()), election, opts...).run(t, nil))
			wait[hooks.Campaign](t, all[i], nil)
		}
		leader := all[0]
		leader.elected(t)
		s.logsNothing(t, "at first")
		s.set(t, "deadlock_timeout", "60ms")
		s.set(t, "log_min_duration_statement", "-1")
		time.Sleep(time.Second) // until earlier waits have ended
		s.logsNothing(t, "with a short deadlock_timeout")
		s.set(t, "log_min_duration_statement", "80ms")
		s.set(t, "deadlock_timeout", "1s")
		time.Sleep(time.Second)
		s.logsNothing(t, "with a short log_min_duration_statement")
		leader.end(t)
		firstLeader(t, all, leader.elected(t).Token)
		s.logsNothing(t, "after a hand-over")
	})
}

// By default no backend of a leader or a follower waits for a lock, or holds back vacuum
// between two statements.
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
					AND (wait_event_type = 'Lock' OR state <> 'active' AND (backend_xmin IS NOT NULL OR state <> 'idle'))`)
			if len(seen) > 0 {
				t.Fatalf("seen: %q", seen)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

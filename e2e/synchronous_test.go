//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/syncrep"
)

// A replica is a standby and its link to the primary, which can be cut.
type replica struct {
	*server // the standby
	*pgcluster.Proxy
}

// replicate starts standbys with those names and sets synchronous_standby_names.
func (s *server) replicate(t *testing.T, setting string, names ...string) (standbys []replica) {
	t.Helper()
	for _, name := range names {
		standby, err := s.AddStandby(t.Context())
		check(t, err)
		proxy, err := s.Proxy(t.Context())
		check(t, err)
		l := replica{on(t, standby), proxy}
		l.set(t, "primary_conninfo", proxy.DSN(pgcluster.WithParam("application_name", name)))
		eventually(t, name+" streams", func() bool {
			return one[bool](t, s.admin, "SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = $1 AND state = 'streaming'", name)
		})
		standbys = append(standbys, l)
	}
	s.set(t, "synchronous_standby_names", setting)
	return standbys
}

// set changes a setting of the server and waits until new connections have it.
func (s *server) set(t *testing.T, name, value string) {
	t.Helper()
	_, err := s.admin.Exec("ALTER SYSTEM SET " + name + " = '" + value + "'")
	check(t, err)
	_, err = s.admin.Exec("SELECT pg_reload_conf()")
	check(t, err)
	eventually(t, name+" is set", func() bool { return one[string](t, s.admin, "SELECT current_setting($1)", name) == value })
}

// write has each standby report how far it is. A commit that waits while the list of standbys
// is changed goes on waiting until a listed one reports (PostgreSQL's walsender.c).
func (s *server) write(t *testing.T) {
	t.Helper()
	tx, err := s.admin.Begin()
	check(t, err)
	defer tx.Rollback()
	_, err = tx.Exec("SET LOCAL synchronous_commit = local")
	check(t, err)
	_, err = tx.Exec("SELECT pg_logical_emit_message(true, '', '')")
	check(t, err)
	check(t, tx.Commit())
}

// waiting counts the commits that wait for a standby.
func (s *server) waiting(t *testing.T) int {
	t.Helper()
	return one[int](t, s.admin, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
}

// synchronously are the options of a fleet whose terms end without commits.
var synchronously = []elector.Option{briefly, elector.WithSynchronousStandby(short)}

// A standby is promoted while its primary is cut off and keeps running. Both get a leader,
// but with WithSynchronousStandby never at the same time.
func TestWithASynchronousStandbyTwoPrimariesDoNotHaveTwoLeadersAtOnce(t *testing.T) {
	inSessionScope(t, "WithSynchronousStandby is refused")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		for name, opts := range map[string][]elector.Option{"without": nil, "with": synchronously,
			"with, waiting": append(slices.Clone(synchronously), elector.WithTakeover(elector.Wait))} {
			if len(opts) == 0 && d.name(0) != "pgx" {
				continue // it shows that the others show something
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				primary := on(t, own(t, pgcluster.WithSetting("full_page_writes", "on"))) // needed for a standby of a standby
				standby := primary.replicate(t, "FIRST 1 (s1)", "s1")[0]
				promoted, election := standby.server, unique(t.Name())
				promoted.replicate(t, "FIRST 1 (s2)", "s2") // otherwise nobody could lead there
				var address atomic.Pointer[string]
				move := func(to *server) { dsn := to.DSN(); address.Store(&dsn) }
				move(primary)
				old := primary.stand(t, d.open(t, 0, primary.DSN()), election, opts...).run(t, nil)
				old.elected(t)
				pool := d.openMoving(t, 1, &address)
				pool.SetMaxIdleConns(0) // each attempt connects to the current address
				next := promoted.stand(t, pool, election, opts...).run(t, nil)
				next.follows(t)

				standby.BlackHole()
				check(t, promoted.Promote(soon(t)))
				began := time.Now()
				move(promoted)
				if len(opts) == 0 {
					next.elected(t)
					if !old.IsLeader() || !next.IsLeader() {
						t.Error("without the option there are not two leaders: the test shows nothing")
					}
					return
				}
				both := overlap(old, next)
				lost, won := wait[hooks.Demoted](t, old, nil), next.elected(t)
				if both() {
					t.Error("two believed to lead at the same time")
				}
				if lost.Reason != hooks.LeaseExpired || !errors.Is(lost.Err, elector.ErrLeaseExpired) {
					t.Errorf("demoted because %s: %v", lost.Reason, lost.Err)
				}
				if !lost.At.Before(won.At) || won.At.Sub(began) < short {
					t.Errorf("the old leader stepped down %v after the promotion, the next was elected after %v", lost.At.Sub(began), won.At.Sub(began))
				}
				term, leading := next.Term()
				if !leading || term.Verify(soon(t)) != nil {
					t.Error("the next leader's term does not hold")
				}
			})
		}
	})
}

// overlap checks again and again whether both believe to lead, until both is called.
func overlap(a, b *candidate) (both func() bool) {
	done, result := make(chan struct{}), make(chan bool, 1)
	go func() {
		seen := false
		for {
			seen = seen || a.IsLeader() && b.IsLeader()
			select {
			case <-done:
				result <- seen
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() bool { close(done); return <-result }
}

// A leader is cut off while its commit waits. The backend keeps waiting without a client.
func TestCommitsDoNotPileUpBehindAnAbandonedCommit(t *testing.T) {
	inSessionScope(t, "WithSynchronousStandby is refused")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		primary := on(t, own(t))
		standby := primary.replicate(t, "FIRST 1 (s1)", "s1")[0]
		way, err := primary.Proxy(t.Context())
		check(t, err)
		election := primary.election(t)
		first := primary.stand(t, d.open(t, 0, way.DSN()), election, synchronously...).run(t, nil)
		first.elected(t)
		second := primary.stand(t, d.open(t, 1, primary.DSN()), election, synchronously...).run(t, nil)
		t.Cleanup(func() { // also if the test fails, or the clean-up of the candidates waits for ever
			standby.Heal()
			way.Heal()
		})
		second.follows(t)

		standby.BlackHole()
		eventually(t, "a commit waits that was not acknowledged just before", func() bool {
			return one[int](t, primary.admin, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND clock_timestamp() - query_start > '400 ms'") == 1
		})
		way.BlackHole()
		attempts := second.after()
		for range 2 {
			next(t, attempts, func(f hooks.Failure) bool {
				return strings.Contains(f.Err.Error(), "an earlier one of this election still waits")
			})
			if n := primary.waiting(t); n != 1 {
				t.Errorf("%d commits wait", n)
			}
		}
		standby.Heal()
		second.elected(t)
		way.Heal()
	})
}

// With FIRST 1 (s1, s2), s2 would acknowledge the old primary's commits after s1 was
// promoted.
func TestASynchronousStandbySettingThatIsTooWeakIsRefused(t *testing.T) {
	inSessionScope(t, "WithSynchronousStandby is refused")
	t.Parallel()
	primary := on(t, own(t))
	standbys := primary.replicate(t, "FIRST 1 (s1, s2)", "s1", "s2")
	c := primary.stand(t, pgx.open(t, 0, primary.DSN()), primary.election(t), synchronously...).run(t, nil)
	refused := func(setting, why string) {
		t.Helper()
		primary.set(t, "synchronous_standby_names", setting)
		from := c.after()
		f := next(t, from, func(f hooks.Failure) bool { return strings.Contains(f.Err.Error(), why) })
		if wraps(t, f.Err, elector.ErrNotSynchronous); f.Permanent {
			t.Errorf("%q is refused permanently", setting)
		}
	}
	refused("FIRST 1 (s1, s2)", "commits wait for 1 of 2 standbys")
	refused("*", "* is any standby")
	refused("FIRST 2 (s1, S1)", "it names")
	refused("FIRST 3 (s1, s2, s3)", `standby "s3"`)
	if n := len(c.rec.Elected()); n > 0 {
		t.Fatalf("elected %d times", n)
	}
	primary.set(t, "synchronous_standby_names", `FIRST 2 (S1, "s2")`)
	c.elected(t)

	// The setting changes during the term, which ends properly: the lock is released.
	from := c.after()
	primary.set(t, "synchronous_standby_names", "FIRST 1 (s1, s2)")
	eventually(t, "the term ends", func() bool { primary.write(t); return len(c.rec.Demoted()) > 0 })
	lost := next[hooks.Demoted](t, from, nil)
	if wraps(t, lost.Err, elector.ErrNotSynchronous); errors.Is(lost.Err, elector.ErrLeaseExpired) {
		t.Errorf("the lease has ended the term: %v", lost.Err)
	}
	primary.set(t, "synchronous_standby_names", "ANY 2 (s1, s2)")
	next[hooks.Elected](t, from, nil)
	for _, f := range c.rec.Failures() {
		if f.Op == hooks.OpRelease {
			t.Errorf("the lock was not released: %v", f.Err)
		}
	}
	// One of the two standbys is promoted, and the other keeps streaming.
	check(t, standbys[0].Promote(soon(t)))
	if lost := next[hooks.Demoted](t, from, nil); lost.Reason != hooks.LeaseExpired {
		t.Errorf("demoted because %s: %v", lost.Reason, lost.Err)
	}
	check(t, standbys[0].Shutdown(soon(t), pgcluster.Fast))
}

// The library and the server accept the same lists and give a standby the same position.
func TestListedStandbysAgreesWithTheServer(t *testing.T) {
	t.Parallel()
	primary := on(t, own(t))
	primary.replicate(t, "", "s1")
	for _, setting := range []string{"s1", `"s1"`, "S1", "FIRST 1 (s1)", "first 2 (a, s1)", `2(a,"S1")`, "ANY 1 (s1)", `FIRST 3 ("a""b", c$1, s1)`,
		`FIRST 2 ("s1 ", s1)`, "FIRST 2 (s11, s1)", "FIRST 2 (1, s1)", "FIRST 02 (_x, s1)", "FIRST 1 (x)", `FIRST 2 ("any", s1)`,
		"FIRST 0 (s1)", "FIRST (s1)", "s1,", "FIRST 1 (s1", "s1 s2", "FIRST 1 ()", "s-1", `"s1`, "$s1", "2s", `FIRST "1" (s1)`, "FIRST 1.5 (s1)", "any", "FIRST 1 (first)"} {
		_, refused := primary.admin.Exec("ALTER SYSTEM SET synchronous_standby_names = '" + setting + "'")
		names, err := syncrep.ListedStandbys(setting)
		if (refused == nil) != (err == nil) {
			t.Errorf("%q: the server says %v, and %q was read, %v", setting, refused, names, err)
		}
		if refused != nil || err != nil {
			continue
		}
		primary.set(t, "synchronous_standby_names", setting)
		place := 1 + slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, "s1") })
		eventually(t, setting+" is in force", func() bool {
			return one[int](t, primary.admin, "SELECT sync_priority FROM pg_stat_replication WHERE application_name = 's1'") == place
		})
	}
}

// docs/servers.md has this figure.
func TestASynchronousCommitWritesLittleWAL(t *testing.T) {
	t.Parallel()
	primary := on(t, own(t, pgcluster.WithSetting("autovacuum", "off"), pgcluster.WithSetting("full_page_writes", "off")))
	conn, err := primary.admin.Conn(t.Context())
	check(t, err)
	defer conn.Close()
	const key, commits = 4711, 1000
	_, err = primary.admin.Exec("CHECKPOINT")
	check(t, err)
	other := pgx.open(t, 0, primary.Cluster.DSN())
	other.SetMaxOpenConns(1)
	one[bool](t, other, "SELECT pg_try_advisory_lock(0, $1)", key)
	written := func() int64 { return one[int64](t, conn, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn") }
	before := written()
	for range commits {
		row, err := db.New(conn).CommitSynchronously(t.Context(), db.CommitSynchronouslyParams{SessionLow: key, ScopeLow: 1})
		check(t, err)
		if row.Outcome != "committed" {
			t.Fatalf("outcome %q", row.Outcome)
		}
	}
	each := (written() - before) / commits
	t.Logf("%d bytes of log for each of %d commits", each, commits)
	if each > 150 {
		t.Errorf("%d bytes of log for each commit", each)
	}
}

// If a commit that waits for a standby is cancelled, the server answers as if it had been
// acknowledged.
func TestACommitWhoseWaitIsCancelledIsNotAcknowledged(t *testing.T) {
	inSessionScope(t, "WithSynchronousStandby is refused")
	t.Parallel()
	for name, tt := range map[string]struct {
		sees  bool          // the role can read the standbys' positions
		after time.Duration // how long a commit waits before it is cancelled
		away  bool          // the standby is down
	}{
		"at once, a privileged role":                      {true, 0, false},
		"later, an ordinary role":                         {false, short * 7 / 20, false}, // half of the validity
		"at once, a privileged role, the standby is down": {true, 0, true},
		"at once, an ordinary role, the standby is down":  {false, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := on(t, own(t))
			role := primary.role(t, nil)
			if tt.sees {
				_, err := primary.admin.Exec(`GRANT pg_read_all_stats TO "` + role + `"`)
				check(t, err)
			}
			standby := primary.replicate(t, "FIRST 1 (s1)", "s1")[0]
			var all []*candidate
			for i := range mixed {
				pool := mixed.open(t, i, primary.DSN(pgcluster.ForRole(role)))
				all = append(all, primary.stand(t, pool, primary.election(t), synchronously...).run(t, nil))
			}
			for _, c := range all {
				c.survives(t, short)
			}
			if tt.away {
				check(t, standby.Shutdown(soon(t), pgcluster.Fast))
			} else {
				standby.BlackHole()
			}
			stop := primary.cancelWaits(t, tt.after)
			var demoted []hooks.Demoted
			for _, c := range all {
				demoted = append(demoted, wait[hooks.Demoted](t, c, nil))
			}
			cancelled := stop()
			for i, lost := range demoted {
				if !cancelled[all[i].CandidateID()] {
					t.Errorf("%s: nothing was cancelled: the test shows nothing", mixed.name(i))
				}
				if lost.Reason != hooks.LeaseExpired {
					t.Errorf("%s: demoted because %s: %v", mixed.name(i), lost.Reason, lost.Err)
				}
			}
			standby.Heal()
			if tt.away {
				primary.set(t, "synchronous_standby_names", "")
			}
			eventually(t, "no commit waits", func() bool { return primary.waiting(t) == 0 })
		})
	}
}

// cancelWaits cancels each commit that has waited for its standbys for that long, until it is
// stopped, and returns whose they were, by application_name.
func (s *server) cancelWaits(t *testing.T, after time.Duration) (stop func() (whose map[string]bool)) {
	ctx, cancel := context.WithCancel(context.Background())
	counted := make(chan map[string]bool)
	go func() {
		whose := map[string]bool{}
		for ctx.Err() == nil {
			for _, name := range list[string](t, s.admin, `SELECT concat(application_name, CASE WHEN NOT pg_cancel_backend(pid) THEN ' ended' END) FROM pg_stat_activity
				WHERE wait_event = 'SyncRep' AND query_start < clock_timestamp() - $1::bigint * interval '1 microsecond'`, after.Microseconds()) {
				whose[name] = true
			}
			time.Sleep(10 * time.Millisecond)
		}
		counted <- whose
	}()
	return func() map[string]bool {
		cancel()
		return <-counted
	}
}

// Such is a base backup, which may have the name of a standby.
func TestASenderThatDoesNotSayHowFarItIsIsBehind(t *testing.T) {
	t.Parallel()
	primary := on(t, own(t))
	sender, err := pgx.open(t, 0, primary.Cluster.DSN(pgcluster.WithParam("application_name", "s1"), pgcluster.WithParam("replication", "database"))).Conn(soon(t))
	check(t, err)
	defer sender.Close()
	role := primary.role(t, nil)
	for _, sees := range []bool{false, true} {
		if sees {
			_, err := primary.admin.Exec(`GRANT pg_read_all_stats TO "` + role + `"`)
			check(t, err)
		}
		row, err := db.New(pgx.open(t, 0, primary.Cluster.DSN(pgcluster.ForRole(role)))).SynchronousStandbys(soon(t), "0/1")
		check(t, err)
		if behind := strings.Contains(row.Senders, "true"); behind != sees || !strings.Contains(row.Senders, "s1") {
			t.Errorf("a role that sees it (%t) reads %s", sees, row.Senders)
		}
	}
}

//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/fence"
	"github.com/pgelector/pgelector/hooks"
)

// moving connects to the current address, as a host name that moves would.
type moving struct {
	under   driver.Driver
	address *atomic.Pointer[string]
}

func (m moving) Connect(context.Context) (driver.Conn, error) { return m.under.Open(*m.address.Load()) }
func (m moving) Driver() driver.Driver                        { return m.under }

// openMoving opens the i-th candidate's pool at the address.
func (d drivers) openMoving(t *testing.T, i int, address *atomic.Pointer[string]) *sql.DB {
	t.Helper()
	under := d.open(t, i, *address.Load()).Driver()
	pool := sql.OpenDB(moving{under, address})
	t.Cleanup(func() { expect(t, pool.Close()) })
	return pool
}

func TestATokenRisesAcrossAPromotion(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		primary := own(t)
		standby, err := primary.AddStandby(t.Context())
		check(t, err)
		p, s := on(t, primary), on(t, standby)
		election := s.election(t)
		var address atomic.Pointer[string]
		move := func(to *server) { dsn := to.DSN(); address.Store(&dsn) }
		move(p)
		var all []*candidate
		for i := range 2 {
			all = append(all, s.stand(t, d.openMoving(t, i, &address), election).run(t, nil))
		}
		old := firstLeader(t, all, 0)
		leader, follower := all[0], all[1]
		if leader.CandidateID() != old.CandidateID {
			leader, follower = follower, leader
		}
		follower.follows(t)
		check(t, primary.Kill())
		move(s)
		if e := wait[hooks.Demoted](t, leader, nil); e.Reason != hooks.SessionLost {
			t.Errorf("demoted because %s: %v", e.Reason, e.Err)
		}
		// The standby is refused, but not permanently: a candidate that has seen a primary waits for the next.
		for _, c := range all {
			refusal := wait(t, c, func(f hooks.Failure) bool { return errors.Is(f.Err, elector.ErrServerReadOnly) })
			if refusal.Permanent {
				t.Errorf("the standby is refused permanently by a candidate that was elected %d times", len(c.rec.Elected()))
			}
		}
		check(t, standby.Promote(soon(t)))
		fresh := firstLeader(t, all, old.Token)
		if fresh.Token>>48 <= old.Token>>48 {
			t.Errorf("the timeline in token %x is not above that in %x", fresh.Token, old.Token)
		}
		for _, c := range all {
			if c.CandidateID() == fresh.CandidateID {
				leader = c
			}
		}
		term, leading := leader.Term()
		if !leading || term.Verify(soon(t)) != nil {
			t.Error("the term on the promoted server does not hold")
		}
		if deputy := s.deputy(t, all); deputy == leader {
			t.Error("the leader is the deputy, too")
		}
	})
}

// A crash may lose a transaction id that was assigned but not used for a commit; then the
// server assigns it again. Here the server would write it to disk only after ten seconds.
func TestATokenIsNotRepeatedAfterACrashRightAfterTheElection(t *testing.T) {
	t.Parallel()
	for name, defaults := range map[string]map[string]string{"a role": nil, "a role with asynchronous commits": {"synchronous_commit": "off"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				cluster := own(t, pgcluster.WithSetting("wal_writer_delay", "10s"), pgcluster.WithSetting("autovacuum", "off"))
				s := on(t, cluster)
				check(t, cluster.CreateRole(t.Context(), "candidate", defaults))
				dsn := s.DSN(pgcluster.ForRole("candidate"))
				c := s.stand(t, d.open(t, 0, dsn), s.election(t)).run(t, nil)
				token := c.elected(t).Token
				for range 3 {
					after := c.after()
					check(t, cluster.Kill())
					check(t, cluster.Resume(soon(t)))
					again := next[hooks.Elected](t, after, nil)
					if again.Token <= token {
						t.Fatalf("token %d after a crash does not rise above %d", again.Token, token)
					}
					token = again.Token
				}
			})
		})
	}
}

// A standby is promoted while its primary still answers, and the route leads to the new
// primary. Existing connections stay on the old one.
func TestATermOnAnOldPrimaryEndsWhenThePoolReachesTheNewOne(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		l := behindARoute(t)
		standby, err := l.AddStandby(t.Context())
		check(t, err)
		pool := d.open(t, 0, l.cut())
		c := on(t, standby).stand(t, pool, l.election(t), seldom...).run(t, nil)
		old := c.elected(t)
		term := termOf(t, c)
		var stale []*sql.Conn // connections to the old primary that the pool reuses later
		for range 2 {
			conn, err := pool.Conn(soon(t))
			check(t, err)
			stale = append(stale, conn)
		}
		check(t, standby.Promote(soon(t)))
		l.proxy.LeadTo(standby)
		after := c.after()
		err = term.InTx(soon(t), c.pool, nil, func(*sql.Tx) error {
			t.Error("a transaction of the old term has entered on the new primary")
			return nil
		})
		wraps(t, err, elector.ErrNotLeader)
		wraps(t, err, elector.ErrOldPrimary)
		for _, conn := range stale {
			check(t, conn.Close())
		}
		closed(t, "the term's context is done", term.Context().Done())
		cause := context.Cause(term.Context())
		wraps(t, cause, elector.ErrSessionLost)
		wraps(t, cause, elector.ErrOldPrimary)
		for _, part := range []string{
			fmt.Sprintf("timeline 2 at 127.0.0.1:%d", standby.Port()), fmt.Sprintf("timeline 1 at 127.0.0.1:%d", l.Port()),
		} {
			if !strings.Contains(cause.Error(), part) {
				t.Errorf("the cause does not say %q: %v", part, cause)
			}
		}
		if e := next[hooks.Demoted](t, after, nil); e.Reason != hooks.SessionLost {
			t.Errorf("demoted because %s: %v", e.Reason, e.Err)
		}
		if fresh := nextElected(t, after); fresh.Token>>48 <= old.Token>>48 {
			t.Errorf("elected with token %x after %x, on the old primary", fresh.Token, old.Token)
		}
		if n := len(l.holders(t, c.Key())); n != 0 {
			t.Errorf("%d backends of the old primary have the lock", n)
		}
	})
}

// A role that may not call pg_control_system is refused with a less specific message.
func TestInTxOfARoleThatMayNotIdentifyServersIsRefused(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := on(t, own(t))
		_, err := s.admin.Exec("CREATE DATABASE elsewhere")
		check(t, err)
		role := pgcluster.ForRole(s.role(t, nil))
		c := s.stand(t, d.open(t, 0, s.DSN(role)), s.election(t))
		elsewhere := d.open(t, 0, s.DSN(role, pgcluster.ForDatabase("elsewhere")))
		term, err := c.Campaign(soon(t))
		check(t, err)
		const revoke = "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"
		for _, step := range []struct {
			revoke func() (sql.Result, error)
			want   string
		}{
			{func() (sql.Result, error) {
				return pgx.open(t, 0, s.DSN(pgcluster.ForDatabase("elsewhere"))).Exec(revoke)
			}, "not on the server and database of this pool"},
			{func() (sql.Result, error) { return s.admin.Exec(revoke) }, "not on the server and database of this pool"},
			{func() (sql.Result, error) {
				return pgx.open(t, 0, s.DSN(pgcluster.ForDatabase("elsewhere"))).Exec("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
			}, "permission denied"},
			{func() (sql.Result, error) {
				return s.admin.Exec("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
			}, "another database of this server"},
		} {
			_, err := step.revoke()
			check(t, err)
			err = term.InTx(soon(t), elsewhere, nil, func(*sql.Tx) error { return nil })
			wraps(t, err, elector.ErrConfig)
			if throughPooler && step.want == "another database of this server" {
				step.want = "permission denied" // an open transaction does not hear of a GRANT
			}
			if !strings.Contains(err.Error(), step.want) || !term.Valid() {
				t.Errorf("want %q, valid %v: %v", step.want, term.Valid(), err)
			}
		}
		check(t, term.Resign(soon(t)))
	})
}

// fencedStore creates the table of fence.Advance on another server than the election's. It
// remembers the largest token, also when the election's timeline is gone.
func fencedStore(t *testing.T) func(resource string, term *elector.Term) error {
	t.Helper()
	store := onShared(t)
	_, err := store.admin.Exec("SELECT pg_advisory_xact_lock(4711); " + fence.CreateTable) // IF NOT EXISTS is not atomic
	check(t, err)
	return func(resource string, term *elector.Term) error {
		tx, err := store.admin.Begin()
		check(t, err)
		defer tx.Rollback()
		if err := fence.Advance(t.Context(), tx, resource, term.Token()); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// alter sets a setting of a database.
func (s *server) alter(t *testing.T, database, setting string) {
	t.Helper()
	_, err := s.admin.Exec(`ALTER DATABASE "` + database + `" SET ` + setting)
	check(t, err)
}

// promoted returns a server on timeline 2 with a database app.
func promoted(t *testing.T) *server {
	t.Helper()
	standby, err := own(t).AddStandby(t.Context())
	check(t, err)
	check(t, standby.Promote(soon(t)))
	s := on(t, standby)
	_, err = s.admin.Exec("CREATE DATABASE app")
	check(t, err)
	return s
}

func TestAFencedStoreRefusesLeadersAfterAnUpgradeUntilTheEpochIsRaised(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(*pgcluster.Cluster, context.Context) (*pgcluster.Cluster, error){
		"pg_upgrade": (*pgcluster.Cluster).Upgrade, "dump and restore": (*pgcluster.Cluster).DumpAndRestore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			advance, election := fencedStore(t), unique("election")
			app := pgcluster.ForDatabase("app")
			// once leads once with each driver and writes to the resource.
			once := func(s *server, pools []*sql.DB, resource string, opts ...elector.Option) (token int64, written []error) {
				for _, pool := range pools {
					_, term := s.lead(t, pool, election, opts...)
					token = max(token, term.Token())
					written = append(written, advance(resource, term))
					check(t, term.Resign(soon(t)))
				}
				return token, written
			}
			allAre := func(when string, written []error, want error) {
				t.Helper()
				for _, err := range written {
					if !errors.Is(err, want) {
						t.Errorf("%s: the store says %v, want %v", when, err, want)
					}
				}
			}
			old := promoted(t)
			resource := unique("resource")
			last, written := once(old, []*sql.DB{mixed.open(t, 0, old.DSN(app)), mixed.open(t, 1, old.DSN(app))}, resource)
			allAre("on timeline 2", written, nil)
			if last>>48 != 2 {
				t.Fatalf("the token is %x", last)
			}
			c, err := move(old.Cluster, t.Context())
			if errors.Is(err, pgcluster.ErrNoProgram) {
				t.Skip(err)
			}
			check(t, err)

			s := on(t, c)
			pools := []*sql.DB{mixed.open(t, 0, s.DSN(app)), mixed.open(t, 1, s.DSN(app))}
			_, written = once(s, pools, resource)
			allAre("on timeline 1 again", written, fence.ErrStale)
			_, written = once(s, pools, resource, elector.WithTokenEpoch(int(last>>48)))
			allAre("with an option", written, nil)
			s.alter(t, "app", fmt.Sprintf("pgelector.epoch = '%d'", last>>48))
			raised, written := once(s, pools, resource)
			allAre("with a setting of the database", written, nil)
			if raised>>48 != 1+last>>48 {
				t.Errorf("the token is %x after %x", raised, last)
			}
			if name != "pg_upgrade" {
				return
			}
			// The next upgrade keeps the setting.
			c, err = s.Upgrade(t.Context())
			check(t, err)
			s = on(t, c)
			_, written = once(s, []*sql.DB{mixed.open(t, 0, s.DSN(app)), mixed.open(t, 1, s.DSN(app))}, resource)
			allAre("after another upgrade", written, nil)
		})
	}
}

// optionsOf converts options of a session for New.
func optionsOf(opts []elector.SessionOption) (all []elector.Option) {
	for _, opt := range opts {
		all = append(all, opt)
	}
	return all
}

// Without the epoch the token could fall. A valid one takes effect at the next election.
func TestAnInvalidEpochBlocksElectionsUntilItIsCorrected(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		name := unique("database")
		c := s.stand(t, d.open(t, 0, s.databaseOf(t, name)), s.election(t))
		alter := func(setting string) {
			_, err := s.admin.Exec(`ALTER DATABASE "` + name + `" ` + setting)
			check(t, err)
		}
		alter("SET pgelector.epoch = 'three'")
		c.run(t, nil)
		for _, wrong := range []string{"'three'", "'-1'", "''", "32767"} {
			alter("SET pgelector.epoch = " + wrong)
			after := c.after()
			failed := next(t, after, func(f hooks.Failure) bool { return errors.Is(f.Err, elector.ErrTokenEpoch) })
			if failed.Permanent {
				t.Errorf("%s: reported as permanent: %v", wrong, failed.Err)
			}
		}
		if c.IsLeader() || len(c.rec.Elected()) > 0 {
			t.Error("somebody was elected")
		}
		alter("SET pgelector.epoch = '3'")
		if token := c.elected(t).Token; token>>48 != 1+3 {
			t.Errorf("the token is %x", token)
		}
		for _, step := range []struct {
			setting string
			epoch   int64
		}{{"SET pgelector.epoch TO 300", 300}, {"SET pgelector.epoch = '00301'", 301}} {
			after := c.after()
			alter(step.setting)
			check(t, termOf(t, c).Resign(soon(t)))
			if again := nextElected(t, after); again.Token>>48 != 1+step.epoch {
				t.Errorf("%s: the token is %x", step.setting, again.Token)
			}
		}
	})
}

// Only the setting of the whole database is the same for all candidates.
func TestOnlyTheDatabasesEpochCounts(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	name := unique("database")
	role := s.role(t, map[string]string{"pgelector.epoch": "9"})
	dsn := s.databaseOf(t, name, pgcluster.ForRole(role))
	_, err := s.admin.Exec(`ALTER ROLE "` + role + `" IN DATABASE "` + name + `" SET pgelector.epoch = '8'`)
	check(t, err)
	elsewhere := unique("database")
	s.databaseOf(t, elsewhere)
	s.alter(t, elsewhere, "pgelector.epoch = '7'")
	s.alter(t, name, "pgelector.epochs = '6'")
	for _, epoch := range []int64{0, 5} {
		if epoch > 0 {
			s.alter(t, name, fmt.Sprintf("pgelector.epoch = '%d'", epoch))
		}
		_, term := s.lead(t, pgx.open(t, 0, dsn), s.election(t))
		if term.Token()>>48 != 1+epoch {
			t.Errorf("the epoch is %d, and the token %x", epoch, term.Token())
		}
	}
}

func TestTheOwnerOfADatabaseMaySetTheEpochWithAGrant(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	name, owner := unique("database"), s.role(t, nil)
	dsn := s.databaseOf(t, name, pgcluster.ForRole(owner))
	_, err := s.admin.Exec(`ALTER DATABASE "` + name + `" OWNER TO "` + owner + `"`)
	check(t, err)
	t.Cleanup(func() {
		_, err := s.admin.Exec(`ALTER DATABASE "` + name + `" OWNER TO CURRENT_USER`)
		expect(t, err)
	})
	set := func() error {
		_, err := pgx.open(t, 0, dsn).Exec(`ALTER DATABASE "` + name + `" SET pgelector.epoch = '1'`)
		return err
	}
	if err := set(); stateOf(err) != "42501" {
		t.Errorf("the owner is not refused: %v", err)
	}
	if one[int](t, s.admin, "SELECT current_setting('server_version_num')::int") < 150000 {
		return
	}
	_, err = s.admin.Exec(`GRANT SET ON PARAMETER pgelector.epoch TO "` + owner + `"`)
	check(t, err)
	expect(t, set())
}

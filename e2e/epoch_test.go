//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/fence"
	"github.com/pgelector/pgelector/hooks"
)

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

// epochModes are the ways to be elected.
var epochModes = map[string]func(t *testing.T, s *server, pool *sql.DB, opts ...elector.SessionOption) *candidate{
	"poll": func(t *testing.T, s *server, pool *sql.DB, opts ...elector.SessionOption) *candidate {
		return s.stand(t, pool, s.election(t), optionsOf(opts)...)
	},
	"wait": func(t *testing.T, s *server, pool *sql.DB, opts ...elector.SessionOption) *candidate {
		return s.stand(t, pool, s.election(t), append(optionsOf(opts), elector.WithStandby(elector.Wait))...)
	},
	"session": func(t *testing.T, s *server, pool *sql.DB, opts ...elector.SessionOption) *candidate {
		g := s.share(t, pool, opts...)
		e, err := g.Elector(s.election(t))
		check(t, err)
		g.all = append(g.all, e)
		return &candidate{Elector: e, rec: g.rec, pool: pool}
	},
}

func overEpochModes(t *testing.T, test func(t *testing.T, s *server, c *candidate, alter func(setting string))) {
	t.Helper()
	for name, stand := range epochModes {
		t.Run(name, func(t *testing.T) {
			overEach(t, func(t *testing.T, d drivers) {
				s := onShared(t)
				name := unique("database")
				dsn := s.databaseOf(t, name)
				test(t, on(t, s.Cluster), stand(t, s, d.open(t, 0, dsn)), func(setting string) {
					_, err := s.admin.Exec(`ALTER DATABASE "` + name + `" ` + setting)
					check(t, err)
				})
			})
		})
	}
}

func TestTheEpochOfTheDatabaseTakesEffectAtTheNextElection(t *testing.T) {
	t.Parallel()
	overEpochModes(t, func(t *testing.T, s *server, c *candidate, alter func(string)) {
		c.run(t, nil)
		first := c.elected(t)
		for _, step := range []struct {
			setting string
			epoch   int64
		}{{"SET pgelector.epoch = '7'", 7}, {"SET pgelector.epoch TO 300", 300}, {"SET pgelector.epoch = '00301'", 301}} {
			after := c.after()
			alter(step.setting)
			term := termOf(t, c)
			check(t, term.Resign(soon(t)))
			if again := nextElected(t, after); again.Token>>48 != first.Token>>48+step.epoch {
				t.Errorf("%s: the token is %x after %x", step.setting, again.Token, first.Token)
			}
		}
	})
}

// Without the epoch the token could fall.
func TestAnInvalidEpochBlocksElectionsUntilItIsCorrected(t *testing.T) {
	t.Parallel()
	overEpochModes(t, func(t *testing.T, s *server, c *candidate, alter func(string)) {
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
	})
}

func TestAnInvalidEpochEndsNoTermOfASharedSession(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		name := unique("database")
		g := s.share(t, d.open(t, 0, s.databaseOf(t, name)))
		one, err := g.Elector(s.election(t))
		check(t, err)
		other, err := g.Elector(s.election(t))
		check(t, err)
		g.all = append(g.all, one, other)
		term, err := one.Campaign(soon(t))
		check(t, err)
		s.alter(t, name, "pgelector.epoch = 'three'")
		_, _, err = other.TryCampaign(soon(t))
		wraps(t, err, elector.ErrTokenEpoch)
		check(t, term.Verify(soon(t)))
		check(t, term.Resign(soon(t)))
		s.frees(t, other.Key())
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

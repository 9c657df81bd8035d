//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/ticks"
)

type every time.Duration

func (e every) Next(t time.Time) time.Time { return t.Truncate(time.Duration(e)).Add(time.Duration(e)) }

// ticking is ticks whose work writes a row for each, and their events.
type ticking struct {
	*ticks.Ticks
	schema string
	mu     sync.Mutex
	events []ticks.Event
}

// ticksOn makes ticks and their tables. The work calls before, and writes a row.
func (s *server) ticksOn(t *testing.T, pool *sql.DB, schema string, before ticks.Do, opts ...ticks.Option) *ticking {
	t.Helper()
	k := &ticking{schema: schema}
	all := append([]ticks.Option{ticks.WithSchema(schema), ticks.WithMissed(ticks.CatchUp(1000)), ticks.WithPause(10*time.Millisecond, 100*time.Millisecond),
		ticks.WithOnEvent(func(e ticks.Event) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.events = append(k.events, e)
		})}, opts...)
	var err error
	k.Ticks, err = ticks.New(pool, "job", every(100*time.Millisecond), func(ctx context.Context, tx *sql.Tx, at time.Time) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO "`+schema+`".done (at) VALUES ($1)`, at); err != nil {
			return err
		}
		return before(ctx, tx, at)
	}, all...)
	check(t, err)
	check(t, k.Migrate(soon(t)))
	_, err = pool.Exec(`CREATE TABLE IF NOT EXISTS "` + schema + `".done (at timestamptz, late interval DEFAULT clock_timestamp() - now())`)
	check(t, err)
	return k
}

func (k *ticking) seen(kind ticks.Kind) (all []ticks.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.events {
		if e.Kind == kind {
			all = append(all, e)
		}
	}
	return all
}

func (k *ticking) await(t *testing.T, kind ticks.Kind, n int) []ticks.Event {
	t.Helper()
	eventually(t, "events: "+string(kind), func() bool { return len(k.seen(kind)) >= n })
	return k.seen(kind)
}

// once checks that each tick between the first and the last was done once, but for those that were given up.
func (k *ticking) once(t *testing.T, pool *sql.DB, missing int) {
	t.Helper()
	if extra := one[int](t, pool, `SELECT count(*) - count(DISTINCT at) FROM "`+k.schema+`".done`); extra != 0 {
		t.Errorf("%d ticks were done again", extra)
	}
	if gaps := one[int](t, pool, `SELECT ((extract(epoch FROM max(at) - min(at)) * 10)::int + 1 - count(DISTINCT at))::int FROM "`+k.schema+`".done`); gaps != missing {
		t.Errorf("%d ticks are missing, want %d", gaps, missing)
	}
}

func none(context.Context, *sql.Tx, time.Time) error { return nil }

var errNotToday = errors.New("not today")

func TestATickThatFailsOnceIsDoneOnceAndInOrder(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		calls := 0
		k := s.ticksOn(t, pool, s.schema(t), func(context.Context, *sql.Tx, time.Time) error {
			if calls++; calls == 3 {
				return errNotToday
			}
			return nil
		})
		c := s.stand(t, pool, s.election(t)).run(t, k.Lead)
		done := k.await(t, ticks.Done, 6)
		c.end(t)
		if failed := k.seen(ticks.Failed); len(failed) != 1 || !errors.Is(failed[0].Err, errNotToday) || !failed[0].At.Equal(done[2].At) || done[2].Tries != 2 {
			t.Errorf("%+v failed; the third is %+v", failed, done[2])
		}
		k.once(t, pool, 0)
	})
}

func TestATickThatFailsForEverIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, holdUp := range map[string]bool{"and holds up the later ones until then": true, "and does not hold up the later ones": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				s := onShared(t)
				pool := d.open(t, 0, s.DSN())
				var bad time.Time
				k := s.ticksOn(t, pool, s.schema(t), func(_ context.Context, _ *sql.Tx, at time.Time) error {
					if bad.IsZero() || at.Equal(bad) {
						bad = at
						return errNotToday
					}
					return nil
				}, ticks.WithHoldUp(holdUp), ticks.WithGiveUp(4, time.Hour), ticks.WithPause(400*time.Millisecond, 400*time.Millisecond))
				c := s.stand(t, pool, s.election(t)).run(t, k.Lead)
				given := k.await(t, ticks.GivenUp, 1)
				k.await(t, ticks.Done, 5)
				eventually(t, "its row goes", func() bool { // the event comes before the commit
					return one[int](t, pool, `SELECT count(*) FROM "`+k.schema+`".ticks_unfinished WHERE at = $1`, bad) == 0
				})
				c.end(t)
				if len(given) != 1 || given[0].Tries != 4 || given[0].Err == nil || len(k.seen(ticks.Failed)) != 4 || k.Stats().GivenUp != 1 {
					t.Errorf("given up: %+v, failed: %+v", given, k.seen(ticks.Failed))
				}
				k.mu.Lock()
				first := slices.IndexFunc(k.events, func(e ticks.Event) bool { return e.Kind == ticks.Done })
				gone := slices.IndexFunc(k.events, func(e ticks.Event) bool { return e.Kind == ticks.GivenUp })
				k.mu.Unlock()
				if first < gone == holdUp {
					t.Errorf("the first later tick is event %d, and the tick was given up by event %d", first, gone)
				}
				k.once(t, pool, 0)
			})
		})
	}
}

// lateTick adds a tick that has had all its tries.
func (k *ticking) lateTick(t *testing.T, pool *sql.DB) {
	t.Helper()
	for _, statement := range []string{
		`INSERT INTO %s.ticks_schedules (name, last_at) VALUES ('job', clock_timestamp())`,
		`INSERT INTO %s.ticks_unfinished (name, at, tries, error) VALUES ('job', '2026-01-01', 1000000, 'not today')`,
	} {
		_, err := pool.Exec(fmt.Sprintf(statement, `"`+k.schema+`"`))
		check(t, err)
	}
}

// The answer to its commit is lost, and the server is still at it.
func TestATickWhoseLastTryIsCommittedMeanwhileIsNotGivenUp(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		k := s.ticksOn(t, pool, s.schema(t), none)
		k.lateTick(t, s.admin)
		try, err := s.admin.Begin()
		check(t, err)
		defer try.Rollback()
		_, err = try.Exec(`DELETE FROM "` + k.schema + `".ticks_unfinished`)
		check(t, err)
		s.stand(t, pool, s.election(t)).run(t, k.Lead)
		pid := one[int](t, try, "SELECT pg_backend_pid()")
		eventually(t, "the claim waits for the try", func() bool {
			return one[bool](t, s.admin, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))", pid)
		})
		check(t, try.Commit())
		k.await(t, ticks.Done, 2)
		if given := k.seen(ticks.GivenUp); len(given) > 0 {
			t.Errorf("told was %+v", given)
		}
	})
}

// Who pages an operator may wait for long, and the server ends a transaction that is idle for a lease.
func TestATickThatIsGivenUpIsToldOutsideEachTransaction(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		schema := s.schema(t)
		var during, rows atomic.Int32
		k := s.ticksOn(t, pool, schema, none)
		k.lateTick(t, s.admin)
		told, err := ticks.New(pool, "job", every(100*time.Millisecond), none, ticks.WithSchema(schema), ticks.WithOnEvent(func(e ticks.Event) {
			if e.Kind == ticks.GivenUp {
				during.Add(one[int32](t, s.admin, "SELECT count(*) FROM pg_locks WHERE relation = $1::text::regclass", `"`+schema+`".ticks_schedules`))
				rows.Add(one[int32](t, s.admin, `SELECT count(*) FROM "`+schema+`".ticks_unfinished WHERE tries >= 1000000`))
			}
		}))
		check(t, err)
		s.stand(t, pool, s.election(t)).run(t, told.Lead)
		eventually(t, "ticks go on", func() bool { return told.Stats().Done > 0 })
		if during.Load() != 0 || rows.Load() != 1 || told.Stats().GivenUp != 1 {
			t.Errorf("given up were %d ticks, with %d rows, inside %d transactions", told.Stats().GivenUp, rows.Load(), during.Load())
		}
	})
}

func TestWorkThatSaysThatAnotherLeadsHasFailedWhileThisOneLeads(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		var once sync.Once
		k := s.ticksOn(t, pool, s.schema(t), func(context.Context, *sql.Tx, time.Time) (err error) {
			once.Do(func() { err = fmt.Errorf("another election: %w", elector.ErrNotLeader) })
			return err
		})
		s.stand(t, pool, s.election(t)).run(t, k.Lead)
		k.await(t, ticks.Done, 2)
		if len(k.seen(ticks.Failed)) != 1 || len(k.seen(ticks.Trouble)) != 0 {
			t.Errorf("failed: %+v, trouble: %+v", k.seen(ticks.Failed), k.seen(ticks.Trouble))
		}
		k.once(t, pool, 0)
	})
}

func TestATermThatIsLostInTheMiddleOfATickDoesNotDoubleTheTick(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election, schema := s.election(t), s.schema(t)
		var lost sync.Once
		work := func(ctx context.Context, _ *sql.Tx, _ time.Time) error {
			lost.Do(func() {
				s.terminate(t, s.holders(t, elector.KeyFromName(election))[0])
				<-ctx.Done()
			})
			return nil
		}
		var all []*ticking
		for i := range 2 {
			pool := d.open(t, i, s.DSN())
			k := s.ticksOn(t, pool, schema, work)
			s.stand(t, pool, election).run(t, k.Lead)
			all = append(all, k)
		}
		var done []ticks.Event
		eventually(t, "ticks are done", func() bool {
			done = append(all[0].seen(ticks.Done), all[1].seen(ticks.Done)...)
			return len(done) >= 5
		})
		if !slices.ContainsFunc(done, func(e ticks.Event) bool { return e.Tries == 2 }) {
			t.Errorf("no tick had two tries: %+v", done)
		}
		all[0].once(t, s.admin, 0)
	})
}

func TestATickThatHangsIsCutOff(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		var hung sync.Once
		k := s.ticksOn(t, pool, s.schema(t), func(ctx context.Context, tx *sql.Tx, _ time.Time) (err error) {
			hung.Do(func() { _, err = tx.ExecContext(ctx, "SELECT pg_sleep(3600)") })
			return err
		}, ticks.WithTimeout(2*time.Second))
		s.stand(t, pool, s.election(t)).run(t, k.Lead)
		k.await(t, ticks.Done, 3)
		if failed := k.await(t, ticks.Failed, 1); !failed[0].At.Equal(k.seen(ticks.Done)[0].At) {
			t.Errorf("%+v", failed)
		}
		k.once(t, pool, 0)
	})
}

func TestTheSessionsZoneAndDateStyleChangeNoTick(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("America/New_York")
	check(t, err)
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		name := unique("zoned")
		dsn := s.databaseOf(t, name)
		_, err := s.admin.Exec(`ALTER DATABASE "` + name + `" SET TimeZone = 'Asia/Kathmandu'`)
		check(t, err)
		_, err = s.admin.Exec(`ALTER DATABASE "` + name + `" SET DateStyle = 'SQL, DMY'`)
		check(t, err)
		pool := d.open(t, 0, dsn)
		k := s.ticksOn(t, pool, "pgelector", none, ticks.WithLocation(zone))
		s.stand(t, pool, s.election(t)).run(t, k.Lead)
		for _, e := range k.await(t, ticks.Done, 3) {
			if e.At.Location() != zone || time.Since(e.At).Abs() > time.Hour {
				t.Errorf("a tick is at %v", e.At)
			}
		}
		k.once(t, pool, 0)
	})
}

func TestTicksComeByTheServersClock(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := clocked(t)
		const ahead = 10 * time.Second
		check(t, s.SetClock(ahead))
		pool := d.open(t, 0, s.DSN())
		k := s.ticksOn(t, pool, "public", none)
		s.stand(t, pool, s.election(t)).run(t, k.Lead)
		k.await(t, ticks.Done, 3)
		if early := one[int](t, pool, "SELECT count(*) FROM done WHERE at > now()"); early != 0 {
			t.Errorf("%d ticks came before their time", early)
		}
		first := k.seen(ticks.Done)[0].At
		if started := one[time.Time](t, pool, "SELECT applied_at FROM ticks_migrations"); first.Before(started) {
			t.Errorf("the first tick is at %v by a process's clock; the server's was %v", first, started)
		}
	})
}

func TestTicksWithoutTablesSaySoAndGoOnOnceTheTablesAreThere(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		k := s.ticksOn(t, pool, s.schema(t), none)
		_, err := pool.Exec(`ALTER SCHEMA "` + k.schema + `" RENAME TO "` + k.schema + `2"`)
		check(t, err)
		s.stand(t, pool, s.election(t)).run(t, k.Lead)
		wraps(t, k.await(t, ticks.Trouble, 1)[0].Err, ticks.ErrNotMigrated)
		_, err = pool.Exec(`ALTER SCHEMA "` + k.schema + `2" RENAME TO "` + k.schema + `"`)
		check(t, err)
		k.await(t, ticks.Done, 1)
	})
}

func TestAnyNumberOfProcessesMigrateTicksAndTheRosterAtOnce(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.database(t))
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				k, err := ticks.New(pool, "job", every(time.Second), none)
				if err == nil {
					err = k.Migrate(soon(t))
				}
				expect(t, err)
			})
			all.Go(func() { rosterOn(t, pool, "pgelector") })
		}
		all.Wait()
	})
}

// Commits wait for the standby, so a promotion loses none.
func TestTicksGoOnOnceEachOnAPromotedStandby(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		primary := own(t)
		standby, err := primary.AddStandby(t.Context())
		check(t, err)
		p, s := on(t, primary), on(t, standby)
		p.set(t, "synchronous_standby_names", "*")
		election, schema := p.election(t), "public"
		var address atomic.Pointer[string]
		move := func(to *server) { dsn := to.DSN(); address.Store(&dsn) }
		move(p)
		var all []*ticking
		done := func() int { return len(all[0].seen(ticks.Done)) + len(all[1].seen(ticks.Done)) }
		for i := range 2 {
			pool := d.openMoving(t, i, &address)
			all = append(all, s.ticksOn(t, pool, schema, none))
			s.stand(t, pool, election).run(t, all[i].Lead)
		}
		eventually(t, "ticks are done", func() bool { return done() >= 3 })
		check(t, primary.Kill())
		move(s)
		check(t, standby.Promote(soon(t)))
		before := done()
		eventually(t, "ticks are done on the promoted server", func() bool { return done() >= before+5 })
		all[0].once(t, s.admin, 0)
	})
}

package systems

import (
	"context"
	"time"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/postgres"
)

// migrateLock is the lock of golang-migrate's driver for PostgreSQL: pg_advisory_lock, waited for without end.
// Its key comes from the database and the table of migrations, so each election has a table of its own.
func migrateLock() System {
	return System{
		Name:     "golang-migrate",
		Settings: "database/postgres Lock and Unlock (lib/pq); it has no settings",
		For:      "The same as goose: a short critical section. It waits in the server, so it is as quick as the raw lock.",
		Quick:    []Fault{Resign, Kill, Terminate},
		Phase:    50 * time.Millisecond,
		Cap:      30 * time.Second,
		Never:    noLease(),
		Blind:    "it does not look",
		Prepare:  prepareMigrate,
		Run: func(ctx context.Context, env Env, out *Reporter) error {
			out.Emit(Ready)
			for ctx.Err() == nil {
				if migrateOnce(ctx, env, out) {
					return nil
				}
				time.Sleep(reconnect)
			}
			return nil
		},
	}
}

func migrateOnce(ctx context.Context, env Env, out *Reporter) bool {
	driver, err := migrateDriver(env)
	if err != nil {
		return false
	}
	if err := driver.Lock(); err != nil {
		_ = driver.Close()
		return false
	}
	out.Leading(always)
	if resigned(ctx, env, nil, out) {
		_ = driver.Unlock()
	}
	return true
}

func migrateDriver(env Env) (database.Driver, error) {
	pool, err := open(pq, env.DSN)
	if err != nil {
		return nil, err
	}
	driver, err := postgres.WithInstance(pool, &postgres.Config{MigrationsTable: "migrate_" + env.Election})
	if err != nil {
		_ = pool.Close()
	}
	return driver, err
}

// prepareMigrate makes the table of migrations, which WithInstance does, while holding the lock.
func prepareMigrate(_ context.Context, dsn, election string) error {
	driver, err := migrateDriver(Env{DSN: dsn, Election: election})
	if err != nil {
		return err
	}
	return driver.Close()
}

package systems

import (
	"context"
	"database/sql"
	"hash/fnv"
	"math"
	"sync"
	"time"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/postgres"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "github.com/lib/pq"              // the driver "postgres"
	"github.com/pressly/goose/v3/lock"
)

// The names of the drivers in database/sql.
const (
	pgx = "pgx"
	pq  = "postgres"
)

// openPool opens a pool that keeps idle connections, as the pool of a busy program does.
func openPool(driver, dsn string) (*sql.DB, error) {
	pool, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	pool.SetMaxIdleConns(4)
	pools.Lock()
	defer pools.Unlock()
	pools.inUse = append(pools.inUse, math.MaxInt)
	pools.all = append(pools.all, pool)
	return pool, nil
}

// pools are the pools of this process, without those of river and Vault.
var pools struct {
	sync.Mutex
	all   []*sql.DB
	inUse []int // the least that pinned has found
}

// pinned returns how many connections were in use at each call so far. The connection of a poll is in use only for
// a moment, so after some calls these are the pinned connections.
func pinned() (n int) {
	pools.Lock()
	defer pools.Unlock()
	for i, pool := range pools.all {
		pools.inUse[i] = min(pools.inUse[i], pool.Stats().InUse)
		n += pools.inUse[i]
	}
	return n
}

// lockKey returns the advisory lock key of an election.
func lockKey(election string) int64 {
	h := fnv.New64a()
	h.Write([]byte(election))
	return int64(h.Sum64() >> 1)
}

// plainLock completes a system that is an advisory lock and nothing else. Its candidates open one pool each, and
// call attempt until they have resigned.
func plainLock(s System, driver string, interval time.Duration, attempt func(context.Context, *sql.DB, Env, *Reporter) bool) System {
	s.Cap = 30 * time.Second
	s.Never = noLease()
	s.Blind = "it does not check"
	s.Run = func(ctx context.Context, env Env, out *Reporter) error {
		pool, err := openPool(driver, env.DSN)
		if err != nil {
			return err
		}
		if err := keepIdle(ctx, pool); err != nil {
			return err
		}
		return repeat(ctx, interval, out, func() (bool, error) { return attempt(ctx, pool, env, out), nil })
	}
	return s
}

// keepIdle opens two connections, so that one is left beside that of the lock. A program that uses PostgreSQL has
// others too, and the server takes longer to end two backends than one.
func keepIdle(ctx context.Context, pool *sql.DB) error {
	var conns [2]*sql.Conn
	for i := range conns {
		conn, err := pool.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		conns[i] = conn
	}
	return nil
}

func noLease() map[Fault]string {
	const why = "no lease: the server keeps the lock until the kernel closes the connection"
	return map[Fault]string{Freeze: why, BlackHole: why}
}

// reconnect is how long a waiter pauses before it connects again.
const reconnect = 5 * time.Millisecond

func raw(driver, name string) System {
	return plainLock(System{
		Name:     name,
		Settings: "pg_advisory_lock on a dedicated connection and nothing else; reconnects every 5 ms",
		For:      "The lower bound. It does not verify the lock, has no token and no lease, and does not notice a lost session.",
		Quick:    []Fault{Resign, Kill, KillAgain, Terminate},
		Phase:    50 * time.Millisecond,
	}, driver, reconnect, rawAttempt)
}

func rawAttempt(ctx context.Context, pool *sql.DB, env Env, out *Reporter) bool {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return false
	}
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", lockKey(env.Election)); err != nil {
		_ = conn.Close()
		return false
	}
	out.Leading(always)
	if awaitResign(ctx, env, nil, out) {
		_, _ = conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", lockKey(env.Election))
	}
	return true
}

// migrateLock is the lock of golang-migrate's driver for PostgreSQL, which waits in the server. Its key depends
// on the database and the table of migrations, so each election has its own table.
func migrateLock() System {
	s := plainLock(System{
		Name:     Migrate,
		Settings: "database/postgres Lock and Unlock (lib/pq); it has no settings",
		For:      "A short critical section, like goose. It waits in the server, so it is as fast as the raw lock.",
		Quick:    []Fault{Resign, Kill, KillAgain, Terminate},
		Phase:    50 * time.Millisecond,
	}, pq, reconnect, migrateAttempt)
	s.Prepare = prepareMigrate
	return s
}

func migrateAttempt(ctx context.Context, pool *sql.DB, env Env, out *Reporter) bool {
	driver, err := migrateDriver(ctx, pool, env.Election)
	if err != nil {
		return false
	}
	if err := driver.Lock(); err != nil {
		_ = driver.Close()
		return false
	}
	out.Leading(always)
	if awaitResign(ctx, env, nil, out) {
		_ = driver.Unlock()
	}
	return true
}

func migrateDriver(ctx context.Context, pool *sql.DB, election string) (database.Driver, error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	driver, err := postgres.WithConnection(ctx, conn, &postgres.Config{MigrationsTable: "migrate_" + election})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return driver, nil
}

// prepareMigrate creates the table of migrations. A candidate would otherwise create it while it holds the lock.
func prepareMigrate(ctx context.Context, dsn, election string) error {
	pool, err := openPool(pq, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	driver, err := migrateDriver(ctx, pool, election)
	if err != nil {
		return err
	}
	return driver.Close()
}

const forGoose = "It keeps two deployments from migrating one database at the same time, for minutes. A wait of seconds and an unnoticed loss do little harm there."

// gooseSession is goose's session locker, which calls pg_try_advisory_lock on one connection again and again.
func gooseSession(name, settings string, interval time.Duration) System {
	return plainLock(System{Name: name, Settings: settings, For: forGoose, Phase: interval}, pgx, interval,
		func(ctx context.Context, pool *sql.DB, env Env, out *Reporter) bool {
			return gooseAttempt(ctx, pool, interval, env, out)
		})
}

func gooseAttempt(ctx context.Context, pool *sql.DB, interval time.Duration, env Env, out *Reporter) bool {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockKey(env.Election)),
		lock.WithLockTimeout(uint64(interval/time.Second), math.MaxInt32))
	if err != nil {
		out.Fail(err)
		return true
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := locker.SessionLock(ctx, conn); err != nil {
		return false
	}
	out.Leading(always)
	if awaitResign(ctx, env, nil, out) {
		_ = locker.SessionUnlock(ctx, conn)
	}
	return true
}

package systems

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/pressly/goose/v3/lock"
)

const forGoose = "Keeping two deployments from migrating one database at a time, for minutes: it waits politely, and nobody needs to know of a loss."

// gooseSession is goose's session locker: pg_try_advisory_lock on one connection, again and again.
func gooseSession(name, settings string, every time.Duration) System {
	return System{
		Name: name, Settings: settings, For: forGoose,
		Phase: every,
		Cap:   30 * time.Second,
		Never: noLease(),
		Blind: "it does not look",
		Run: func(ctx context.Context, env Env, out *Reporter) error {
			pool, err := open(pgx, env.DSN)
			if err != nil {
				return err
			}
			locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockKey(env.Election)),
				lock.WithLockTimeout(uint64(every/time.Second), math.MaxInt32))
			if err != nil {
				return err
			}
			out.Emit(Ready)
			for ctx.Err() == nil {
				if gooseOnce(ctx, pool, locker, env, out) {
					return nil
				}
				time.Sleep(every)
			}
			return nil
		},
	}
}

func gooseOnce(ctx context.Context, pool *sql.DB, locker lock.SessionLocker, env Env, out *Reporter) bool {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := locker.SessionLock(ctx, conn); err != nil {
		return false
	}
	out.Leading(always)
	if resigned(ctx, env, nil, out) {
		_ = locker.SessionUnlock(ctx, conn)
	}
	return true
}

// gooseTable is goose's table locker: a lease in a table.
func gooseTable(name, settings string, opts ...lock.TableLockerOption) System {
	return System{
		Name: name, Settings: settings, For: forGoose,
		Phase: 5 * time.Second,
		Cap:   60 * time.Second,
		Never: map[Fault]string{Terminate: survives, Restart: survives},
		Blind: "it renews the lease, and tells nobody when that fails",
		Run: func(ctx context.Context, env Env, out *Reporter) error {
			pool, err := open(pgx, env.DSN)
			if err != nil {
				return err
			}
			id := lockKey(env.Election)
			locker := lock.NewPostgresTableLocker
			l, err := locker(append([]lock.TableLockerOption{lock.WithTableLockID(id)}, opts...)...)
			if err != nil {
				return err
			}
			out.Emit(Ready)
			for l.Lock(ctx, pool) != nil {
				if ctx.Err() != nil {
					return nil
				}
			}
			out.Leading(always)
			if resigned(ctx, env, nil, out) {
				return l.Unlock(ctx, pool)
			}
			return nil
		},
	}
}

package systems

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/physical/postgresql"
	"github.com/hashicorp/vault/sdk/physical"
	"github.com/pressly/goose/v3/lock"
)

// survives is why a terminated backend ends no leadership.
const survives = "leadership survives: a lease outlives its connection"

// gooseTable is goose's table locker: a lease in a table.
func gooseTable(name, settings string, opts ...lock.TableLockerOption) System {
	return System{
		Name: name, Settings: settings, For: forGoose,
		Phase: 5 * time.Second,
		Cap:   60 * time.Second,
		Never: map[Fault]string{Terminate: survives, Restart: survives},
		Blind: "it renews the lease, and does not report a failure to do so",
		Run: func(ctx context.Context, env Env, out *Reporter) error {
			pool, err := openPool(pgx, env.DSN)
			if err != nil {
				return err
			}
			locker, err := lock.NewPostgresTableLocker(append([]lock.TableLockerOption{lock.WithTableLockID(lockKey(env.Election))}, opts...)...)
			if err != nil {
				return err
			}
			return repeat(ctx, 0, out, func() (bool, error) {
				if locker.Lock(ctx, pool) != nil {
					return false, nil
				}
				out.Leading(always)
				if awaitResign(ctx, env, nil, out) {
					return true, locker.Unlock(ctx, pool)
				}
				return true, nil
			})
		},
	}
}

// vaultTable is the table that Vault's documentation asks its users to create.
const vaultTable = `CREATE TABLE IF NOT EXISTS vault_ha_locks (
	ha_key TEXT COLLATE "C" NOT NULL,
	ha_identity TEXT COLLATE "C" NOT NULL,
	ha_value TEXT COLLATE "C",
	valid_until TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT ha_key PRIMARY KEY (ha_key)
)`

// vaultLock is the HA lock of Vault's PostgreSQL storage: a lease in a table.
func vaultLock() System {
	return System{
		Name:     "vault HA lock",
		Settings: "lease 15 s, renewed every 5 s, retried every 1 s: constants of the package",
		Replaced: 20 * time.Second,
		For:      "Vault's own active node. A lease in a table survives a broken connection; an advisory lock does not.",
		Phase:    5 * time.Second,
		Cap:      60 * time.Second,
		Never:    map[Fault]string{Terminate: survives},
		Prepare:  prepareVault,
		Run: func(ctx context.Context, env Env, out *Reporter) error {
			conf := map[string]string{"connection_url": env.DSN, "ha_enabled": "true"}
			backend, err := postgresql.NewPostgreSQLBackend(conf, hclog.NewNullLogger())
			if err != nil {
				return err
			}
			// Vault pauses for the same time between two attempts.
			return repeat(ctx, postgresql.PostgreSQLLockRetryInterval, out, func() (bool, error) {
				return vaultAttempt(ctx, backend.(physical.HABackend), env, out)
			})
		},
	}
}

func vaultAttempt(ctx context.Context, backend physical.HABackend, env Env, out *Reporter) (done bool, err error) {
	lock, err := backend.LockWith(env.Election, env.ID)
	if err != nil {
		return true, fmt.Errorf("vault: %w", err)
	}
	lost, err := lock.Lock(ctx.Done())
	if err != nil || lost == nil {
		return false, nil
	}
	out.Leading(func() bool { return open(lost) })
	if awaitResign(ctx, env, lost, out) {
		return true, lock.Unlock()
	}
	return false, nil
}

// preparingVault is held while the table is created: two statements at once fail in spite of IF NOT EXISTS.
var preparingVault sync.Mutex

func prepareVault(ctx context.Context, dsn, _ string) error {
	preparingVault.Lock()
	defer preparingVault.Unlock()
	pool, err := openPool(pgx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.ExecContext(ctx, vaultTable)
	return err
}

package systems

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/physical/postgresql"
	"github.com/hashicorp/vault/sdk/physical"
)

// vaultTable is what Vault's documentation tells its users to run.
const vaultTable = `CREATE TABLE IF NOT EXISTS vault_ha_locks (
	ha_key TEXT COLLATE "C" NOT NULL,
	ha_identity TEXT COLLATE "C" NOT NULL,
	ha_value TEXT COLLATE "C",
	valid_until TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT ha_key PRIMARY KEY (ha_key)
)`

// vaultLock is the HA lock of Vault's PostgreSQL storage: a lease in a table, renewed by the clock.
func vaultLock() System {
	return System{
		Name:     "vault HA lock",
		Settings: "lease 15 s, renewed every 5 s, retried every 1 s: constants of the package",
		For:      "Vault's own active node. A lease in a table survives a broken connection, which an advisory lock does not.",
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
			out.Emit(Ready)
			for ctx.Err() == nil {
				if done, err := vaultOnce(ctx, backend.(physical.HABackend), env, out); done {
					return err
				}
			}
			return nil
		},
	}
}

func vaultOnce(ctx context.Context, backend physical.HABackend, env Env, out *Reporter) (done bool, err error) {
	lock, err := backend.LockWith(env.Election, env.ID)
	if err != nil {
		return true, fmt.Errorf("vault: %w", err)
	}
	lost, err := lock.Lock(ctx.Done())
	if err != nil || lost == nil {
		time.Sleep(postgresql.PostgreSQLLockRetryInterval) // as Vault does between two tries
		return false, nil
	}
	out.Leading(func() bool {
		select {
		case <-lost:
			return false
		default:
			return true
		}
	})
	if resigned(ctx, env, lost, out) {
		return true, lock.Unlock()
	}
	return false, nil
}

func prepareVault(ctx context.Context, dsn, _ string) error {
	pool, err := sql.Open(pgx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.ExecContext(ctx, vaultTable)
	return err
}
